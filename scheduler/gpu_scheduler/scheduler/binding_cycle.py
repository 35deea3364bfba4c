"""The binding cycle: sends a bind while the loop decides, then confirms it, releases it, or keeps it as unknown.

LAW: an assumed placement is released only after a definite answer, or when the pod itself proves that no bind can
succeed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from gpu_scheduler.core.decision import Wait, awaits_placement
from gpu_scheduler.core.filters.gpu_filters import gpu_free
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence
from gpu_scheduler.scheduler.ports import (
    AllocationOutcome,
    AttemptResult,
    Bound,
    Dropped,
    Failed,
    InputKind,
    NotSent,
    Unknown,
)
from gpu_scheduler.scheduler.status_writer import notice_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.filters.volumes import Selection
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.scheduling_queue import SchedulingQueue
    from gpu_scheduler.scheduler.cluster_cache import ClusterCache
    from gpu_scheduler.scheduler.pod_states import PodState, PodStates
    from gpu_scheduler.scheduler.ports import BindResult, Ports
    from gpu_scheduler.scheduler.status_writer import StatusWriter

BINDERS = 64
"""Writes that may be in flight at once."""
SHOWN_WITHIN = 3.0
"""Seconds within which the watch must show an allocation: as long as an answer may take."""
OTHERS_WRITE = 0.25
"""Seconds that another scheduler has to write what it has decided. kube-scheduler usually takes a few milliseconds."""
OTHERS_ALLOCATE = 0.75
"""Seconds that it has besides to allocate a claim which exists by then and may get GPUs.

