from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from gpu_scheduler.controller.gpu_workload import Attempt, GpuWorkload, Phase, StatusCondition, WorkloadStatus
from gpu_scheduler.controller.translation import read_workload, status_object
from gpu_scheduler.controller.workload_status import CreateFailure, reconcile_status, refused
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.pod import ScheduledCondition as Scheduling
from gpu_scheduler.core.refs import PodRef
from tests.messages import text_of

NOW, EARLIER = "2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z"
HELD = "GpuHeld: GPU 3 of node4 is held by default/train-0; wait"


def workload(retries: int = 0, **others: Any) -> GpuWorkload:
    made = GpuWorkload("default", "train", "uid-1", "7", 1, CountRequest(1), retries)
    return replace(made, **others)


def attempt(number: int = 0, /, **others: Any) -> Attempt:
    return Attempt(**{"ref": PodRef("default", f"train-{number}", f"pod-{number}"), **OWNER, **others})


OWNER = {"owner": "train", "owner_uid": "uid-1"}
PLACED: dict[str, Any] = {"node": "node1", "devices": ("0", "1"), "uuids": ("GPU-a", "GPU-b")}
FAILED: dict[str, Any] = {
    **PLACED,
    "phase": "Failed",
    "fault": "Error",
    "details": "exit code 3",
}
FAULT = "Error: exit code 3; see kubectl logs -n default train-0"
QUOTA = CreateFailure("InsufficientResources", "InsufficientResources: cannot make pod default/train-0: exceeded quota")

Row = tuple[GpuWorkload, tuple[Attempt, ...], CreateFailure | None, tuple[Phase, str, str, int | None]]


def row(
    *attempts: Attempt,
    of: GpuWorkload | None = None,
    refusal: CreateFailure | None = None,
    gives: tuple[Phase, str, str] | Phase,
    missing: int | None = None,
) -> Row:
    """Return workload, pods, failed creation, and then phase, reason, message and the number of the missing pod."""
    phase, reason, message = (gives, "", "") if isinstance(gives, Phase) else gives
    return of or workload(), attempts, refusal, (phase, reason, message, missing)


def waiting(status: str, reason: str, message: str) -> Attempt:
    return attempt(scheduling=Scheduling(status, reason, message))


RAN = WorkloadStatus(Phase.RUNNING, "node1", ("0",), pod="train-0", attempts=1)
ESCAPED = refused("default/train-0", 403, "no\\n\\x1b[2J").message
ROWS: dict[str, Row] = {
    "a new one has no pod": row(gives=Phase.PENDING, missing=0),
    "its pod is refused": row(refusal=QUOTA, gives=(Phase.PENDING, QUOTA.reason, QUOTA.message), missing=0),
    "its pod has no condition yet": row(attempt(), gives=Phase.PENDING),
    "its pod waits for a reason of the closed list": row(
        waiting("False", "Unschedulable", HELD), gives=(Phase.PENDING, "GpuHeld", HELD)
    ),
    "its pod waits for another reason": row(
        waiting("False", "SchedulingGated", "It is blocked"), gives=(Phase.PENDING, "SchedulingGated", "It is blocked")
    ),
    "its pod is reported as scheduled before it has a node": row(waiting("True", "", ""), gives=Phase.PENDING),
    "its pod is bound": row(attempt(**PLACED), gives=Phase.SCHEDULED),
    "its pod runs": row(attempt(**PLACED, phase="Running"), gives=Phase.RUNNING),
    "its pod succeeded": row(attempt(**PLACED, phase="Succeeded"), of=workload(retries=1), gives=Phase.SUCCEEDED),
    "its pod failed without retries": row(attempt(**FAILED), gives=(Phase.FAILED, "Error", FAULT)),
    "its pod failed without a reason": row(
        attempt(phase="Failed"),
        gives=(
            Phase.FAILED,
            "Failed",
            f"Failed: {text_of('a pod failed without a reason')}; see kubectl logs -n default train-0",
        ),
    ),
    "its pod failed, and retries are left": row(
        attempt(**FAILED),
        of=workload(retries=2),
        gives=(Phase.PENDING, "Error", f"{FAULT}; 2 more tries allowed"),
        missing=1,
    ),
    "its pod failed, and its last retry is refused": row(
        attempt(**FAILED),
        of=workload(retries=1),
        refusal=QUOTA,
        gives=(Phase.PENDING, QUOTA.reason, QUOTA.message),
        missing=1,
    ),
    "its failed pod left escape codes and line breaks": row(
        attempt(phase="Failed", fault="Er\x1br", details="\x1b[2Jdone\n0 \u202e"),
        gives=(Phase.FAILED, "Er\\x1br", "Er\\x1br: \\x1b[2Jdone\\n0 \\u202e; see kubectl logs -n default train-0"),
    ),
    "its pod's condition has escape codes": row(
        waiting("False", "Odd\n", f"\x9b2J{'x' * 995}\n"), gives=(Phase.PENDING, "Odd\\n", f"\\x9b2J{'x' * 995}")
    ),
    "its pod is refused with escape codes": row(
        refusal=refused("default/train-0", 403, "no\n\x1b[2J"),
        gives=(Phase.PENDING, "RequestInvalid", ESCAPED),
        missing=0,
    ),
    "its second pod runs": row(
        attempt(**FAILED), attempt(1, **PLACED, phase="Running"), of=workload(retries=2), gives=Phase.RUNNING
    ),
    "its last pod failed too": row(
        attempt(**FAILED),
        attempt(1, **FAILED),
        of=workload(retries=1),
        gives=(Phase.FAILED, "Error", FAULT.replace("train-0", "train-1")),
    ),
    "its running pod was deleted": row(of=workload(status=RAN), gives=Phase.PENDING, missing=0),
    "its second pod was deleted after the first": row(
        of=workload(retries=3, status=replace(RAN, pod="train-1", attempts=2)), gives=Phase.PENDING, missing=1
    ),
    "it succeeded, and its pod was deleted": row(
        of=workload(status=replace(RAN, phase=Phase.SUCCEEDED)), gives=Phase.SUCCEEDED
    ),
    "it had failed, and its retry limit was raised": row(
        attempt(**FAILED),
        of=workload(retries=1, generation=2, status=WorkloadStatus(Phase.FAILED, attempts=1, reason="Error")),
        gives=(Phase.PENDING, "Error", f"{FAULT}; 1 more try allowed"),
        missing=1,
    ),
    "a pod of an earlier workload of its name is not its own": row(
        attempt(owner_uid="uid-0", **PLACED, phase="Running"), gives=Phase.PENDING, missing=0
    ),
    "a pod that the controller did not create is not its own": row(
        attempt(ref=PodRef("default", "other", "pod-x")),
        attempt(ref=PodRef("default", "x-5", "pod-y")),
        gives=Phase.PENDING,
        missing=0,
    ),
}


