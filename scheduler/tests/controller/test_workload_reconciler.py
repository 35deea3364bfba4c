from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, Phase, WatchedPod, WorkloadStatus
from gpu_scheduler.controller.reconcile_loop import ReconcileError
from gpu_scheduler.controller.workload_reconciler import WorkloadReconciler
from gpu_scheduler.controller.workload_status import CreateFailure
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.refs import PodRef

KEY = "default/train"
REFUSED = CreateFailure("RequestInvalid", "RequestInvalid: no")


@dataclass
class Cluster:
    """An API server in memory: it makes pods and keeps statuses, can refuse, and shows nothing by itself."""

    refusals: list[CreateFailure | None] = field(default_factory=list)
    deaf: int = 0
    tried: list[int] = field(default_factory=list)
    pods: set[int] = field(default_factory=set)
    told: list[WorkloadStatus] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.workloads = WorkloadReconciler(
            self, self, self.added.append, clock=lambda: self.now, wall=lambda: datetime(2026, 11, 21, tzinfo=UTC)
        )

    async def make(self, workload: GpuWorkload, number: int) -> CreateFailure | None:
        """See PodMaker."""
        assert workload.key == KEY
        self.tried.append(number)
        trouble = self.refusals.pop(0) if self.refusals else None
        if trouble is None:
            self.pods.add(number)
        return trouble

    async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
        """See WorkloadWriter."""
        if self.deaf:
            self.deaf -= 1
            return None
        self.told.append(status)
        return replace(workload, version=f"{workload.version}+", status=status)

    def show(self, workload: GpuWorkload) -> GpuWorkload:
        """Let the watch show a workload."""
        self.workloads.workloads.applied(workload)
        return workload

    def show_pod(self, number: int = 0, **others: Any) -> WatchedPod:
        """Let the watch show a pod."""
        ref = PodRef("default", f"train-{number}", f"pod-{number}")
        shown = WatchedPod(
            Pod(ref, PlacementRequest()), Attempt(**{"ref": ref, "owner": "train", "owner_uid": "uid-1", **others})
        )
        self.workloads.pods.applied(shown)
        return shown

    async def look(self) -> float | None:
        """Look at the workload."""
        return await self.workloads.reconcile(KEY)


def workload(retries: int = 0, **others: Any) -> GpuWorkload:
    """A new workload."""
    made = GpuWorkload("default", "train", "uid-1", "7", 1, CountRequest(1), retries)
    return replace(made, **others)


async def test_a_workload_gets_one_pod_and_is_told_what_became_of_it() -> None:
    """From nothing to the end: one pod, and a word for each change."""
    cluster = Cluster()
    cluster.show(workload())
    assert await cluster.look() == 5
    assert (cluster.tried, cluster.told) == ([0], [])

    for shown in ({}, {"node": "node1", "devices": ("0",)}, {"node": "node1", "phase": "Running"}):
        cluster.show_pod(**shown)
        assert await cluster.look() is None
    cluster.show_pod(node="node1", phase="Succeeded")
    await cluster.look()

    assert [status.phase for status in cluster.told] == ["Pending", "Scheduled", "Running", "Succeeded"]
    assert cluster.tried == [0]
    assert set(cluster.added) == {KEY}
    assert [cluster.workloads.in_phase(phase) for phase in Phase] == [0, 0, 0, 1, 0]


async def test_a_look_at_what_has_not_changed_does_nothing() -> None:
    """However often."""
    cluster = Cluster()
    cluster.show(workload())
    cluster.show_pod()
    for _ in range(3):
        assert await cluster.look() is None

    assert (len(cluster.told), cluster.tried) == (1, [])


async def test_a_pod_that_the_watch_does_not_show_is_asked_for_again_later() -> None:
    """That does no harm: it has the same name."""
    cluster = Cluster()
    cluster.show(workload())
    assert await cluster.look() == 5
    cluster.now += 1
    assert await cluster.look() == 4
    assert cluster.tried == [0]
    cluster.now += 5
    await cluster.look()

    assert cluster.tried == [0, 0]


async def test_a_refusal_is_told_and_tried_again_later_and_later() -> None:
    """A change that is no cure does not hurry it."""
    cluster = Cluster(refusals=[REFUSED] * 9)
    cluster.show(workload())
    rests = []
    for _ in range(9):
        rest = await cluster.look()
        assert rest is not None
        rests.append(rest)
        cluster.show(replace(workload(), status=cluster.told[-1]))
        assert await cluster.look() == rest
        cluster.now += rest

    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(cluster.tried) == 9
    assert [(status.phase, status.reason, status.message) for status in cluster.told] == [
        ("Pending", "RequestInvalid", "RequestInvalid: no")
    ]
    assert await cluster.look() == 5
    assert cluster.pods == {0}


