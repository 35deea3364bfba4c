"""Writes the event and the condition of a decision, unless the pod's condition says the same.

LAW: the pod's present condition counts, whoever wrote it. So a new leader writes nothing to pods whose reason to wait
is still the one that an earlier leader wrote.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.pods.pod import ScheduledCondition
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.scheduler.ports import EventType, Notice

if TYPE_CHECKING:
    from gpu_scheduler.core.ledger.conflicts import Conflict
    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.ledger.moved_gpus import MovedGpu
    from gpu_scheduler.scheduler.pod_states import PodState
    from gpu_scheduler.scheduler.ports import EventRecorder

log = logging.getLogger(__name__)


class StatusWriter:
    """Writes events and conditions. It stores on each pod's state which condition was recorded last."""

    def __init__(self, event_recorder: EventRecorder) -> None:
        """Create the writer; it writes through `event_recorder`."""
        self._event_recorder = event_recorder

    def write(self, state: PodState, decision: Wait | Refuse) -> None:
        """Write the decision, unless the pod's condition has its topic: other numbers are not worth a write."""
        state.waits_for = decision.reason
        notice = notice_of(decision, state.pod.scheduled_condition)
        if _is_reported(state, decision, notice.condition):
            return
        details = {"pod": str(decision.pod), "reason": decision.reason}
        log.info("%s waits: %s", decision.pod, decision.message, extra=details)
        if self._event_recorder.record(decision.pod, notice):
            state.set_condition(notice.condition, decision.topic)

    async def withdraw_condition(self, state: PodState) -> None:
        """Withdraw the condition before a bind, which will make it untrue. Return when no write of it is in flight."""
        if await self._event_recorder.withdraw(state.pod.ref):
            state.set_condition()


def _is_reported(state: PodState, decision: Wait | Refuse, wanted: ScheduledCondition | None) -> bool:
    """Whether the pod's condition already has the decision's topic.

    The topic of a condition that another replica wrote is not known. Its message tells: it begins with its topic.
    """
    present = state.condition
    if present is None or wanted is None or (present.status, present.reason) != (wanted.status, wanted.reason):
        return False
    known = state.last_topic if present == state.last_condition else None
    return decision.topic == known or present.message == wanted.message or _begins(present.message, decision.topic)


def _begins(message: str, topic: str) -> bool:
    """Whether the message begins with the topic, and not with a longer name: train-1 is not train-10."""
    return message.startswith(topic) and _MORE_OF_A_NAME.match(message, len(topic)) is None


# The values of `action` in kube-scheduler's own events.
_BINDING: Final = "Binding"
_SCHEDULING: Final = "Scheduling"
_MORE_OF_A_NAME: Final = re.compile(r"[\w./-]")


def notice_of(decision: Bind | Wait | Refuse, before: ScheduledCondition | None = None) -> Notice:
    """Make the event of a decision and, if the pod is not placed, the condition with the same text.

    `before` is the pod's present condition. Another reason for the same status is no transition, so its time is kept.
    """
    if isinstance(decision, Bind):
        return Notice(EventType.NORMAL, names.EVENT_SCHEDULED, _BINDING, decision.message)
    ours = decision.reason is Reason.BIND_FAILED
    reason = names.CONDITION_SCHEDULER_ERROR if ours else names.CONDITION_UNSCHEDULABLE
    since = before.since if before is not None and before.status == "False" else None
    condition = ScheduledCondition("False", reason, decision.message, since)
    return Notice(EventType.WARNING, names.EVENT_FAILED, _SCHEDULING, decision.message, condition)


def conflict_notice(conflict: Conflict, holder: Hold, other: Hold) -> Notice:
    """Make the event on pod `holder` that `other` holds one of its devices too, against the rules."""
    note = sentence(
        names.EVENT_CONFLICT,
        f"GPU {conflict.device} of {conflict.node} is held by {holder.ref} and by {other.holder} at once",
        "delete the pod, or the pods of that claim" if other.is_claim else "delete one of the two pods",
    )
    return Notice(EventType.WARNING, names.EVENT_CONFLICT, _SCHEDULING, note)


def moved_notice(holder: Hold, moved: tuple[MovedGpu, ...]) -> Notice:
    """Make the event on a bound pod that names of its GPUs mean other GPUs now."""
    first, *others = moved
    more = f", and {len(others)} more of its GPUs moved" if others else ""
    ref = holder.ref
    note = sentence(
        names.EVENT_MOVED,
        f"on {holder.node} {first}{more}",
        f"no other pod gets either; to have it placed anew: kubectl delete pod {ref.name} -n {ref.namespace}",
    )
    return Notice(EventType.WARNING, names.EVENT_MOVED, _SCHEDULING, note)
