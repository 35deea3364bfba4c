"""One version in every file that has one, and the older one that users can go back to has another."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from tests.contracts.roles import ROOT, read

CHARTS: Final = ("gpu-scheduler", "gpu-scheduler-check")
PACKAGE: Final = tomllib.loads((ROOT / "scheduler" / "pyproject.toml").read_text())["project"]["version"]


def test_package_workspace_and_charts_have_one_version() -> None:
    """A chart installs the programs of its own version."""
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    charts = [read("charts", chart, "Chart.yaml") for chart in CHARTS]

    assert {workspace, *(each[key] for each in charts for key in ("version", "appVersion"))} == {PACKAGE}


def test_version_to_go_back_to_is_not_this_one() -> None:
    """`make prepare-rollback` names a version that is older than what it is run from."""
    text = (ROOT / "playbooks" / "prepare_rollback.yml").read_text()
    named = {tuple(map(int, version.split("."))) for version in re.findall(r"v(\d+\.\d+\.\d+)", text)}

    assert named
    assert max(named) < tuple(map(int, PACKAGE.split(".")))
