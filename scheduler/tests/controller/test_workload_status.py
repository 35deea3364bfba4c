from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, Phase, StatusCondition, WorkloadStatus
from gpu_scheduler.controller.workload_status import CreateFailure, reconcile_status
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.pod import ScheduledCondition as Scheduling
from gpu_scheduler.core.refs import PodRef

NOW, EARLIER = "2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z"
HELD = "GpuHeld: GPU 3 of node4 is held by default/train-0; wait"


def workload(retries: int = 0, **others: Any) -> GpuWorkload:
    """A workload that nobody has told anything of."""
    made = GpuWorkload("default", "train", "uid-1", "7", 1, CountRequest(1), retries)
    return replace(made, **others)


def attempt(number: int = 0, /, **others: Any) -> Attempt:
    """A pod that was made for it."""
    return Attempt(**{"ref": PodRef("default", f"train-{number}", f"pod-{number}"), **OWNER, **others})


OWNER = {"owner": "train", "owner_uid": "uid-1"}
PLACED: dict[str, Any] = {"node": "node1", "devices": ("0", "1"), "uuids": ("GPU-a", "GPU-b")}
FAILED: dict[str, Any] = {
    **PLACED,
    "phase": "Failed",
    "fault": "Error",
    "details": "container main ended with exit code 3",
}
FAULT = "Error: container main ended with exit code 3; see kubectl logs -n default train-0"
QUOTA = CreateFailure("InsufficientResources", "InsufficientResources: cannot make pod default/train-0: exceeded quota")

# What is there → phase, reason, message, and the pod that is missing.
ROWS: dict[str, tuple[GpuWorkload, tuple[Attempt, ...], CreateFailure | None, tuple[Phase, str, str, int | None]]] = {
    "a new one has no pod": (workload(), (), None, (Phase.PENDING, "", "", 0)),
    "its pod is refused": (workload(), (), QUOTA, (Phase.PENDING, QUOTA.reason, QUOTA.message, 0)),
    "nobody has looked at its pod": (workload(), (attempt(),), None, (Phase.PENDING, "", "", None)),
    "its pod waits, and the closed list has the word": (
        workload(),
        (attempt(scheduling=Scheduling("False", "Unschedulable", HELD)),),
        None,
        (Phase.PENDING, "GpuHeld", HELD, None),
    ),
    "its pod waits by another word": (
        workload(),
        (attempt(scheduling=Scheduling("False", "SchedulingGated", "Scheduling is blocked")),),
        None,
        (Phase.PENDING, "SchedulingGated", "Scheduling is blocked", None),
    ),
    "its pod is said to be scheduled before its node shows": (
        workload(),
        (attempt(scheduling=Scheduling("True", "", "")),),
        None,
        (Phase.PENDING, "", "", None),
    ),
    "its pod is bound": (workload(), (attempt(**PLACED),), None, (Phase.SCHEDULED, "", "", None)),
    "its pod runs": (workload(), (attempt(**PLACED, phase="Running"),), None, (Phase.RUNNING, "", "", None)),
    "its pod has done its work": (
        workload(retries=1),
        (attempt(**PLACED, phase="Succeeded"),),
        None,
        (Phase.SUCCEEDED, "", "", None),
    ),
    "its pod failed, and that was it": (workload(), (attempt(**FAILED),), None, (Phase.FAILED, "Error", FAULT, None)),
    "its pod failed without a word": (
        workload(),
        (attempt(phase="Failed"),),
        None,
        (
            Phase.FAILED,
            "Failed",
            "Failed: the pod failed and left no word; see kubectl logs -n default train-0",
            None,
        ),
    ),
    "its pod failed, and there are more tries": (
        workload(retries=2),
        (attempt(**FAILED),),
        None,
        (Phase.PENDING, "Error", f"{FAULT}; 2 more tries allowed", 1),
    ),
    "its pod failed, and there is one more try, which is refused": (
        workload(retries=1),
        (attempt(**FAILED),),
        QUOTA,
        (Phase.PENDING, QUOTA.reason, QUOTA.message, 1),
    ),
    "its second pod runs": (
        workload(retries=2),
        (attempt(**FAILED), attempt(1, **PLACED, phase="Running")),
        None,
        (Phase.RUNNING, "", "", None),
    ),
    "its last pod failed too": (
        workload(retries=1),
        (attempt(**FAILED), attempt(1, **FAILED)),
        None,
        (Phase.FAILED, "Error", FAULT.replace("train-0", "train-1"), None),
    ),
    "its pod was deleted under its hands": (
        workload(status=WorkloadStatus(Phase.RUNNING, "node1", ("0",), pod="train-0", attempts=1)),
        (),
        None,
        (Phase.PENDING, "", "", 0),
    ),
    "its second pod was deleted, and the first has gone long ago": (
        workload(retries=3, status=WorkloadStatus(Phase.RUNNING, "node1", ("0",), pod="train-1", attempts=2)),
        (),
        None,
        (Phase.PENDING, "", "", 1),
    ),
    "it was done, and its pod was cleaned away": (
        workload(status=WorkloadStatus(Phase.SUCCEEDED, "node1", ("0",), pod="train-0", attempts=1)),
        (),
        None,
        (Phase.SUCCEEDED, "", "", None),
    ),
    "it had failed for good, and is allowed another try": (
        workload(retries=1, generation=2, status=WorkloadStatus(Phase.FAILED, attempts=1, reason="Error")),
        (attempt(**FAILED),),
        None,
        (Phase.PENDING, "Error", f"{FAULT}; 1 more try allowed", 1),
    ),
    "a pod of one before it that had its name is not its own": (
        workload(),
        (attempt(owner_uid="uid-0", **PLACED, phase="Running"),),
        None,
        (Phase.PENDING, "", "", 0),
    ),
    "a pod that somebody else gave it is not its own": (
        workload(),
        (attempt(ref=PodRef("default", "other", "pod-x")), attempt(ref=PodRef("default", "x-5", "pod-y"))),
        None,
        (Phase.PENDING, "", "", 0),
    ),
}