On a busy machine its writes take longer.
"""

log = logging.getLogger(__name__)


class BindingCycle:
    """The writes in flight, and the handling of their results."""

    def __init__(  # noqa: PLR0913 - what the loop shares with it
        self,
        ports: Ports,
        status_writer: StatusWriter,
        states: PodStates,
        *,
        cache: ClusterCache,
        queue: SchedulingQueue,
        on_events: Callable[[frozenset[ClusterEvent]], None],
        on_end: Callable[[], None],
        clock: Callable[[], float],
        binders: int = BINDERS,
    ) -> None:
        """Start at most `binders` writes at once.

        `on_events` gets the cluster events of a release. `on_end` is called after each write.
        """
        self._ports = ports
        self._status_writer = status_writer
        self._states = states
        self._cache = cache
        self._queue = queue
        self._clock = clock
        self._slots = asyncio.Semaphore(binders)
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_events = on_events
        self._on_end = on_end

    @property
    def full(self) -> bool:
        """Whether all slots are taken, so that no other write may start."""
        return self._slots.locked()

    @property
    def busy(self) -> bool:
        """Whether a write is in flight."""
        return bool(self._tasks)

    @property
    def writes(self) -> int:
        """The number of writes in flight."""
        return len(self._tasks)

    async def take_slot(self, seconds: float) -> bool:
        """Wait at most `seconds` for a free slot; return whether one was taken.

        A caller that starts no write must call `return_slot`.
        """
        if not self._slots.locked():
            # Without the timer, which costs as much as a filter.
            return await self._slots.acquire()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._slots.acquire()
        return False

    def return_slot(self) -> None:
        """Give back a slot for which no write was started."""
        self._slots.release()

    async def drain(self, seconds: float) -> None:
        """Wait for the writes in flight, at most `seconds`."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    def start(self, state: PodState, bind: Bind, began: float) -> None:
        """Send the bind. It gives its slot back when it ends."""
        state.in_flight = True
        self._start(self._bind(state, bind, began))

    def start_release(self, state: PodState, claims: Sequence[AllocatedClaim]) -> None:
        """Withdraw claims that are reserved for a waiting pod, after a bind that failed or of an earlier leader.

        The watch of claims reports when their devices are free.
        """
        state.releasing = True
        self._start(self._release_claims(state, claims))

    def start_volumes(self, pod: Pod, selection: Selection) -> None:
        """Write the selected node into the claims of a waiting pod, for their provisioners.

        The watch of claims reports when the volumes exist.
        """
        self._start(self._select_volumes(pod, selection))

    def _start(self, write: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(write)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bind(self, state: PodState, bind: Bind, began: float) -> None:
        result: BindResult = Unknown("the bind was cancelled")
        try:
            await self._status_writer.withdraw_condition(state)
            failure = await self._allocate(state.pod, bind) if bind.claims else None
            result = failure or await self._ports.binder.bind(bind)
        except Exception:
            log.exception("A bind failed with an internal error: its outcome is unknown", extra={"pod": str(bind.pod)})
        finally:
            state.in_flight = False
            self._slots.release()
            # If the pod is gone meanwhile, the ledger has already released its hold.
            if self._states.get(bind.pod.uid) is state:
                self.finish_bind(state, bind, result, began=began, now=self._clock())
            self._on_end()

    async def _allocate(self, pod: Pod, bind: Bind) -> Failed | NotSent | None:
        """Return None if the pod's claims are allocated and it may be bound."""
        began = self._clock()
        outcome, failure = await self._try_allocation(pod, bind)
        self._ports.allocations.allocation(outcome, self._clock() - began)
        return failure

    async def _try_allocation(self, pod: Pod, bind: Bind) -> tuple[AllocationOutcome, Failed | NotSent | None]:
        """Allocate the pod's claims, then look for others of the same devices.

        Nothing arbitrates between schedulers: the API server accepts two claims on one device. Whatever was allocated
        before our claims is known when the watch has shown these. Who decides after that knows ours. Who has decided
        before, and writes later, is seen only after a while. Not every claim exists before: for a pod with an extended
        resource, kube-scheduler creates it when it has decided.
        """
        versions = await self._ports.allocator.allocate(bind)
        if not isinstance(versions, dict):
            return AllocationOutcome.FAILED, versions
        async with self._slot_returned():
            if not await self._cache.shown_allocated(pod.ref.namespace, bind.claims, versions, SHOWN_WITHIN):
                message = "cannot see the pod's ResourceClaims: the watch has not shown their allocation"
                return AllocationOutcome.UNSEEN, Failed(sentence(Reason.BIND_FAILED, message, "trying again by itself"))
            await asyncio.sleep(OTHERS_WRITE)
            if self._cache.others_allocate(self._ports.allocator.may_give_gpus):
                await asyncio.sleep(OTHERS_ALLOCATE)
        cluster = self._cache.cluster
        taken = gpu_free(assumed_hold(pod, bind.placement), cluster.ledger, cluster.nodes, cluster.policy)
        if taken is not None:
            return AllocationOutcome.WITHDRAWN, Failed(taken.message, reason=taken.reason)
        return AllocationOutcome.ALLOCATED, None

    @asynccontextmanager
    async def _slot_returned(self) -> AsyncIterator[None]:
        """Give the bind's slot back during the block, in which it writes nothing, and take one again.

        Slots are given in the order in which they are asked for, so the loop starts no binds faster than they go on.
        """
        self._slots.release()
        try:
            yield
        finally:
            await self._slots.acquire()

    async def _select_volumes(self, pod: Pod, selection: Selection) -> None:
        failure: str | None = "it was cancelled"
        try:
            failure = await self._select_claims(pod, selection)
        finally:
            if failure is not None:
                log.warning(
                    "The selected node of a claim could not be written", extra={"pod": str(pod.ref), "error": failure}
                )
                self._back_off(pod)
            self._slots.release()
            self._on_end()

    async def _release_claims(self, state: PodState, claims: Sequence[AllocatedClaim]) -> None:
        failure: str | None = "it was cancelled"
        pod = state.pod
        try:
            failure = await self._ports.allocator.release(pod.ref, claims)
        finally:
            state.releasing = False
            if failure is not None:
                log.warning("A claim could not be released", extra={"pod": str(pod.ref), "error": failure})
                self._back_off(pod)
            self._slots.release()
            self._on_end()

    async def _select_claims(self, pod: Pod, selection: Selection) -> str | None:
        """Write the selected node into one claim after the other. Return the first failure, or None."""
        for claim in selection.claims:
            failure = await self._ports.claims.select(pod.ref.namespace, claim, selection.node)
            if failure is not None:
                return failure
        return None

    def _back_off(self, pod: Pod) -> None:
        """Try a pod again after its back-off, if it still waits."""
        state = self._states.get(pod.ref.uid)
        if state is not None and state.assumed is None and awaits_placement(state.pod, self._cache.cluster.policy):
            self._queue.back_off(pod.ref.uid, self._clock())

    def finish_bind(self, state: PodState, bind: Bind, result: BindResult, *, began: float, now: float) -> None:
        """Confirm, release or keep the assumed placement of a pod that still exists."""
        again, state.bind_unknown_since = state.bind_unknown_since is not None, None
        result = _settled(state, bind, result, again=again)
        details = {"pod": str(bind.pod), "node": bind.placement.node, "devices": bind.placement.value}
        match result:
            case Bound():
                why = {"strategy": bind.strategy, "reason": bind.reason}
                log.info("Bound %s to %s", bind.pod, bind.placement.node, extra={**details, **why})
                self._ports.event_recorder.record(bind.pod, notice_of(bind))
                self._ports.recorder.attempted(AttemptResult.SCHEDULED, now - began)
                self._ports.recorder.placed(state.pod, bind, now - state.first_seen)
            case Failed(message, retry_after, reason):
                log.warning("Binding failed", extra={**details, "error": message})
                self.release(state, now, retry_after)
                self._status_writer.write(state, Wait(bind.pod, reason, message, frozenset(), topic=message))
                self._ports.recorder.attempted(AttemptResult.ERROR, now - began)
                self._ports.recorder.waits(reason)
            case Dropped(why) | NotSent(why):
                log.info("A bind was dropped", extra={**details, "why": why})
                self.release(state, now)
            case Unknown(why, retry_after):
                log.warning("A bind's outcome is unknown: its devices stay held", extra={**details, "why": why})
                state.bind_unknown_since = began
                self._queue.back_off(bind.pod.uid, now, retry_after)
                if again:
                    # After one lost answer, the retry resolves it before a user could read the condition.
                    self._status_writer.write(state, _unknown(bind, why))
                self._ports.recorder.attempted(AttemptResult.ERROR, now - began)
                self._ports.recorder.waits(Reason.BIND_FAILED)

    def confirm(self, state: PodState, now: float) -> None:
        """Clear the assumption of a pod that the watch shows as bound or finished.

        If the pod is bound, this also finishes a bind whose answer was lost.
        """
        bind, began = state.assumed, state.bind_unknown_since
        state.assumed = state.bind_unknown_since = None
        if bind is not None and began is not None and state.pod.bound and not state.in_flight:
            self.finish_bind(state, bind, Bound(), began=began, now=now)

    def release(self, state: PodState, now: float, retry_after: float = 0.0) -> None:
        """Withdraw the assumption, unless the pod is bound.

        A pod that still awaits placement is requeued after its back-off, and not within `retry_after` seconds.
        """
        if state.pod.bound:
            return
        state.assumed = state.bind_unknown_since = None
        self._cache.journal.received(InputKind.RELEASED, state.pod.ref)
        ledger = self._cache.cluster.ledger
        # Apply the pod again, so that the ledger keeps the index that it still waits for.
        self._on_events(ledger.forget(state.pod.ref.uid) | ledger.apply(state.pod))
        if awaits_placement(state.pod, self._cache.cluster.policy):
            self._queue.back_off(state.pod.ref.uid, now, retry_after)


def _settled(state: PodState, bind: Bind, result: BindResult, *, again: bool) -> BindResult:
    """Return the outcome, from the answer and from what the watch has shown."""
    pod = state.pod
    if pod.bound:
        # The watch event came before the answer, and the ledger has already applied it.
        return Bound() if pod.node == bind.placement.node else Dropped(f"bound to {pod.node}, not by us")
    if isinstance(result, Bound):
        return result
    if pod.finished or pod.deleting_since is not None:
        # The API server does not bind such a pod, so no earlier try can still succeed.
        return Dropped("the pod has ended or is being deleted")
    if again and isinstance(result, Failed | NotSent):
        # This write did nothing, but the one before it may still succeed: only the pod itself can show that.
        return Unknown(f"still, after {result}", result.retry_after if isinstance(result, Failed) else 0.0)
    return result


def _unknown(bind: Bind, why: str) -> Wait:
    what = f"cannot tell whether the pod was bound to {bind.placement.node}"
    message = sentence(Reason.BIND_FAILED, f"{what}: {why}", "asking again by itself; its GPUs stay held meanwhile")
    return Wait(bind.pod, Reason.BIND_FAILED, message, frozenset(), topic=f"{Reason.BIND_FAILED}: {what}")
