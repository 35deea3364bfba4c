"""The event and the condition of a decision, written once for each reason."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.scheduler.ports import EventType, Notice

if TYPE_CHECKING:
    from gpu_scheduler.core.ledger.devices import Conflict
    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.scheduler.pod_states import PodState
    from gpu_scheduler.scheduler.ports import EventRecorder

log = logging.getLogger(__name__)


class StatusWriter:
    """Remembers on each pod what was told of it last."""

    def __init__(self, event_recorder: EventRecorder) -> None:
        """It tells through `event_recorder`."""
        self._event_recorder = event_recorder

    def write(self, state: PodState, decision: Wait | Refuse) -> None:
        """The same reason again would only cost writes, whatever numbers in it have changed."""
        notice = notice_of(decision, state.pod.scheduled_condition)
        if decision.topic == state.last_topic or notice.condition == state.last_condition:
            state.last_topic = decision.topic
            return
        details = {"pod": str(decision.pod), "reason": decision.reason}
        log.info("%s waits: %s", decision.pod, decision.message, extra=details)
        if self._event_recorder.record(decision.pod, notice):
            state.last_condition, state.last_topic = notice.condition, decision.topic

    async def withdraw_condition(self, state: PodState) -> None:
        """Before a bind: what was told is soon untrue. Return when it is not being written any more."""
        if await self._event_recorder.withdraw(state.pod.ref):
            state.last_condition = state.last_topic = None


# The actions that kube-scheduler's own events carry.
_BINDING: Final = "Binding"
_SCHEDULING: Final = "Scheduling"


def notice_of(decision: Bind | Wait | Refuse, before: ScheduledCondition | None = None) -> Notice:
    """Make the event of a decision and, where the pod is not placed, the condition with the same text.

    `before` is the condition that the pod has: another reason for the same status is no transition.
    """
    if isinstance(decision, Bind):
        return Notice(EventType.NORMAL, names.EVENT_SCHEDULED, _BINDING, decision.message)
    ours = decision.reason is Reason.BIND_FAILED
    reason = names.CONDITION_SCHEDULER_ERROR if ours else names.CONDITION_UNSCHEDULABLE
    since = before.since if before is not None and before.status == "False" else None
    condition = ScheduledCondition("False", reason, decision.message, since)
    return Notice(EventType.WARNING, names.EVENT_FAILED, _SCHEDULING, decision.message, condition)


def conflict_notice(conflict: Conflict, holder: Hold, other: Hold) -> Notice:
    """Make what the owner of `holder` hears when `other` holds one of its devices too, against the rules."""
    note = sentence(
        names.EVENT_CONFLICT,
        f"GPU {conflict.device} of {conflict.node} is held by {holder.ref} and by {other.ref} at once",
        "delete one of the two pods",
    )
    return Notice(EventType.WARNING, names.EVENT_CONFLICT, _SCHEDULING, note)
