"""Runs `make up` and `make down` in the tests' world, to the end or into an interrupt, and proves what came of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Final

from tests.cluster import plays
from tests.cluster.healing import network, world
from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cluster.clusters import Cluster

ARGS: Final = f"ARGS=-e {world.VARS}"

# Seconds for a case: two runs, one of which may make the cluster, and the proof; thrice what a quiet machine takes.
LONGEST: Final = 1800

# Roles that say something about the host or the proof of each run: what they report belongs to no damage.
ALWAYS: Final = {"evidence", "play"}


def up(*options: str) -> plays.Run:
    """Return a `make up` that succeeded; the options are ansible-playbook's."""
    return plays.run("make", "up", " ".join((ARGS, *options))).succeeded()


def down() -> plays.Run:
    """Return a `make down` that succeeded."""
    return plays.run("make", "down", ARGS).succeeded()


def prove(cluster: Cluster) -> None:
    """Prove the placement, and that pods reach each other and find Services by name, on every node."""
    plays.run("ansible-playbook", "playbooks/verify.yml", "-e", world.VARS).succeeded()
    network.prove(cluster)


def changed(run: plays.Run) -> set[str]:
    """Return the roles that changed something."""
    return {role for role, tasks in run.changed.items() if tasks} - ALWAYS


def after(seconds: float) -> Callable[[], bool]:
    """Return a moment: so many seconds after it was first asked for."""
    asked: list[float] = []

    def has_come() -> bool:
        asked.append(time.monotonic())
        return asked[-1] - asked[0] >= seconds

    return has_come


def interrupt(task: str, midst: Callable[[], object], log: Path) -> str:
    """Send SIGINT to the process group of `make up`, as Ctrl-C does, in the middle of a task; return what it printed.

    The moment has come when the task has begun and `midst` is true.
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
        assert process.wait(60) != 0, "it went on as if nothing had happened"
    finally:
        # SIGTERM, because a play that is killed outright leaves what its task has started behind.
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
    # Sentences are folded at the width of a terminal.
    return " ".join(log.read_text().split())
