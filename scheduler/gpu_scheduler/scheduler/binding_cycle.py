"""A bind from its start to its end: sent beside the decisions, then confirmed, released, or kept as unknown.

LAW: what is assumed for a pod is released only by a definite answer, or by the pod itself.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpu_scheduler.core.decision import Wait, awaits_placement
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.scheduler.ports import Bound, Dropped, Failed, InputKind, NotSent, Result, Unknown
from gpu_scheduler.scheduler.status_writer import notice_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.filters.volumes import Selection
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.scheduling_queue import SchedulingQueue
    from gpu_scheduler.scheduler.cluster_cache import ClusterCache
    from gpu_scheduler.scheduler.pod_states import PodState, PodStates
    from gpu_scheduler.scheduler.ports import BindResult, Ports, VolumeBinder
    from gpu_scheduler.scheduler.status_writer import StatusWriter

BINDERS = 64
"""Writes that may be under way at once."""

log = logging.getLogger(__name__)


class BindingCycle:
    """The writes that are under way, and what becomes of each."""

    def __init__(  # noqa: PLR0913 - what the loop shares with it
        self,
        ports: Ports,
        status_writer: StatusWriter,
        states: PodStates,
        *,
        cache: ClusterCache,
        queue: SchedulingQueue,
        clock: Callable[[], float],
        binders: int = BINDERS,
    ) -> None:
        """At most `binders` writes are under way at once."""
        self._ports = ports
        self._status_writer = status_writer
        self._states = states
        self._cache = cache
        self._queue = queue
        self._clock = clock
        self._slots = asyncio.Semaphore(binders)
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_events: Callable[[frozenset[ClusterEvent]], None] = lambda _: None
        self._on_end: Callable[[], None] = lambda: None

    def subscribe(self, on_events: Callable[[frozenset[ClusterEvent]], None], on_end: Callable[[], None]) -> None:
        """Say what becomes free to `on_events`, and call `on_end` at the end of each write."""
        self._on_events, self._on_end = on_events, on_end

    @property
    def full(self) -> bool:
        """No other write may start now."""
        return self._slots.locked()

    @property
    def busy(self) -> bool:
        """Some write is under way."""
        return bool(self._tasks)

    async def take_slot(self) -> None:
        """Wait until one more write may start; whoever starts none gives the slot back."""
        await self._slots.acquire()

    def return_slot(self) -> None:
        """Let another write have it."""
        self._slots.release()

    async def drain(self, seconds: float) -> None:
        """Wait for the writes that are under way, at most so long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def start(self, state: PodState, bind: Bind, began: float) -> None:
        """Send the bind; its slot is given back at its end."""
        state.in_flight = True
        self._start(self._bind(state, bind, began))

    def start_volumes(self, pod: Pod, selection: Selection) -> None:
        """Tell the provisioners of a waiting pod's claims its node; the watch of claims tells how that went."""
        self._start(self._select_volumes(pod, selection))

    def _start(self, write: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, state: PodState, bind: Bind, began: float) -> None:
        result: BindResult = Unknown("the bind was cut short")
        try:
            await self._status_writer.withdraw_condition(state)
            result = await self._ports.binder.bind(bind)
        except Exception:
            log.exception("A bind ended in an error of our own: its outcome is unknown", extra={"pod": str(bind.pod)})
        finally:
            state.in_flight = False
            self._slots.release()
            # Gone meanwhile, its hold went with it.
            if self._states.get(bind.pod.uid) is state:
                self.finish_bind(state, bind, result, began=began, now=self._clock())
            self._on_end()

    async def _select_volumes(self, pod: Pod, selection: Selection) -> None:
        failure: str | None = "it was cut short"
        try:
            failure = await select_claims(self._ports.claims, pod, selection)
        finally:
            if failure is not None:
                log.warning("A claim could not be given its node", extra={"pod": str(pod.ref), "error": failure})
                state = self._states.get(pod.ref.uid)
                if (
                    state is not None
                    and state.assumed is None
                    and awaits_placement(state.pod, self._cache.cluster.policy)
                ):
                    self._queue.back_off(pod.ref.uid, self._clock())
            self._slots.release()
            self._on_end()

    def finish_bind(self, state: PodState, bind: Bind, result: BindResult, *, began: float, now: float) -> None:
        """Confirm, release or keep what was assumed for a pod that is still there."""
        again, state.bind_unknown_since = state.bind_unknown_since is not None, None
        result = _settled(state, bind, result, again=again)
        details = {"pod": str(bind.pod), "node": bind.placement.node, "devices": bind.placement.value}
        match result:
            case Bound():
                log.info("Bound %s to %s", bind.pod, bind.placement.node, extra=details)
                self._ports.event_recorder.record(bind.pod, notice_of(bind))
                self._ports.recorder.attempted(Result.SCHEDULED, now - began)
                self._ports.recorder.placed(now - state.first_seen)
            case Failed(message, patience):
                log.warning("Binding failed", extra={**details, "error": message})
                self.release(state, now, patience)
                self._status_writer.write(
                    state, Wait(bind.pod, Reason.BIND_FAILED, message, frozenset(), topic=message)
                )
                self._ports.recorder.attempted(Result.ERROR, now - began)
            case Dropped(why) | NotSent(why):
                log.info("A bind was dropped", extra={**details, "why": why})
                self.release(state, now)
            case Unknown(why, patience):
                log.warning("A bind's outcome is unknown: its devices stay held", extra={**details, "why": why})
                state.bind_unknown_since = began
                self._queue.back_off(bind.pod.uid, now, patience)
                if again:
                    # One lost answer settles itself before anybody could read of it.
                    self._status_writer.write(state, _unknown(bind, why))
                self._ports.recorder.attempted(Result.ERROR, now - began)

    def confirm(self, state: PodState, now: float) -> None:
        """The watch shows where the pod runs, or its end: that confirms a bind whose answer was lost."""
        bind, began = state.assumed, state.bind_unknown_since
        state.assumed = state.bind_unknown_since = None
        if bind is not None and began is not None and state.pod.bound and not state.in_flight:
            self.finish_bind(state, bind, Bound(), began=began, now=now)

    def release(self, state: PodState, now: float, patience: float = 0.0) -> None:
        """Take the assumption back; a pod that still waits is looked at again when back-off and patience are over."""
        if state.pod.bound:
            return
        state.assumed = state.bind_unknown_since = None
        self._cache.journal.received(InputKind.RELEASED, state.pod.ref)
        ledger = self._cache.cluster.ledger
        # Told again of the pod as it is, the ledger knows which index it still waits for.
        self._on_events(ledger.forget(state.pod.ref.uid) | ledger.apply(state.pod))
        if awaits_placement(state.pod, self._cache.cluster.policy):
            self._queue.back_off(state.pod.ref.uid, now, patience)


def _settled(state: PodState, bind: Bind, result: BindResult, *, again: bool) -> BindResult:
    """What the answer means beside what the watch has shown."""
    pod = state.pod
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
