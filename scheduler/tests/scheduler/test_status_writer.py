import pytest

from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.ports import EventType, Notice
from gpu_scheduler.scheduler.status_writer import notice_of

POD = PodRef("default", "train-0", "uid-1")


def test_a_placed_pod_has_good_news_and_no_condition() -> None:
    """The Binding itself sets PodScheduled=True."""
    notice = notice_of(Bind(POD, Placement("node1", ("0",), 0), "Successfully assigned"))

    assert notice == Notice(EventType.NORMAL, "Scheduled", "Binding", "Successfully assigned")


def test_waiting_and_refused_pods_are_unschedulable() -> None:
    """Autoscalers read only that condition; note and message are one text."""
    for decision in (
        Wait(POD, Reason.GPU_HELD, "GpuHeld: held", frozenset(), "GpuHeld"),
        Refuse(POD, Reason.MAP_INVALID, "MapInvalid: bad", "MapInvalid"),
    ):
        condition = ScheduledCondition("False", "Unschedulable", decision.message)
        expected = Notice(EventType.WARNING, "FailedScheduling", "Scheduling", decision.message, condition)

        assert notice_of(decision) == expected


def test_a_fault_of_our_own_is_a_scheduler_error() -> None:
    """A failed bind is not the pod's fault, and no autoscaler should act on it."""
    notice = notice_of(Wait(POD, Reason.BIND_FAILED, "BindFailed: no", frozenset(), "BindFailed"))

    assert notice.condition == ScheduledCondition("False", "SchedulerError", "BindFailed: no")


SINCE = {
    "another reason for the same status is no transition": (
        ScheduledCondition("False", "Unschedulable", "x", "12:00"),
        "12:00",
    ),
    "a first reason is one": (None, None),
    "a status that changes is one": (ScheduledCondition("True", "", "", "12:00"), None),
}


@pytest.mark.parametrize(("before", "since"), SINCE.values(), ids=SINCE)
def test_a_condition_says_since_when_its_status_holds(before: ScheduledCondition | None, since: str | None) -> None:
    """As Kubernetes counts it; None lets the writer say now."""
    condition = notice_of(Wait(POD, Reason.GPU_HELD, "GpuHeld: held", frozenset(), "GpuHeld"), before).condition

    assert condition is not None
    assert condition.since == since