@pytest.mark.parametrize(("given", "attempts", "failure", "found"), ROWS.values(), ids=ROWS)
def test_the_status_follows_from_the_pods(
    given: GpuWorkload,
    attempts: tuple[Attempt, ...],
    failure: CreateFailure | None,
    found: tuple[Phase, str, str, int | None],
) -> None:
    """Phase, reason, message and the missing pod."""
    verdict = reconcile_status(given, attempts, failure, NOW)

    status = verdict.status
    assert (status.phase, status.reason, status.message, verdict.missing) == found
    assert status.observed_generation == given.generation


def test_a_written_status_does_not_change() -> None:
    """A reconcile with the written status gives the same status: nothing is written twice."""
    for given, attempts, failure, _ in ROWS.values():
        status = reconcile_status(given, attempts, failure, EARLIER).status
        again = reconcile_status(replace(given, status=status), attempts, failure, NOW)

        assert again.status == status


def test_the_status_has_place_and_times() -> None:
    """Node, devices and UUIDs come from the Binding, start and end from the kubelet."""
    running = reconcile_status(workload(), [attempt(**PLACED, phase="Running", started_at=EARLIER)], None, NOW).status

    assert (running.node, running.devices, running.uuids) == ("node1", ("0", "1"), ("GPU-a", "GPU-b"))
    assert (running.pod, running.attempts, running.started_at, running.completed_at) == ("train-0", 1, EARLIER, "")

    over = attempt(**PLACED, phase="Succeeded", started_at=EARLIER, finished_at="2026-11-21T11:30:00Z")
    assert reconcile_status(workload(status=running), [over], None, NOW).status.completed_at == "2026-11-21T11:30:00Z"


def test_an_end_without_a_time_is_dated_once() -> None:
    """Containers of an evicted pod may have no end time: the time of the first reconcile counts."""
    status = reconcile_status(workload(), [attempt(**FAILED)], None, EARLIER).status
    again = reconcile_status(workload(status=status), [attempt(**FAILED)], None, NOW).status

    assert status.completed_at == again.completed_at == EARLIER


def test_a_workload_that_waits_again_has_no_place() -> None:
    """Between two attempts only the name of the failed pod is left."""
    status = reconcile_status(workload(retries=1), [attempt(**FAILED)], None, NOW).status

    assert (status.node, status.devices, status.uuids, status.pod, status.attempts) == ("", (), (), "train-0", 1)


CONDITIONS = {
    "its pod has no condition yet": (
        (),
        ("False", "Waiting", text_of("the scheduler has not tried a pod yet")),
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
def test_the_status_has_two_conditions(
    attempts: tuple[Attempt, ...], scheduled: tuple[str, str, str], completed: tuple[str, str, str]
) -> None:
    """Scheduled and Completed, both with the generation that was reconciled."""
    status = reconcile_status(workload(generation=4), attempts, None, NOW).status

    assert status.conditions == (
        StatusCondition("Scheduled", *scheduled, 4, NOW),
        StatusCondition("Completed", *completed, 4, NOW),
    )


def test_a_condition_keeps_its_time_while_its_status_does_not_change() -> None:
    """Another reason is no other status."""
    before = reconcile_status(workload(), (), None, EARLIER).status
    waiting = attempt(scheduling=Scheduling("False", "Unschedulable", HELD))
    after = reconcile_status(workload(status=before), [waiting], None, NOW).status

    assert [(each.reason, each.since) for each in after.conditions] == [("GpuHeld", EARLIER), ("Pending", EARLIER)]
    placed = reconcile_status(workload(status=after), [attempt(**PLACED)], None, NOW).status
    assert [each.since for each in placed.conditions] == [NOW, EARLIER]


@generated(text=st.text())
def test_whatever_a_pod_says_the_status_is_printable_and_written_once(text: str) -> None:
    """Containers write their termination message. A status that reads back otherwise would be written for ever."""
    failed = attempt(phase="Failed", fault=text, details=text)
    waiting = attempt(scheduling=Scheduling("False", text, text * 100))
    for pods, failure in (((failed,), None), ((waiting,), None), ((), refused("default/train-0", 403, text))):
        status = reconcile_status(workload(), pods, failure, NOW).status
        texts = [status.reason, status.message, *(each.message for each in status.conditions)]
        assert all(map(str.isprintable, texts))
        written = {"metadata": {}, "spec": {"podTemplate": {}}, "status": status_object(status)}
        assert read_workload(msgspec.json.encode(written))[1].status == status
