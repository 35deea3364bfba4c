"""The hook for pre-commit, and what lint says of our own examples and pages."""

from __future__ import annotations

import re
import tomllib
from typing import Final

import pytest

from gpu_scheduler.cli.lint.check import check
from tests.contracts import roles

ROOT: Final = roles.ROOT
FIELDS: Final = {
    "id",
    "name",
    "entry",
    "language",
    "description",
    "additional_dependencies",
    "types_or",
    "require_serial",
}
"""Of the fields that pre-commit knows in a hook; the first four must be there."""
EXAMPLES: Final = sorted(path for path in (ROOT / "examples").rglob("*.y*ml"))
BLOCKS: Final = {
    f"{page.name}-{number}": text
    for page in sorted((ROOT / "docs").glob("*.md"))
    for number, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))
    if re.search(r"^apiVersion: ", text, re.MULTILINE)
}


def test_the_hook_calls_a_command_that_its_installation_has() -> None:
    """pre-commit installs the root and the hook's dependencies with pip: the root has no package, the folder has."""
    (hook,) = roles.read(".pre-commit-hooks.yaml")
    (folder,) = hook["additional_dependencies"]
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())

    assert set(hook) == FIELDS
    assert (hook["id"], hook["language"]) == ("gpu-scheduler-lint", "python")
    assert hook["entry"].split()[0] in package["project"]["scripts"]
    assert root["tool"]["setuptools"] == {"packages": []}
    assert "build-system" not in root


def test_the_examples_have_no_finding() -> None:
    """All of them together."""
    assert check([(path.name, path.read_text(encoding="utf-8")) for path in EXAMPLES], "default").findings == ()


@pytest.mark.parametrize("text", BLOCKS.values(), ids=BLOCKS)
def test_manifests_of_our_pages_have_no_finding(text: str) -> None:
    """A reader copies them."""
    assert check([("page.yaml", text)], "default").findings == ()
