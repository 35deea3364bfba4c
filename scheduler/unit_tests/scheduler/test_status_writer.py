import logging
from dataclasses import replace

import pytest

from gpu_scheduler.core.decision import BY_MAP, Bind, Refuse, Wait
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.scheduler.pod_states import PodState
from gpu_scheduler.scheduler.ports import EventType, Notice
from gpu_scheduler.scheduler.status_writer import StatusWriter, notice_of
from unit_tests.core import build
from unit_tests.fakes import FakeEventRecorder

POD = PodRef("default", "train-0", "uid-1")


def unschedulable(message: str) -> ScheduledCondition:
    return ScheduledCondition("False", "Unschedulable", message)


def waiting(message: str, topic: str) -> Wait:
    return Wait(POD, Reason.GPU_HELD, message, frozenset(), topic)


def test_a_placed_pod_has_a_normal_event_and_no_condition() -> None:
    """The Binding itself sets PodScheduled=True."""
    notice = notice_of(Bind(POD, Placement("node1", ("0",), 0), "Successfully assigned", BY_MAP, "index 0"))

    assert notice == Notice(EventType.NORMAL, "Scheduled", "Binding", "Successfully assigned")


def test_waiting_and_refused_pods_are_unschedulable() -> None:
    """Autoscalers read only that condition. The event's note and the condition's message are one text."""
    for decision in (
        Wait(POD, Reason.GPU_HELD, "GpuHeld: held", frozenset(), "GpuHeld"),
        Refuse(POD, Reason.MAP_INVALID, "MapInvalid: bad", "MapInvalid"),
    ):
        condition = ScheduledCondition("False", "Unschedulable", decision.message)
        expected = Notice(EventType.WARNING, "FailedScheduling", "Scheduling", decision.message, condition)

        assert notice_of(decision) == expected


@pytest.mark.promise("text-4")
def test_a_fault_of_our_own_is_a_scheduler_error() -> None:
    """A failed bind is not the pod's fault, and no autoscaler should act on it."""
    notice = notice_of(Wait(POD, Reason.BIND_FAILED, "BindFailed: no", frozenset(), "BindFailed"))

    assert notice.condition == ScheduledCondition("False", "SchedulerError", "BindFailed: no")


SINCE = {
    "another reason for the same status is no transition": (
        ScheduledCondition("False", "Unschedulable", "x", "12:00"),
        "12:00",
    ),
    "a first reason is a transition": (None, None),
    "a status that changes is a transition": (ScheduledCondition("True", "", "", "12:00"), None),
}


@pytest.mark.parametrize(("before", "since"), SINCE.values(), ids=SINCE)
def test_a_condition_says_since_when_its_status_holds(before: ScheduledCondition | None, since: str | None) -> None:
    """As Kubernetes counts it. None lets the writer use the current time."""
    condition = notice_of(Wait(POD, Reason.GPU_HELD, "GpuHeld: held", frozenset(), "GpuHeld"), before).condition

    assert condition is not None
    assert condition.since == since


HELD = "GpuHeld: GPU 3 of node4 is held by default/train-1"
PRESENT: dict[str, tuple[ScheduledCondition | None, bool]] = {
    "a pod without a condition is written": (None, True),
    "the same text is not written again": (unschedulable(f"{HELD}, 2 more pods; wait"), False),
    "other numbers and later holders are not written": (unschedulable(f"{HELD}, 3 more pods; wait"), False),
    "another first holder is written": (
        unschedulable("GpuHeld: GPU 3 of node4 is held by default/train-2; wait"),
        True,
    ),
    "a first holder whose name begins with the new one's is written": (unschedulable(f"{HELD}0; wait"), True),
    "another word is written": (unschedulable("IndexHeld: index 0 is held by default/train-1; wait"), True),
    "an own fault with that text is written": (ScheduledCondition("False", "SchedulerError", f"{HELD}; wait"), True),
    "a condition that is true is written": (ScheduledCondition("True", "", ""), True),
    "the condition of a gate that has opened is written": (
        ScheduledCondition("False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates"),
        True,
    ),
}


@pytest.mark.promise("text-8", "text-14")
@pytest.mark.parametrize("seen_first", ["with it", "without a condition"])
@pytest.mark.parametrize(("present", "written"), PRESENT.values(), ids=PRESENT)
def test_a_decision_is_written_only_if_the_pods_condition_says_something_else(
    present: ScheduledCondition | None, *, written: bool, seen_first: str
) -> None:
    """Whoever wrote that condition, and whenever it was seen: a standby sees what the leader writes."""
    recorder = FakeEventRecorder()
    pod = build.pod("train-0", "0=node4:3\n")
    shown = replace(pod, scheduled_condition=present)
    state = PodState(shown if seen_first == "with it" else pod, 0.0)
    state.see(shown)

    StatusWriter(recorder).write(state, waiting(f"{HELD}, 2 more pods; wait", HELD))

    assert bool(recorder.recorded) is written


@pytest.mark.promise("text-2")
def test_event_condition_and_log_have_one_text(caplog: pytest.LogCaptureFixture) -> None:
    """All three have the whole message, with what its topic leaves out."""
    caplog.set_level(logging.INFO)
    recorder, message = FakeEventRecorder(), f"{HELD}, 2 more pods; wait"

    StatusWriter(recorder).write(PodState(build.pod("train-0", "0=node4:3\n"), 0.0), waiting(message, HELD))

    ((_, notice),) = recorder.recorded
    assert notice.condition is not None
    assert notice.note == notice.condition.message == message
    assert caplog.messages == [f"default/train-0 waits: {message}"]


def test_a_topic_that_does_not_begin_its_message_is_written_once() -> None:
    """For a condition of its own a replica knows the topic, after the watch has shown the condition as before."""
    recorder = FakeEventRecorder()
    state = PodState(build.pod("train-0", "0=node4:3\n"), 0.0)
    writer = StatusWriter(recorder)

    for number in range(3):
        writer.write(state, waiting(f"GpuHeld: {number} of 4", "GpuHeld: how many"))
        state.see(replace(state.pod, scheduled_condition=state.last_condition))

    assert recorder.notes("train-0") == ["GpuHeld: 0 of 4"]


def test_a_condition_that_another_client_replaced_is_written_again() -> None:
    """A leader that was stopped for a while may send an old one late. The next attempt corrects it."""
    recorder = FakeEventRecorder()
    state = PodState(build.pod("train-0", "0=node4:3\n"), 0.0)
    writer = StatusWriter(recorder)
    writer.write(state, waiting(f"{HELD}; wait", HELD))
    assert state.last_condition is not None

    # The watch still shows the condition of before: this is no reason to write again.
    state.see(replace(state.pod, scheduled_condition=None))
    writer.write(state, waiting(f"{HELD}; wait", HELD))
    for shown in (state.last_condition, unschedulable("NodeNotFound: no node node4; create it")):
        state.see(replace(state.pod, scheduled_condition=shown))
    writer.write(state, waiting(f"{HELD}; wait", HELD))

    assert recorder.notes("train-0") == [HELD, HELD]
