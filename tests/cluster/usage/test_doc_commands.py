"""Types the commands of the pages that need kubelets or a container engine: logs, metrics of a Service, nodes."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import pytest

from tests import doc_commands
from tests.cluster.clusters import NAME, ROOT, Cluster
from tests.waiting import limit

if TYPE_CHECKING:
    from pathlib import Path

COMMANDS: Final = doc_commands.run_by(doc_commands.ON_CLUSTER)
VALUES: Final = {"gpu-scheduler-control-plane": f"{NAME}-control-plane"}
"""The tests' cluster has another name than a reader's."""
LONGEST: Final = 180
"""Seconds that one block may take: it may install the package."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with what the commands read of the checkout. pip writes beside the package that it builds."""
    left_out = shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "scheduler", tmp_path / "scheduler", ignore=left_out)
    (tmp_path / "requirements").symlink_to(ROOT / "requirements")
    return tmp_path


@pytest.mark.timeout(600)
@pytest.mark.promise("text-16")
@pytest.mark.parametrize("page", COMMANDS)
def test_each_command_of_a_page_ends_as_the_page_says(
    page: str, cluster: Cluster, healthy: None, checkout: Path
) -> None:
    """In the order of the page, one shell for each block."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "HOME": str(checkout)}
    for _, commands in groupby(COMMANDS[page], attrgetter("block")):
        done = subprocess.run(
            ("bash", "-c", doc_commands.script(commands, VALUES)),
            cwd=checkout,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit(LONGEST),
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
