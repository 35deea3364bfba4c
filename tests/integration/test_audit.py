"""What should never happen, told and put right: a damaged ledger, a GPU held twice."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.asking import asker, holder
from tests.integration.command import start_alone
from tests.objects import literal, pod
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane

PERIOD = 3.0


@pytest.mark.promise("hold-9", "hold-8")
def test_a_damaged_ledger_is_found_and_repaired_within_one_period(
    plane: ControlPlane, bench: Bench, tmp_path: Path
) -> None:
    """The replica forgets who holds which card; within one period it counts that and knows it again."""
    times = {"AUDIT_INTERVAL": f"{PERIOD:g}s", "SCHEDULING_INTERVAL": "200ms"}
    command = start_alone(plane, tmp_path, "damaged-0", None, "tests.integration.damaging", **times)
    try:
        command.wait_ready()
        bench.node("node1")
        bench.make(holder())
        bench.wait_bound("holder-0", "node1")
        assert command.metric("gpu_scheduler_ledger_repairs_total") == 0

        command.process.send(signal.SIGUSR1)
        damaged = time.monotonic()

        eventually("it is repaired", lambda: command.metric("gpu_scheduler_ledger_repairs_total") > 0)
        assert time.monotonic() - damaged < PERIOD + limit(1)
        assert command.said("The ledger differed from the cluster")
        bench.make(asker())
        assert f"{bench.namespace}/holder-0" in bench.wait_message("asker-0", "GpuHeld: ")
    finally:
        command.process.stop()


@pytest.mark.promise("lead-5")
def test_a_gpu_that_is_held_twice_is_told(bench: Bench, scheduler: Command) -> None:
    """Two pods put on one card past every scheduler: metric and an event on both, well within half a minute."""
    bench.node("node1")
    for name, index in (("one-0", "0=node1:0\n"), ("two-0", "0=node1:0\n1=node9:1\n")):
        bench.make(pod(name, index, literal("0"), nodeName="node1"))

    eventually("the metric tells", lambda: scheduler.metric("gpu_scheduler_conflicts") == 1)
    for name, other in (("one-0", "two-0"), ("two-0", "one-0")):
        event = bench.wait_event(name, "GpuConflict")
        assert f"{bench.namespace}/{other}" in event["note"]

    bench.delete("two-0")
    eventually("it is over", lambda: scheduler.metric("gpu_scheduler_conflicts") == 0)
