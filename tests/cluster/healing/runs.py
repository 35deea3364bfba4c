"""Runs `make up` and `make down` on the tests' own engine, to the end or with an interrupt, and proves the result."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

from tests.cluster import plays
from tests.cluster.healing import network, own_engine
from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.clusters import Cluster

ARGS: Final = f"ARGS=-e {own_engine.VARS}"

# Seconds for a test: two runs, one of which may create the cluster, and the proof. Three times the time of an idle
# machine.
LONGEST: Final = 1800

# Roles whose tasks change something in each run, whatever the damage.
ALWAYS: Final = {"evidence", "play"}


def up(*options: str) -> plays.Run:
    """Run `make up` and return the successful run; the options are ansible-playbook's."""
    return plays.run("make", "up", " ".join((ARGS, *options))).succeeded()


def down() -> plays.Run:
    """Run `make down` and return the successful run."""
    return plays.run("make", "down", ARGS).succeeded()


def prove(cluster: Cluster) -> None:
    """Prove the placement, and that pods reach each other and resolve Services, on every node."""
    plays.run("ansible-playbook", "playbooks/verify.yml", "-e", own_engine.VARS).succeeded()
    network.prove(cluster)


def changed(run: plays.Run) -> set[str]:
    """Return the roles that changed something."""
    return {role for role, tasks in run.changed.items() if tasks} - ALWAYS


def after(seconds: float) -> Callable[[], bool]:
    """Return a function that is true from `seconds` after its first call on."""
    asked: list[float] = []

    def has_come() -> bool:
        asked.append(time.monotonic())
        return asked[-1] - asked[0] >= seconds

    return has_come


def interrupt(task: str, midst: Callable[[], object], log: Path) -> str:
    """Send SIGINT to the process group of `make up`, as Ctrl-C does, in the middle of a task. Return what it printed.

    The signal is sent when the task has begun and `midst` is true.
    """
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "true", "ANSIBLE_FORCE_COLOR": "false"}
    with log.open("w") as output:
        process = subprocess.Popen(
            ("make", "up", ARGS),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + limit(plays.LONGEST)
        while not (task in log.read_text() and midst()):
            assert process.poll() is None, f"it ended before {task}:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"it never came to {task}:\n{log.read_text()}"
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(limit(60)) != 0, "it went on as if nothing had happened"
    finally:
        # SIGTERM: a play that gets SIGKILL leaves the processes of its task running.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(limit(60))
    # Ansible wraps messages at the width of a terminal.
    return " ".join(log.read_text().split())
