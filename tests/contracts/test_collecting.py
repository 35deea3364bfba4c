"""pytest without a flag changes no cluster, engine or host, even as root."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS: Final = ("docker", "dockerd", "kind", "kubectl", "molecule", "ansible-playbook", "iptables", "ip", "apt-get")
NOTE: Final = '#!/bin/sh\necho "$0 $*" >> "$NOTES"\nexit 1\n'
CASE: Final = "tests/cluster/verify/test_placement.py"
REFUSED: Final = 4
"""pytest's exit status for invalid arguments."""


class Collected:
    """Output and recorded calls of a pytest that only collected, with fake programs that record their calls."""

    def __init__(self, folder: Path, *words: str) -> None:
        """Run the collection."""
        notes = folder / "notes"
        for name in PROGRAMS:
            (folder / name).write_text(NOTE)
            (folder / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "NOTES": str(notes)}
        command = (sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words)
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        self.code = done.returncode
        self.output = done.stdout + done.stderr
        self.tests = [line for line in done.stdout.splitlines() if "::" in line]
        self.notes = notes.read_text() if notes.exists() else ""


def test_pytest_alone_collects_what_needs_no_server_and_no_cluster(pytestconfig: pytest.Config) -> None:
    """It collects units and contracts, and no test that starts an API server or changes a cluster."""
    of_tests = {path for path in pytestconfig.getini("testpaths") if path.startswith("tests")}

    assert of_tests == {"tests/contracts", "tests/bench"}


def test_a_folder_above_them_ignores_the_cluster_s_tests(tmp_path: Path) -> None:
    """The output names the flag that collects them."""
    # There are thousands of contracts: to collect them takes seconds.
    collected = Collected(tmp_path, "tests", "--ignore=tests/contracts", "--ignore=tests/attacks")

    assert collected.code == 0, collected.output[-2000:]
    assert any(test.startswith("tests/integration/") for test in collected.tests)
    assert not [test for test in collected.tests if test.startswith("tests/cluster")]
    assert "left out: tests/cluster changes a cluster" in collected.output
    assert collected.notes == ""


@pytest.mark.parametrize("asked", ["tests/cluster", "tests/cluster/healing", CASE, f"{CASE}::test_every_line"])
def test_a_cluster_test_that_is_named_is_refused_without_the_flag(tmp_path: Path, asked: str) -> None:
    """The message says what the test changes, with an example that works."""
    collected = Collected(tmp_path, asked)

    assert collected.code == REFUSED
    assert collected.tests == []
    assert f"cannot collect {asked}: tests/cluster changes a cluster" in collected.output
    assert f"pytest --cluster {CASE}" in collected.output
    assert collected.notes == ""
