"""Types docs/tutorial.md on the kind cluster, with real containers and monitors, and demands what the page shows."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.cluster import plays
from tests.cluster.clusters import ROOT
from tests.contracts import roles
from tests.tutorial_page import agrees, script, steps
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.clusters import Cluster


@pytest.fixture
def monitored() -> Iterator[None]:
    """Let the monitors declare the GPUs that `make up` declares; afterwards they are gone."""
    declared = roles.read("inventory", "kind", "group_vars", "all", "facts.yml")["monitor_simulated_inventory"]
    chosen = {"monitor_source": "simulated", "monitor_simulated_inventory": declared}
    plays.run(*plays.SITE, "--tags", "monitor", "-e", json.dumps(chosen)).succeeded()
    yield
    plays.run(*plays.SITE, "--tags", "monitor").succeeded()


@pytest.mark.usefixtures("monitored")
@pytest.mark.timeout(600)
def test_the_commands_print_what_the_page_shows(cluster: Cluster, healthy: None, tmp_path: Path) -> None:
    """In their order, but for those that make and remove the cluster."""
    path = f"{ROOT / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    for commands, shown in steps("make", "eval"):
        done = subprocess.run(
            ("bash", "-c", script(commands, str(tmp_path))),
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit(180),
            check=False,
        )
        assert shown is None or agrees(shown, done.stdout + done.stderr), (commands, done.stdout + done.stderr)
