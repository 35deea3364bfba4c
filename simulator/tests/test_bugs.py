"""The simulator finds what it is there to find: each seeded bug, within the steps that CI takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from simulator.tests.bugs import BUGS

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
PATH: Final = f"{ROOT}:{ROOT / 'scheduler'}"
"""Where Python finds the simulator and the package."""
STEPS: Final = 100_000
SEED: Final = 1
INVARIANTS: Final = {
    "forget_on_timeout": {"apart", "memory", "index"},
    "expire_assumed": {"liveness", "apart", "memory", "index", "ledger"},
    "skip_terminating": {"apart", "memory", "index", "ledger"},
    "lose_deleted": {"ledger", "liveness"},
    "bind_without_uid": {"agree", "apart"},
    "stale_leader": {"fence", "apart"},
    "conflict_is_success": {"liveness"},
    "decide_before_listing": {"apart", "index", "memory"},
    "drop_wakes": {"liveness"},
    "forget_index": {"apart", "index", "ledger"},
    "assume_nothing": {"apart", "memory", "index"},
}
"""What may tell of each; that something else breaks first would be a bug of another kind."""


def test_at_least_ten_bugs_are_looked_for() -> None:
    """Each with what tells of it."""
    assert len(BUGS) >= 10
    assert BUGS.keys() == INVARIANTS.keys()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    """By what it does to pods and GPUs, never by looking at the code."""
    # A process of its own: who measures coverage would make it slow, and learn nothing.
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": PATH}
    command = (sys.executable, str(HERE / "bugs.py"), name, str(SEED), str(STEPS))
    told = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)

    print(f"{name}: {told['steps']:,} steps, {told['found']}")  # noqa: T201 - the figures are worth a look
    assert told["found"] is not None
    assert told["found"].partition(":")[0] in INVARIANTS[name]
