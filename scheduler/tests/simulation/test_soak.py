"""A hundred thousand steps with every fault, and nothing is lost, given twice or left waiting."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from gpu_scheduler.simulation.faults import Fault

PACKAGE: Final = Path(__file__).resolve().parents[2]
SEED: Final = 11
STEPS: Final = 100_000
BINDS: Final = 20_000
EACH: Final = 100


@pytest.mark.timeout(1800)
def test_a_hundred_thousand_steps_show_nothing_wrong() -> None:
    """With at least 20,000 binds, and every fault at least 100 times: what never struck proves nothing."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE)}
    options = ("--seed", str(SEED), "--steps", str(STEPS), "-o", "json")
    # In processes of its own, and unmeasured: coverage would make them slow, and learn nothing.
    command = (sys.executable, "-m", "gpu_scheduler", "simulate", *options)
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    facts = json.loads(ended.stdout)["items"][0]

    assert facts["violation"] is None, ended.stderr[-2000:]
    assert facts["steps"] == STEPS
    assert facts["binds"] >= BINDS
    assert {fault: facts["faults"].get(fault, 0) for fault in Fault if facts["faults"].get(fault, 0) < EACH} == {}
