"""The setting GPU_SHARING, the back-off of waiting pods, and long messages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.barrier import settle
from tests.integration.command import start_alone
from tests.integration.feasibility_case import asker, foreign, holder
from tests.objects import gpu, literal, node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace

BACK_OFFS = (1, 2, 4, 8, *(10,) * 60)
WILLING = {"agentaflow.gpu/sharing": "any"}


@pytest.mark.promise("share-3")
def test_every_pod_shares_where_the_operator_says_any(
    plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    """Pods of different workloads share a device without an annotation."""
    command = start_alone(plane, tmp_path, "any-0", GPU_SHARING="any")
    try:
        namespace.node("node1")
        namespace.make(holder())
        namespace.make(asker())

        namespace.wait_bound("holder-0", "node1", seconds=20)
        namespace.wait_bound("asker-0", "node1")

        assert command.metric("gpu_scheduler_conflicts") == 0
    finally:
        command.process.stop()


@pytest.mark.promise("share-4")
def test_no_pod_shares_where_the_operator_says_none(plane: ControlPlane, namespace: Namespace, tmp_path: Path) -> None:
    """The setting overrides two lines of one map and the annotations of both pods."""
    command = start_alone(plane, tmp_path, "none-0", GPU_SHARING="none")
    try:
        namespace.node("node1")
        for index in (3, 4):
            namespace.pod(f"check-{index}", "3=node1:3\n4=node1:3\n", "3", annotations=WILLING)
            if index == 3:
                namespace.wait_bound("check-3", "node1", seconds=20)

        assert f"{namespace.name}/check-3" in namespace.wait_message("check-4", "GpuHeld: ")
    finally:
        command.process.stop()


@pytest.mark.promise("wait-3", "fit-8")
def test_the_back_off_of_a_waiting_pod_grows(namespace: Namespace, scheduler: Command) -> None:
    """CPU is freed in small steps and is never enough: three attempts at once, then after 1, 2, 4, 8 and 10 s."""
    namespace.add(node("node1", room={"cpu": "4"}))
    for number in range(24):
        body = foreign(requests={"cpu": "100m"})
        body["metadata"]["name"] = f"small-{number}"
        namespace.make(body)
    namespace.make(foreign(requests={"cpu": "1"}))
    namespace.make(asker(requests={"cpu": "3500m"}))
    namespace.wait_message("asker-0", "InsufficientResources: ")
    settle(namespace, scheduler)
    began, attempts_before = time.monotonic(), scheduler.attempts()

    for number in range(24):
        namespace.delete(f"small-{number}")
        settle(namespace, scheduler)

    assert 3 <= scheduler.attempts() - attempts_before <= 4 + _ended(time.monotonic() - began)
    namespace.delete("foreign-0")
    namespace.wait_bound("asker-0", "node1", seconds=30)


def _ended(seconds: float) -> int:
    """Return how many back-offs end in this time, one after the other."""
    return sum(sum(BACK_OFFS[:number]) <= seconds for number in range(1, len(BACK_OFFS) + 1))


@pytest.mark.promise("text-5", "text-2")
def test_a_long_message_keeps_its_reason_and_its_remedy(namespace: Namespace, scheduler: Command) -> None:
    """Forty UUIDs do not fit into an event. The message is cut in the middle, equally in condition and event."""
    namespace.node("node1")
    devices = ",".join(gpu(number) for number in range(40))
    namespace.make(holder(f"0=node1:{devices}\n7=node7:0\n", literal(devices)))
    namespace.wait_bound("holder-0", "node1")
    namespace.make(asker())

    message = namespace.wait_message("asker-0", "GpuHeld: ")

    assert 900 < len(message.encode()) <= 1000
    assert "…; " in message
    assert namespace.wait_event("asker-0", "FailedScheduling")["note"] == message
