"""The recorded traces: the same changes in the same order lead to the recorded decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from simulator.replica_process import starter
from simulator.trace import record

TRACES: Final = sorted((Path(__file__).resolve().parent / "traces").glob("*.jsonl"))


def test_twenty_traces_have_binds_and_several_reasons() -> None:
    """Together they contain enough binds, and waits for several reasons."""
    lines = [json.loads(line) for trace in TRACES for line in trace.read_text(encoding="utf-8").splitlines()]
    decided = [one for line in lines for one in line.get("decided", ())]

    assert len(TRACES) == 20
    assert sum("bind" in one for one in decided) >= 400
    assert len({one["reason"] for one in decided if "wait" in one}) >= 6


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
def test_a_recorded_trace_is_reproduced(trace: Path) -> None:
    """Line by line. To record a changed decision: simulator --seed N --steps 70 --trace FILE."""
    lines = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]

    assert list(record(lines[0]["seed"], lines[0]["steps"], starter())) == lines