@pytest.mark.parametrize(("given", "attempts", "trouble", "found"), ROWS.values(), ids=ROWS)
def test_what_is_the_case(
    given: GpuWorkload,
    attempts: tuple[Attempt, ...],
    trouble: CreateFailure | None,
    found: tuple[Phase, str, str, int | None],
) -> None:
    """Phase, reason, message and the missing pod follow from what is there."""
    verdict = reconcile_status(given, attempts, trouble, NOW)

    told = verdict.status
    assert (told.phase, told.reason, told.message, verdict.missing) == found
    assert told.observed_generation == given.generation


def test_a_verdict_that_was_written_down_is_reached_again() -> None:
    """What is judged anew from what was told of it is the same: nothing is written twice."""
    for given, attempts, trouble, _ in ROWS.values():
        told = reconcile_status(given, attempts, trouble, EARLIER).status
        again = reconcile_status(replace(given, status=told), attempts, trouble, NOW)

        assert again.status == told


def test_where_it_is_and_since_when() -> None:
    """Node, devices and UUIDs as the Binding gave them; begin and end as the kubelet tells."""
    running = reconcile_status(workload(), [attempt(**PLACED, phase="Running", started_at=EARLIER)], None, NOW).status

    assert (running.node, running.devices, running.uuids) == ("node1", ("0", "1"), ("GPU-a", "GPU-b"))
    assert (running.pod, running.attempts, running.started_at, running.completed_at) == ("train-0", 1, EARLIER, "")

    over = attempt(**PLACED, phase="Succeeded", started_at=EARLIER, finished_at="2026-11-21T11:30:00Z")
    assert reconcile_status(workload(status=running), [over], None, NOW).status.completed_at == "2026-11-21T11:30:00Z"


def test_an_end_that_nobody_dates_is_dated_once() -> None:
    """An evicted pod's containers may have no end of their own: the first look at it counts."""
    told = reconcile_status(workload(), [attempt(**FAILED)], None, EARLIER).status
    again = reconcile_status(workload(status=told), [attempt(**FAILED)], None, NOW).status

    assert told.completed_at == again.completed_at == EARLIER


def test_a_workload_that_waits_again_has_no_place() -> None:
    """Between two tries nothing of the failed pod's place is left, but its name."""
    told = reconcile_status(workload(retries=1), [attempt(**FAILED)], None, NOW).status

    assert (told.node, told.devices, told.uuids, told.pod, told.attempts) == ("", (), (), "train-0", 1)


CONDITIONS = {
    "it waits for somebody to look at it": (
        (),
        ("False", "Waiting", "its pod has not been looked at yet"),
        ("False", "Pending", ""),
    ),
    "it waits for a GPU": (
        (attempt(scheduling=Scheduling("False", "Unschedulable", HELD)),),
        ("False", "GpuHeld", HELD),
        ("False", "Pending", ""),
    ),
    "it runs": (
        (attempt(**PLACED, phase="Running"),),
        ("True", "Scheduled", "pod train-0 has GPU 0,1 of node1"),
        ("False", "Running", ""),
    ),
    "it runs without any GPU": (
        (attempt(node="node1", phase="Running"),),
        ("True", "Scheduled", "pod train-0 has no GPU of node1"),
        ("False", "Running", ""),
    ),
    "it failed": (
        (attempt(**FAILED),),
        ("True", "Scheduled", "pod train-0 has GPU 0,1 of node1"),
        ("True", "Failed", FAULT),
    ),
}


@pytest.mark.parametrize(("attempts", "scheduled", "completed"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions(
    attempts: tuple[Attempt, ...], scheduled: tuple[str, str, str], completed: tuple[str, str, str]
) -> None:
    """That it has its place, and that it is over; both of the generation that was looked at."""
    told = reconcile_status(workload(generation=4), attempts, None, NOW).status

    assert told.conditions == (
        StatusCondition("Scheduled", *scheduled, 4, NOW),
        StatusCondition("Completed", *completed, 4, NOW),
    )


def test_a_condition_keeps_its_time_while_its_status_stands() -> None:
    """Another reason is no other status."""
    before = reconcile_status(workload(), (), None, EARLIER).status
    waiting = attempt(scheduling=Scheduling("False", "Unschedulable", HELD))
    after = reconcile_status(workload(status=before), [waiting], None, NOW).status

    assert [(each.reason, each.since) for each in after.conditions] == [("GpuHeld", EARLIER), ("Pending", EARLIER)]
    placed = reconcile_status(workload(status=after), [attempt(**PLACED)], None, NOW).status
    assert [each.since for each in placed.conditions] == [NOW, EARLIER]
