"""The simulator finds each seeded bug within the steps that CI takes."""

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
STEPS: Final = 300_000
"""Most bugs are found within 10,000. A decision before the list is found once in 30,000 on average."""
SEED: Final = 1
INVARIANTS: Final = {
    "forget_on_timeout": {"apart", "memory", "index"},
    "expire_assumed": {"liveness", "apart", "memory", "index", "ledger", "together"},
    "skip_terminating": {"apart", "memory", "index", "ledger"},
    "lose_deleted": {"ledger", "liveness"},
    "bind_without_uid": {"agree", "apart", "allocated"},
    "former_leader": {"fence", "apart"},
    "conflict_is_success": {"liveness"},
    "decide_before_listing": {"apart", "index", "memory", "together", "allocated"},
    "drop_requeues": {"liveness"},
    "forget_index": {"apart", "index", "ledger"},
    "assume_nothing": {"apart", "memory", "index", "together"},
    "start_one_by_one": {"together"},
    "keep_no_line": {"together"},
    "bind_without_claims": {"allocated"},
    "hold_no_claim": {"taken"},
    "check_no_claim": {"taken"},
    "release_no_claim": {"released"},
}
"""Invariants that may report each bug. If another invariant is violated first, there is another bug."""


def test_at_least_ten_bugs_are_tested() -> None:
    """Each has invariants that may report it."""
    assert len(BUGS) >= 10
    assert BUGS.keys() == INVARIANTS.keys()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    """The violation is in pods and GPUs; the checker does not read the code."""
    # Its own process: coverage would slow it down and measure nothing new.
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": PATH}
    command = (sys.executable, str(HERE / "bugs.py"), name, str(SEED), str(STEPS))
    found = json.loads(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)

    print(f"{name}: {found['steps']:,} steps, {found['found']}")  # noqa: T201 - the reader of the test's output compares the figures
    assert found["found"] is not None
    assert found["found"].partition(":")[0] in INVARIANTS[name]
