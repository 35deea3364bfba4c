from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, Phase, WatchedPod, WorkloadStatus
from gpu_scheduler.controller.reconcile_loop import ReconcileError
from gpu_scheduler.controller.workload_reconciler import WorkloadReconciler
from gpu_scheduler.controller.workload_status import CreateFailure
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.refs import PodRef

if TYPE_CHECKING:
    from gpu_scheduler.controller.workload_events import WorkloadEvent

KEY = "default/train"
REFUSED = CreateFailure("RequestInvalid", "RequestInvalid: no")


@dataclass
class Cluster:
    """An API server in memory: it creates pods and stores statuses, can refuse, and sends no watch event by itself."""

    refusals: list[CreateFailure | None] = field(default_factory=list)
    write_failures: int = 0
    tried: list[int] = field(default_factory=list)
    pods: set[int] = field(default_factory=set)
    written: list[WorkloadStatus] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    events: list[WorkloadEvent] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.workloads = WorkloadReconciler(
            self, self, self, self.added.append, clock=lambda: self.now, wall=lambda: datetime(2026, 11, 21, tzinfo=UTC)
        )

    async def make(self, workload: GpuWorkload, number: int) -> CreateFailure | None:
        assert workload.key == KEY
        self.tried.append(number)
        failure = self.refusals.pop(0) if self.refusals else None
        if failure is None:
            self.pods.add(number)
        return failure

    async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
        if self.write_failures:
            self.write_failures -= 1
            return None
        self.written.append(status)
        return replace(workload, version=f"{workload.version}+", status=status)

    async def record(self, workload: GpuWorkload, event: WorkloadEvent) -> None:
        assert workload.key == KEY
        self.events.append(event)

    def show(self, workload: GpuWorkload) -> GpuWorkload:
        self.workloads.workloads.applied(workload)
        return workload

    def show_pod(self, number: int = 0, **others: Any) -> WatchedPod:
        ref = PodRef("default", f"train-{number}", f"pod-{number}")
        shown = WatchedPod(
            Pod(ref, PlacementRequest()), Attempt(**{"ref": ref, "owner": "train", "owner_uid": "uid-1", **others})
        )
        self.workloads.pods.applied(shown)
        return shown

    async def reconcile(self) -> float | None:
        return await self.workloads.reconcile(KEY)


def workload(retries: int = 0, **others: Any) -> GpuWorkload:
    made = GpuWorkload("default", "train", "uid-1", "7", 1, CountRequest(1), retries)
    return replace(made, **others)


def showing(given: GpuWorkload | None = None, **others: Any) -> Cluster:
    cluster = Cluster(**others)
    cluster.show(given or workload())
    return cluster


async def test_a_workload_gets_one_pod_and_a_status_for_each_change() -> None:
    """From its creation to the end of its pod."""
    cluster = showing()
    assert await cluster.reconcile() == 5
    assert (cluster.tried, cluster.written) == ([0], [])

    for shown in ({}, {"node": "node1", "devices": ("0",)}, {"node": "node1", "phase": "Running"}):
        cluster.show_pod(**shown)
        assert await cluster.reconcile() is None
    cluster.show_pod(node="node1", phase="Succeeded")
    await cluster.reconcile()

    assert [status.phase for status in cluster.written] == ["Pending", "Scheduled", "Running", "Succeeded"]
    assert [event.reason for event in cluster.events] == ["SuccessfulCreate", "Scheduled", "Started", "Completed"]
    assert cluster.tried == [0]
    assert set(cluster.added) == {KEY}
    assert [cluster.workloads.in_phase(phase) for phase in Phase] == [0, 0, 0, 1, 0]


@pytest.mark.promise("order-4")
async def test_a_reconcile_without_a_change_does_nothing() -> None:
    """However often it runs."""
    cluster = showing()
    cluster.show_pod()
    for _ in range(3):
        assert await cluster.reconcile() is None

    assert (len(cluster.written), cluster.tried) == (1, [])


async def test_a_pod_that_the_watch_does_not_show_is_created_again_later() -> None:
    """That does no harm: it has the same name."""
    cluster = showing()
    assert await cluster.reconcile() == 5
    cluster.now += 1
    assert await cluster.reconcile() == 4
    assert cluster.tried == [0]
    cluster.now += 5
    await cluster.reconcile()

    assert cluster.tried == [0, 0]


