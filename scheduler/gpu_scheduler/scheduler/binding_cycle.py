"""What becomes of a bind that has flown: confirmed, taken back, or kept because nobody knows.

LAW: what a pod was promised is released only by a definite answer, or by the pod itself.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gpu_scheduler.core.decision import Wait, awaits_placement
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.scheduler.ports import Bound, Dropped, Failed, InputKind, NotSent, Result, Unknown
from gpu_scheduler.scheduler.status_writer import notice_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.filters.volumes import Selection
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.scheduling_queue import SchedulingQueue
    from gpu_scheduler.scheduler.cluster_cache import ClusterCache
    from gpu_scheduler.scheduler.pod_states import PodState
    from gpu_scheduler.scheduler.ports import BindResult, Ports, VolumeBinder
    from gpu_scheduler.scheduler.status_writer import StatusWriter

BINDERS = 64

log = logging.getLogger(__name__)


class BindingCycle:
    """Books the outcome of binds."""

    def __init__(
        self,
        ports: Ports,
        teller: StatusWriter,
        *,
        world: ClusterCache,
        backlog: SchedulingQueue,
        wake: Callable[[frozenset[ClusterEvent]], None],
    ) -> None:
        """`wake` is told what becomes free."""
        self._ports = ports
        self._teller = teller
        self._world = world
        self._backlog = backlog
        self._wake = wake

    def land(self, tracked: PodState, bind: Bind, result: BindResult, *, began: float, now: float) -> None:
        """Confirm, release or keep what was assumed for a pod that is still there."""
        again, tracked.unsettled = tracked.unsettled is not None, None
        result = _settled(tracked, bind, result, again=again)
        details = {"pod": str(bind.pod), "node": bind.placement.node, "devices": bind.placement.value}
        match result:
            case Bound():
                log.info("Bound %s to %s", bind.pod, bind.placement.node, extra=details)
                self._ports.announcer.announce(bind.pod, notice_of(bind))
                self._ports.recorder.attempted(Result.SCHEDULED, now - began)
                self._ports.recorder.placed(now - tracked.first_seen)
            case Failed(message, patience):
                log.warning("Binding failed", extra={**details, "error": message})
                self.release(tracked, now, patience)
                self._teller.tell(tracked, Wait(bind.pod, Reason.BIND_FAILED, message, frozenset(), topic=message))
                self._ports.recorder.attempted(Result.ERROR, now - began)
            case Dropped(why) | NotSent(why):
                log.info("A bind was dropped", extra={**details, "why": why})
                self.release(tracked, now)
            case Unknown(why, patience):
                log.warning("A bind's outcome is unknown: its devices stay held", extra={**details, "why": why})
                tracked.unsettled = began
                self._backlog.retry(bind.pod.uid, now, patience)
                if again:
                    # One lost answer settles itself before anybody could read of it.
                    self._teller.tell(tracked, _unknown(bind, why))
                self._ports.recorder.attempted(Result.ERROR, now - began)

    def shown(self, tracked: PodState, now: float) -> None:
        """The watch shows where the pod runs, or its end: a bind whose answer was lost lands by that."""
        bind, began = tracked.promised, tracked.unsettled
        tracked.promised = tracked.unsettled = None
        if bind is not None and began is not None and tracked.pod.bound and not tracked.flying:
            self.land(tracked, bind, Bound(), began=began, now=now)

    def release(self, tracked: PodState, now: float, patience: float = 0.0) -> None:
        """Take the assumption back; a pod that still waits is looked at again when back-off and patience are over."""
        if tracked.pod.bound:
            return
        tracked.promised = tracked.unsettled = None
        self._world.journal.took(InputKind.RELEASED, tracked.pod.ref)
        ledger = self._world.cluster.ledger
        # Told again of the pod as it is, the ledger knows which index it still waits for.
        self._wake(ledger.forget(tracked.pod.ref.uid) | ledger.apply(tracked.pod))
        if awaits_placement(tracked.pod, self._world.cluster.policy):
            self._backlog.retry(tracked.pod.ref.uid, now, patience)


def _settled(tracked: PodState, bind: Bind, result: BindResult, *, again: bool) -> BindResult:
    """What the answer means beside what the watch has shown."""
    pod = tracked.pod
    if pod.bound:
        # The watch was quicker than the answer, and the ledger already has what it showed.
        return Bound() if pod.node == bind.placement.node else Dropped(f"bound to {pod.node}, not by us")
    if isinstance(result, Bound):
        return result
    if pod.finished or pod.deleting_since is not None:
        # The API server binds no such pod, so no earlier try can land any more.
        return Dropped("the pod has ended or is being deleted")
    if again and isinstance(result, Failed | NotSent):
        # This write did nothing, but the one before it may still land: only the pod itself can settle that.
        return Unknown(f"still, after {result}", result.patience if isinstance(result, Failed) else 0.0)
    return result


def _unknown(bind: Bind, why: str) -> Wait:
    what = f"cannot tell whether the pod was bound to {bind.placement.node}: {why}"
    message = sentence(Reason.BIND_FAILED, what, "asking again by itself; its GPUs stay held meanwhile")
    return Wait(bind.pod, Reason.BIND_FAILED, message, frozenset(), topic="BindFailed: unknown")


async def select_claims(claims: VolumeBinder, pod: Pod, selection: Selection) -> str | None:
    """One after the other, until one fails: then the answer says why."""
    for claim in selection.claims:
        failure = await claims.select(pod.ref.namespace, claim, selection.node)
        if failure is not None:
            return failure
    return None