async def test_a_corrected_workload_is_tried_at_once() -> None:
    """Another generation is another try; so is another workload of the same name."""
    cluster = Cluster(refusals=[REFUSED] * 3)
    cluster.show(workload())
    await cluster.look()
    cluster.show(workload(generation=2))
    await cluster.look()
    cluster.show(workload(generation=2, uid="uid-2"))
    await cluster.look()

    assert len(cluster.tried) == 3


async def test_a_name_that_becomes_free_is_tried_at_once() -> None:
    """The pod of an earlier workload of this name was in the way."""
    cluster = Cluster(refusals=[CreateFailure("", "still going")])
    earlier = cluster.show_pod(owner_uid="uid-0")
    cluster.show(workload())
    assert await cluster.look() == 1
    assert cluster.told[-1].message == "still going"
    cluster.workloads.pods.forgotten(earlier)

    assert await cluster.look() == 5
    assert cluster.pods == {0}


async def test_a_failed_pod_is_followed_by_as_many_as_are_allowed() -> None:
    """Each after a pause that doubles; the last failure is the workload's."""
    cluster = Cluster()
    cluster.show(workload(retries=2))
    await cluster.look()
    rests = []
    for number in range(3):
        cluster.show_pod(number, node="node1", phase="Failed", fault="Error")
        rests.append(await cluster.look())
        cluster.now += rests[-1] or 0
        await cluster.look()

    assert rests == [1, 2, None]
    assert cluster.tried == [0, 1, 2]
    assert [(status.phase, status.attempts) for status in cluster.told] == [
        ("Pending", 1),
        ("Pending", 2),
        ("Failed", 3),
    ]


async def test_a_pod_that_is_deleted_is_made_again() -> None:
    """A drain is not the workload's failure, and takes no try away."""
    cluster = Cluster()
    cluster.show(workload(retries=1))
    shown = cluster.show_pod(node="node1", phase="Running")
    await cluster.look()
    cluster.show(workload(retries=1, status=cluster.told[-1]))
    cluster.workloads.pods.forgotten(shown)
    await cluster.look()

    assert cluster.tried == [0]


async def test_a_pod_that_was_taken_away_from_its_workload_is_no_longer_its_own() -> None:
    """By somebody who edits owner references; and nothing of it is remembered when it goes."""
    cluster = Cluster(refusals=[REFUSED])
    cluster.show(workload())
    shown = cluster.show_pod(node="node1", phase="Running")
    await cluster.look()
    cluster.workloads.pods.applied(replace(shown, attempt=None))
    await cluster.look()
    assert [status.phase for status in cluster.told] == ["Running", "Pending"]

    cluster.show_pod()
    cluster.show_pod(owner="other")
    assert cluster.added[-2:] == [KEY, "default/other"]
    cluster.workloads.pods.forgotten(shown)
    cluster.workloads.pods.forgotten(shown)
    assert (cluster.workloads._attempts, cluster.workloads._made_for) == ({}, {})


async def test_a_workload_that_goes_gets_nothing_more() -> None:
    """Being deleted or gone: its pods are the garbage collector's business."""
    cluster = Cluster()
    going = cluster.show(workload(deleting=True))
    assert await cluster.look() is None
    cluster.workloads.workloads.forgotten(going)
    assert await cluster.look() is None
    cluster.workloads.pods.forgotten(cluster.show_pod())
    assert await cluster.look() is None

    assert (cluster.tried, cluster.told) == ([], [])


async def test_a_status_that_cannot_be_written_is_written_later() -> None:
    """The look counts as failed; the next one finds the same difference."""
    cluster = Cluster(deaf=1)
    cluster.show(workload())
    cluster.show_pod()
    with pytest.raises(ReconcileError):
        await cluster.look()
    await cluster.look()

    assert len(cluster.told) == 1


async def test_a_newer_view_that_came_during_a_write_stands() -> None:
    """What the answer shows is older than what the watch has shown meanwhile."""

    class Busy(Cluster):
        async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
            self.show(replace(workload, retries=5))
            return await super().write(workload, status)

    cluster = Busy()
    cluster.show(workload())
    cluster.show_pod(phase="Running", node="node1")
    await cluster.look()

    assert cluster.workloads._known[KEY].retries == 5
