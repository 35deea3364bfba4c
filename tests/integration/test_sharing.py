"""What the operator chose with GPU_SHARING, and how pods that wait long are looked at."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.asking import asker, foreign, holder
from tests.integration.command import start_alone
from tests.objects import gpu, literal, node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane

WILLING = {"agentaflow.gpu/sharing": "any"}


@pytest.mark.promise("share-3")
def test_every_pod_shares_where_the_operator_says_any(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """Strangers on one card, without a word of their own."""
    command = start_alone(plane, tmp_path, "any-0", GPU_SHARING="any")
    try:
        bench.node("node1")
        bench.make(holder())
        bench.make(asker())

        bench.wait_bound("holder-0", "node1", seconds=20)
        bench.wait_bound("asker-0", "node1")

        assert command.metric("gpu_scheduler_conflicts") == 0
    finally:
        command.process.stop()


@pytest.mark.promise("share-4")
def test_no_pod_shares_where_the_operator_says_none(plane: ControlPlane, bench: Bench, tmp_path: Path) -> None:
    """Neither two lines of one map, nor two pods that both want to: the operator's word is the last."""
    command = start_alone(plane, tmp_path, "none-0", GPU_SHARING="none")
    try:
        bench.node("node1")
        for index in (3, 4):
            bench.pod(f"check-{index}", "3=node1:3\n4=node1:3\n", "3", annotations=WILLING)
            if index == 3:
                bench.wait_bound("check-3", "node1", seconds=20)

        assert f"{bench.namespace}/check-3" in bench.wait_message("check-4", "GpuHeld: ")
    finally:
        command.process.stop()


@pytest.mark.promise("wait-3", "fit-8")
def test_fruitless_looks_grow_apart(bench: Bench, scheduler: Command) -> None:
    """Little by little room comes back, never enough: three looks at once, then after one second, two, four."""
    bench.add(node("node1", room={"cpu": "4"}))
    for number in range(24):
        body = foreign(requests={"cpu": "100m"})
        body["metadata"]["name"] = f"small-{number}"
        bench.make(body)
    bench.make(foreign(requests={"cpu": "1"}))
    bench.make(asker(requests={"cpu": "3500m"}))
    bench.wait_message("asker-0", "InsufficientResources: ")
    looked = scheduler.attempts()

    for number in range(24):
        bench.delete(f"small-{number}")
        time.sleep(0.2)

    assert 4 <= scheduler.attempts() - looked <= 8
    bench.delete("foreign-0")
    bench.wait_bound("asker-0", "node1", seconds=10)


@pytest.mark.promise("text-5", "text-2")
def test_a_long_text_keeps_its_word_and_its_cure(bench: Bench, scheduler: Command) -> None:
    """Forty UUIDs do not fit into an event; the text is cut in the middle, and the same everywhere."""
    bench.node("node1")
    devices = ",".join(gpu(number) for number in range(40))
    bench.make(holder(f"0=node1:{devices}\n7=node7:0\n", literal(devices)))
    bench.wait_bound("holder-0", "node1")
    bench.make(asker())

    message = bench.wait_message("asker-0", "GpuHeld: ")

    assert 900 < len(message.encode()) <= 1000
    assert "…; " in message
    assert bench.wait_event("asker-0", "FailedScheduling")["note"] == message
