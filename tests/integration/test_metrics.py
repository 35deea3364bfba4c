"""What a scheduler's metrics say while pods wait, are bound and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.objects import device, inventory, literal, pod
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace


def waiting(scheduler: Command, reason: str) -> float:
    """Return how many pods wait for this reason."""
    return scheduler.metric(f'gpu_scheduler_pending_pods{{reason="{reason}"}}')


@pytest.mark.promise("text-15", "text-9")
def test_metrics_say_why_pods_wait_and_which_gpus_are_left(namespace: Namespace, scheduler: Command) -> None:
    """By the words of the messages. A pod that is bound or gone waits no more."""
    namespace.node("node1", annotations=inventory(device(0), device(1), device(2)))
    namespace.make(pod("holder-0", "0=node1:0", literal("0"), owner=("StatefulSet", "holder")))
    namespace.placed("holder-0")
    tried = scheduler.metric('gpu_scheduler_attempts_total{reason="GpuHeld"}')
    kind = 'gpu_scheduler_creation_to_bind_seconds_count{kind="other"}'
    namespace.make(pod("late-0", "0=node1:0,1", literal("0,1"), owner=("Invented", "late")))
    namespace.make(pod("lost-0", "0=node7:0", literal("0"), owner=("Job", "lost")))
    namespace.wait_message("late-0", "GpuHeld: ")
    namespace.wait_message("lost-0", "NodeNotFound: ")

    assert [waiting(scheduler, reason) for reason in ("GpuHeld", "NodeNotFound", "PortInUse")] == [1, 1, 0]
    assert scheduler.metric('gpu_scheduler_attempts_total{reason="GpuHeld"}') > tried
    assert 0 < scheduler.metric("gpu_scheduler_longest_wait_seconds") < 60
    states = ("held", "cordoned", "unhealthy", "unavailable", "free")
    found = [scheduler.metric(f'gpu_scheduler_node_gpus{{node="node1",state="{state}"}}') for state in states]
    assert found == [1, 0, 0, 0, 2]

    bound = scheduler.metric('gpu_scheduler_binds_total{strategy="map"}')
    namespace.delete("holder-0")
    namespace.placed("late-0")
    eventually("it is counted", lambda: scheduler.metric('gpu_scheduler_binds_total{strategy="map"}') == bound + 1)
    assert scheduler.metric(kind) == 1
    assert waiting(scheduler, "GpuHeld") == 0
    namespace.delete("lost-0")
    eventually("no pod waits", lambda: not waiting(scheduler, "NodeNotFound"))
    assert scheduler.metric("gpu_scheduler_longest_wait_seconds") == 0
