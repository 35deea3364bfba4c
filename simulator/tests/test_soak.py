"""Thousands of steps with every fault break no invariant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from simulator.faults import Fault

ROOT: Final = Path(__file__).resolve().parents[2]
PATH: Final = f"{ROOT}:{ROOT / 'scheduler'}"
"""Where Python finds the simulator and the package."""
SEED: Final = 11
STEPS: Final = int(os.environ.get("SIMULATED_STEPS", "10000"))
"""Suite sweeps sets 100,000."""
BINDS: Final = STEPS // 5
EACH: Final = STEPS // 1000


@pytest.mark.timeout(1800)
def test_many_steps_break_no_invariant() -> None:
    """With one bind in five steps, and each fault once in a thousand: a fault that never occurs proves nothing."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": PATH}
    options = ("--seed", str(SEED), "--steps", str(STEPS), "-o", "json")
    # In its own processes: coverage would slow them down and measure nothing new.
    command = (sys.executable, "-m", "simulator", *options)
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    view = json.loads(ended.stdout)["items"][0]

    assert view["violation"] is None, ended.stderr[-2000:]
    assert view["steps"] == STEPS
    assert view["binds"] >= BINDS
    assert {fault: view["faults"].get(fault, 0) for fault in Fault if view["faults"].get(fault, 0) < EACH} == {}
