"""The scheduling loop: takes what the watches deliver, lets the core decide on one pod after the other, applies it.

LAW: one task decides, one pod at a time; binds are sent beside it. What is assumed for a pod stays held until its bind
is confirmed or released.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Refuse, Wait, awaits_placement
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.scheduling_queue import SchedulingQueue
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.scheduler.audit import LedgerAudit
from gpu_scheduler.scheduler.binding_cycle import BINDERS, BindingCycle
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.dynamic_config import DynamicConfig
from gpu_scheduler.scheduler.limits_config import LimitsConfig
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from gpu_scheduler.scheduler.ports import InputKind, Result
from gpu_scheduler.scheduler.rejection_backoff import RejectionBackoff
from gpu_scheduler.scheduler.status_writer import StatusWriter
from gpu_scheduler.scheduler.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.ledger.ledger import Ledger
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.scheduler.ports import Ports

log = logging.getLogger(__name__)


class Scheduler:
    """Its event handlers may be called at any time; nothing is decided before `run`."""

    def __init__(  # noqa: PLR0913 - what tests turn, each with its default
        self,
        policy: Policy,
        ports: Ports,
        *,
        strategy: Strategy = Strategy.LEAST_UTILIZED,
        timings: Timings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        binders: int = BINDERS,
        poll_watches: Callable[[], bool] = lambda: False,
    ) -> None:
        """`strategy` holds until settings name another; up to `binders` writes at once; `poll_watches` reads ahead."""
        self._policy = policy
        self._ports = ports
        self._timings = timings or Timings()
        self._clock = clock
        self.world = ClusterCache(policy, self._wake, clock=clock, wall=wall, journal=ports.journal)
        self.world.set_strategy(strategy)
        self.limits = LimitsConfig(self._limits_changed)
        self.settings = DynamicConfig(strategy, self._strategy_changed, lambda: self.limits.limits)
        self.queue = SchedulingQueue(self._timings.backoff_first, self._timings.backoff_longest, self._timings.resync)
        self._audit = LedgerAudit(
            ports.event_recorder, ports.repairs, now=clock(), look=self._timings.interval, rebuild=self._timings.audit
        )
        self.tracked = PodStates()
        self._rejection_backoff = RejectionBackoff()
        self._status_writer = StatusWriter(ports.event_recorder)
        self._wakeup = asyncio.Event()
        self._binding_cycle = BindingCycle(
            ports, self._status_writer, self.tracked, cache=self.world, queue=self.queue, clock=clock, binders=binders
        )
        self._binding_cycle.subscribe(self._wake, self._wakeup.set)
        self._poll_watches = poll_watches
        self._stopping = False
        self._heartbeat: float | None = None
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)

    @property
    def ledger(self) -> Ledger:
        """The one that decisions are made by."""
        return self.world.cluster.ledger

    @property
    def heartbeat_age(self) -> float:
        """Seconds by which the loop's next turn is late; 0 before it runs. A rest that it chose is not late."""
        return 0.0 if self._heartbeat is None else max(0.0, self._clock() - self._heartbeat)

    @property
    def busy(self) -> bool:
        """As many writes are under way as may be, or soon will: between two of them there is room for a moment."""
        return self._binding_cycle.full or (self._binding_cycle.busy and self.queue.any_active())

    async def run(self) -> None:
        """Decide until `drain`; the heartbeat goes on whether or not there is work."""
        while not self._stopping:
            self._heartbeat = self._clock()
            await self._binding_cycle.take_slot()
            if self._poll_watches():
                await asyncio.sleep(0)  # the watches' next turn, in which they take it in, is before ours
            self._heartbeat = began = self._clock()
            self._run_audit(began)
            uid = None if self._stopping else self.queue.pop(began)
            if uid is None:
                self._binding_cycle.return_slot()
                await self._wait_for_work(began)
                continue
            if not self._schedule_safely(uid, began):
                self._binding_cycle.return_slot()
            # Give the watches and the binds their turn between two decisions.
            await asyncio.sleep(0)

    async def drain(self, seconds: float) -> bool:
        """Decide nothing more, and wait for the binds under way, at most so long. True when all outcomes are known."""
        self._stopping = True
        self._wakeup.set()
        await self._binding_cycle.drain(seconds)
        return not any(tracked.in_flight or tracked.bind_unknown_since is not None for tracked in self.tracked.values())

    def _pod_applied(self, pod: Pod) -> None:
        uid = pod.ref.uid
        tracked = self.tracked.get(uid)
        if tracked is None:
            tracked = self.tracked[uid] = PodState(pod, self._clock(), pod.scheduled_condition)
        elif tracked.pod == pod:
            tracked.pod = pod
            return
        # It holds what it held: that it is terminating, say, is news but no cure.
        self._rejection_backoff.pod_changed(tracked.pod, pod, self._clock())
        held, tracked.pod = tracked.pod.bound and not pod.finished, pod
        self.world.journal.received(InputKind.POD, pod)
        self._wake(self.ledger.apply(pod), self.queue.requeue_soon if held else self.queue.on_events)
        if pod.bound or pod.finished:
            self._binding_cycle.confirm(tracked, self._clock())
        elif pod.deleting_since is not None and tracked.bind_unknown_since is not None and not tracked.in_flight:
            # The API server binds no such pod, so no earlier try can land any more.
            self._binding_cycle.release(tracked, self._clock())
        if not awaits_placement(pod, self._policy):
            tracked.nominated = None
            self.queue.remove(uid)
        elif tracked.assumed is None:
            self.queue.add(uid)
            self.queue.set_priority(uid, self.settings.priority_of(pod))
            self._wakeup.set()

    def _pod_forgotten(self, pod: Pod) -> None:
        self.tracked.pop(pod.ref.uid, None)
        self.queue.remove(pod.ref.uid)
        self.world.journal.received(InputKind.POD, pod, gone=True)
        self._wake(self.ledger.forget(pod.ref.uid))

    def _wake(
        self, events: frozenset[ClusterEvent], how: Callable[[frozenset[ClusterEvent], float], None] | None = None
    ) -> None:
        now, news = self._clock(), self.world.cluster.candidates.news()
        if events:
            (how or self.queue.on_events)(events, now)
        if news:
            self.queue.on_events(news, now)
        if events or news:
            self._wakeup.set()

    def _strategy_changed(self) -> None:
        """The strategy is another one: whoever waits has another turn, in the order that it makes."""
        self.world.set_strategy(self.settings.strategy)
        self._reorder_all()
        self._requeue_all()

    def _limits_changed(self) -> None:
        """The limits are others: whoever waits for quota has another turn, and priorities count as far as they may."""
        self._reorder_all()
        self.world.set_limits(self.limits.limits, self.tracked.namespaces())

    def _reorder_all(self) -> None:
        for uid, pod in self.tracked.awaiting(self._policy):
            self.queue.set_priority(uid, self.settings.priority_of(pod))

    def _requeue_all(self) -> None:
        for uid in self.tracked.waiting(self._policy):
            self.queue.add(uid)
        self._wakeup.set()

    async def _wait_for_work(self, now: float) -> None:
        """Sleep until there is something to do, or something is due."""
        dues = [due for due in (self.queue.next_due(now), self.world.next_due) if due is not None]
        seconds = min(max(min(dues, default=inf) - now, 0), self._timings.interval)
        self._heartbeat = now + seconds
        self._wakeup.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()

    def _schedule_safely(self, uid: str, began: float) -> bool:
        """An error of our own costs the pod that it happens with its turn, and nobody else."""
        try:
            return self._schedule_one(uid, began)
        except Exception:
            log.exception("Deciding ended in an error of our own", extra={"uid": uid})
            self.queue.back_off(uid, self._clock())
            return False

    def _schedule_one(self, uid: str, began: float) -> bool:
        """Decide on one pod and apply it; True when a write has started, which keeps its slot."""
        tracked = self.tracked.get(uid)
        if tracked is None:
            self.queue.remove(uid)
            return False
        if tracked.bind_unknown_since is not None and tracked.assumed is not None:
            self._binding_cycle.start(tracked, tracked.assumed, began)
            return True
        decision = decide(tracked.pod, self.world.cluster)
        damped = self._rejection_backoff.delay(tracked.pod, decision, began) if isinstance(decision, Bind) else None
        if damped is not None:
            wait, rest = damped
            self._status_writer.write(tracked, wait)
            self.queue.back_off(uid, self._clock(), rest)
            self._ports.recorder.attempted(Result.UNSCHEDULABLE, self._clock() - began)
            return False
        self.world.journal.decided(tracked.pod.ref, decision)
        match decision:
            case None:
                self.queue.remove(uid)
            case Bind():
                self.ledger.assume(tracked.pod, decision.placement)
                tracked.assumed, tracked.nominated = decision, None
                self.queue.assumed(uid)
                self._binding_cycle.start(tracked, decision, began)
                return True
            case Wait(selection=selection, cured_by=events):
                self._mark_unschedulable(tracked, decision, events, began)
                if selection is not None and selection.claims:
                    self._binding_cycle.start_volumes(tracked.pod, selection)
                    return True
            case Refuse():
                self._mark_unschedulable(tracked, decision, frozenset(), began)
        return False

    def _mark_unschedulable(
        self, tracked: PodState, decision: Wait | Refuse, events: frozenset[ClusterEvent], began: float
    ) -> None:
        self._status_writer.write(tracked, decision)
        self.queue.add_unschedulable(decision.pod.uid, events, self._clock())
        reserve = decision.reserve if isinstance(decision, Wait) else None
        if reserve != tracked.nominated:
            tracked.nominated = reserve
            self._wake(self.ledger.nominate(decision.pod.uid, reserve))
        self._ports.recorder.attempted(Result.UNSCHEDULABLE, self._clock() - began)

    def _run_audit(self, now: float) -> None:
        """Silent monitors, conflicts and corruption are looked for also while there is work."""
        try:
            self.world.expire_monitors()
            ledger = self._audit.run(now, self.ledger, lambda: self.world.rebuild_ledger(self.tracked))
        except Exception:
            log.exception("The audit ended in an error of our own")
            return
        if ledger is not self.ledger:
            self.world.replace(ledger)
            # What the wrong entries kept waiting can't be told: everybody has another turn.
            self._requeue_all()