@pytest.mark.promise("order-6")
async def test_a_refusal_is_reported_and_backs_off() -> None:
    """A change that is no remedy does not end the back-off."""
    cluster = showing(refusals=[REFUSED] * 9)
    pauses = []
    for _ in range(9):
        pause = await cluster.reconcile()
        assert pause is not None
        pauses.append(pause)
        cluster.show(replace(workload(), status=cluster.written[-1]))
        assert await cluster.reconcile() == pause
        cluster.now += pause

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(cluster.tried) == 9
    assert [(status.phase, status.reason, status.message) for status in cluster.written] == [
        ("Pending", "RequestInvalid", "RequestInvalid: no")
    ]
    assert await cluster.reconcile() == 5
    assert cluster.pods == {0}


async def test_a_corrected_workload_is_tried_at_once() -> None:
    """Another generation ends the back-off, and so does another workload of the same name."""
    cluster = showing(refusals=[REFUSED] * 3)
    await cluster.reconcile()
    cluster.show(workload(generation=2))
    await cluster.reconcile()
    cluster.show(workload(generation=2, uid="uid-2"))
    await cluster.reconcile()

    assert len(cluster.tried) == 3


async def test_a_name_that_becomes_free_is_tried_at_once() -> None:
    """The pod of an earlier workload had the name."""
    cluster = Cluster(refusals=[CreateFailure("", "still going")])
    earlier = cluster.show_pod(owner_uid="uid-0")
    cluster.show(workload())
    assert await cluster.reconcile() == 1
    assert cluster.written[-1].message == "still going"
    cluster.workloads.pods.forgotten(earlier)

    assert await cluster.reconcile() == 5
    assert cluster.pods == {0}


@pytest.mark.promise("order-5")
async def test_a_failed_pod_is_retried_up_to_its_limit() -> None:
    """Each retry follows a pause that doubles. The last failure is the workload's failure."""
    cluster = showing(workload(retries=2))
    await cluster.reconcile()
    pauses = []
    for number in range(3):
        cluster.show_pod(number, node="node1", phase="Failed", fault="Error")
        pauses.append(await cluster.reconcile())
        cluster.now += pauses[-1] or 0
        await cluster.reconcile()

    assert pauses == [1, 2, None]
    assert cluster.tried == [0, 1, 2]
    assert [(status.phase, status.attempts) for status in cluster.written] == [
        ("Pending", 1),
        ("Pending", 2),
        ("Failed", 3),
    ]


async def test_a_deleted_pod_is_created_again() -> None:
    """A drain is no failure of the workload and uses no retry."""
    cluster = showing(workload(retries=1))
    shown = cluster.show_pod(node="node1", phase="Running")
    await cluster.reconcile()
    cluster.show(workload(retries=1, status=cluster.written[-1]))
    cluster.workloads.pods.forgotten(shown)
    await cluster.reconcile()

    assert cluster.tried == [0]


async def test_a_pod_without_its_owner_reference_leaves_the_workload() -> None:
    """A client may edit owner references. Nothing of the pod is kept when it is deleted."""
    cluster = showing(refusals=[REFUSED])
    shown = cluster.show_pod(node="node1", phase="Running")
    await cluster.reconcile()
    cluster.workloads.pods.applied(replace(shown, attempt=None))
    await cluster.reconcile()
    assert [status.phase for status in cluster.written] == ["Running", "Pending"]

    cluster.show_pod()
    cluster.show_pod(owner="other")
    assert cluster.added[-2:] == [KEY, "default/other"]
    cluster.workloads.pods.forgotten(shown)
    cluster.workloads.pods.forgotten(shown)
    assert (cluster.workloads._attempts, cluster.workloads._owners) == ({}, {})


@pytest.mark.promise("order-7")
async def test_a_deleted_workload_gets_no_pod() -> None:
    """While it terminates and when it is gone: the garbage collector deletes its pods."""
    cluster = Cluster()
    going = cluster.show(workload(deleting=True))
    assert await cluster.reconcile() is None
    cluster.workloads.workloads.forgotten(going)
    assert await cluster.reconcile() is None
    cluster.workloads.pods.forgotten(cluster.show_pod())
    assert await cluster.reconcile() is None

    assert (cluster.tried, cluster.written) == ([], [])


async def test_a_status_that_cannot_be_written_is_written_later() -> None:
    """The reconcile fails, and the next one finds the same difference."""
    cluster = showing(write_failures=1)
    cluster.show_pod()
    with pytest.raises(ReconcileError):
        await cluster.reconcile()
    await cluster.reconcile()

    assert len(cluster.written) == 1


async def test_a_watch_event_during_a_write_is_kept() -> None:
    """The response to the write is older than the watch event."""

    class Busy(Cluster):
        async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
            self.show(replace(workload, retries=5))
            return await super().write(workload, status)

    cluster = Busy()
    cluster.show(workload())
    cluster.show_pod(phase="Running", node="node1")
    await cluster.reconcile()

    assert cluster.workloads._known[KEY].retries == 5
