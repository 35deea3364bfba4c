"""What a decision sounds like: the event and the condition that a pod's owner reads, made from the decision's own text.

LAW: pure; words come from the decision, names from names.py, and nothing is decided again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.core.decide import Bind, Refuse, Wait
from gpu_scheduler.core.model import Condition
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.ports import EventType, Notice

if TYPE_CHECKING:
    from gpu_scheduler.core.devices import Conflict
    from gpu_scheduler.core.holding import Holder

# The actions that kube-scheduler's own events carry.
_BINDING: Final = "Binding"
_SCHEDULING: Final = "Scheduling"


def notice_of(decision: Bind | Wait | Refuse, before: Condition | None = None) -> Notice:
    """Make the event of a decision and, where the pod is not placed, the condition with the same text.

    `before` is the condition that the pod has: another reason for the same status is no transition.
    """
    if isinstance(decision, Bind):
        return Notice(EventType.NORMAL, names.EVENT_SCHEDULED, _BINDING, decision.message)
    ours = decision.reason is Reason.BIND_FAILED
    reason = names.CONDITION_SCHEDULER_ERROR if ours else names.CONDITION_UNSCHEDULABLE
    since = before.since if before is not None and before.status == "False" else None
    condition = Condition("False", reason, decision.message, since)
    return Notice(EventType.WARNING, names.EVENT_FAILED, _SCHEDULING, decision.message, condition)


def conflict_notice(conflict: Conflict, holder: Holder, other: Holder) -> Notice:
    """Make what the owner of `holder` hears when `other` holds one of its devices too, against the rules."""
    note = sentence(
        names.EVENT_CONFLICT,
        f"GPU {conflict.device} of {conflict.node} is held by {holder.ref} and by {other.ref} at once",
        "delete one of the two pods",
    )
    return Notice(EventType.WARNING, names.EVENT_CONFLICT, _SCHEDULING, note)
