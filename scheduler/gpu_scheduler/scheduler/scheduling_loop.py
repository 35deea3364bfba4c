"""The scheduling loop: applies what the watches deliver, lets the core decide on each pod, and applies the decision.

LAW: one task decides, one pod at a time. Binds are sent concurrently. An assumed placement stays held until its bind is
confirmed or released.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

from gpu_scheduler.core.cluster_events import NO_EVENTS
from gpu_scheduler.core.decide import decide, filtering
from gpu_scheduler.core.decision import Bind, Refuse, Wait, awaits_placement
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.scheduling_queue import SchedulingQueue
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.kube.turns import ApplyingLists, Turn
from gpu_scheduler.scheduler.audit import LedgerAudit
from gpu_scheduler.scheduler.binding_cycle import BINDERS, BindingCycle
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.cordon_confirmer import CordonConfirmer
from gpu_scheduler.scheduler.dynamic_config import DynamicConfig
from gpu_scheduler.scheduler.limits_config import LimitsConfig
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from gpu_scheduler.scheduler.ports import AttemptResult, InputKind
from gpu_scheduler.scheduler.rejection_backoff import RejectionBackoff
from gpu_scheduler.scheduler.status_writer import StatusWriter
from gpu_scheduler.scheduler.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.ledger.ledger import Ledger
    from gpu_scheduler.core.nodes.cordons import NodeCordons
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.scheduler.ports import Ports

log = logging.getLogger(__name__)

_LINE_CHECKS: Final = 300
"""How many lines of a map one decision checks: in 3 to 8 ms. A map of 64 KiB may have 8,000. If none of them fits, the
next decision checks the next ones, after those of other pods."""


class Scheduler:
    """The scheduling loop, its queue and its cache. Event handlers may be called at any time; only `run` decides."""

    def __init__(  # noqa: PLR0913 - what tests turn, each with its default
        self,
        policy: Policy,
        ports: Ports,
        *,
        strategy: Strategy = Strategy.LEAST_UTILIZED,
        timings: Timings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        processor: Callable[[], float] = lambda: 0.0,
        binders: int = BINDERS,
        poll_watches: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the loop; it decides nothing before `run`.

        `strategy` applies until the settings name another. `processor` is the processor time of this thread: what
        decisions cost. At most `binders` writes run at once. `poll_watches` lets watches that pause between reads read
        at once, and returns whether there was anything to read.
        """
        self._policy = policy
        self._ports = ports
        self._timings = timings or Timings()
        self._clock = clock
        self._processor = processor
        self.cache = ClusterCache(policy, self._on_events, clock=clock, wall=wall, journal=ports.journal)
        self.cache.cluster = replace(self.cache.cluster, line_checks=_LINE_CHECKS)
        self.cache.set_strategy(strategy)
        self.limits = LimitsConfig(self._limits_changed)
        self.settings = DynamicConfig(strategy, self._strategy_changed, lambda: self.limits.limits)
        self.queue = SchedulingQueue(self._timings.backoff_first, self._timings.backoff_longest, self._timings.resync)
        self._audit = LedgerAudit(
            ports.event_recorder,
            ports.repairs,
            now=clock(),
            interval=self._timings.interval,
            rebuild=self._timings.audit,
        )
        self.pod_states = PodStates()
        self._rejection_backoff = RejectionBackoff()
        self._status_writer = StatusWriter(ports.event_recorder)
        self._wakeup = asyncio.Event()
        self._binding_cycle = BindingCycle(
            ports,
            self._status_writer,
            self.pod_states,
            cache=self.cache,
            queue=self.queue,
            on_events=self._on_events,
            on_end=self._wakeup.set,
            clock=clock,
            binders=binders,
        )

        self.lists = ApplyingLists()
        """Nothing is decided while the watches apply one."""
        self.cordon_confirmer = CordonConfirmer(self.pod_states)
        self._poll_watches = poll_watches
        self._stopping = False
        self._heartbeat: float | None = None
        self.attempts = 0
        """How many pods were tried so far."""
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)
        self.cordons = EventHandlerFuncs(self._cordons_applied, self._cordons_forgotten)

    @property
    def ledger(self) -> Ledger:
        """The ledger that decisions read."""
        return self.cache.cluster.ledger

    @property
    def heartbeat_age(self) -> float:
        """Seconds by which the loop's next iteration is late; 0 before `run`. A sleep that it chose does not count."""
        return 0.0 if self._heartbeat is None else max(0.0, self._clock() - self._heartbeat)

    @property
    def busy(self) -> bool:
        """Whether all slots for writes are taken, or will be soon.

        Between two writes a slot is free for a moment. So writes in flight together with an active pod count as busy.
        """
        return self._binding_cycle.full or (self._binding_cycle.busy and self.queue.any_active())

    @property
    def writes(self) -> int:
        """The number of writes in flight: binds, claims and volumes."""
        return self._binding_cycle.writes

    @property
    def attempts_due(self) -> int:
        """The number of attempts after which each pod that is active now has had one, if no other comes first."""
        return self.attempts + self.queue.active()

    async def run(self) -> None:
        """Decide until `drain`. The heartbeat is renewed whether or not there is work, or a slot for a write."""
        while not self._stopping:
            self._heartbeat = self._clock() + self._timings.interval
            has_slot = await self._binding_cycle.take_slot(self._timings.interval)
            if self._poll_watches():
                await asyncio.sleep(0)  # the watch tasks apply what they have read before this task continues
            self._heartbeat = began = self._clock()
            await self._run_audit(began)
            if not has_slot:
                continue
            await self.lists.ended()
            uid = None if self._stopping else self.queue.pop(began)
            if uid is None:
                self._binding_cycle.return_slot()
                await self._wait_for_work(began)
                continue
            cost = await self._filter_nodes(uid)
            if self._stopping or not self.queue.popped(uid):
                # It has changed meanwhile, and is active again or gone.
                self._binding_cycle.return_slot()
                continue
            self.attempts += 1
            if not self._schedule_safely(uid, began, cost):
                self._binding_cycle.return_slot()
            # Let the watch tasks and the binds run between two decisions.
            await asyncio.sleep(0)

    async def drain(self, seconds: float) -> bool:
        """Stop deciding and wait at most `seconds` for the binds in flight. Return True if all outcomes are known."""
        self._stopping = True
        self._wakeup.set()
        await self._binding_cycle.drain(seconds)
        return not any(state.in_flight or state.bind_unknown_since is not None for state in self.pod_states.values())

    def _pod_applied(self, pod: Pod) -> None:
        uid = pod.ref.uid
        state = self.pod_states.get(uid)
        if state is None:
            state = self.pod_states[uid] = PodState(pod, self._clock())
        elif state.pod == pod:
            state.see(pod)
            return
        self._rejection_backoff.pod_changed(state.pod, pod, self._clock())
        # A bound pod that changes still holds its devices (while it terminates, say): only the reason of pods that wait
        # for them may change. So these pods are not requeued at once.
        held = state.pod.bound and not pod.finished
        state.see(pod)
        self.cache.journal.received(InputKind.POD, pod)
        self._on_events(self.ledger.apply(pod), self.queue.requeue_soon if held else self.queue.on_events)
        if pod.bound or pod.finished:
            self._binding_cycle.confirm(state, self._clock())
        elif pod.deleting_since is not None and state.bind_unknown_since is not None and not state.in_flight:
            # The API server does not bind a pod that is being deleted, so no earlier try can still succeed.
            self._binding_cycle.release(state, self._clock())
        if not awaits_placement(pod, self._policy):
            state.reserved_index = None
            self.queue.remove(uid)
        elif state.assumed is None:
            self.queue.add(uid, self._clock(), pod.created, pod.ref.namespace)
            self.queue.set_priority(uid, self.settings.priority_of(pod))
            self._wakeup.set()

    def _pod_forgotten(self, pod: Pod) -> None:
        self.pod_states.pop(pod.ref.uid, None)
        self.queue.remove(pod.ref.uid)
        self.cache.journal.received(InputKind.POD, pod, gone=True)
        self._on_events(self.ledger.forget(pod.ref.uid))

    def _cordons_applied(self, cordons: NodeCordons) -> None:
        self.cache.cordons.applied(cordons)
        self.cordon_confirmer.applied(cordons)

    def _cordons_forgotten(self, cordons: NodeCordons) -> None:
        self.cache.cordons.forgotten(cordons)
        self.cordon_confirmer.forgotten(cordons)

    def _on_events(
        self, events: frozenset[ClusterEvent], requeue: Callable[[frozenset[ClusterEvent], float], None] | None = None
    ) -> None:
        now, class_events = self._clock(), self.cache.cluster.pop_events()
        if events:
            (requeue or self.queue.on_events)(events, now)
        if class_events:
            self.queue.on_events(class_events, now)
        if events or class_events:
            self._wakeup.set()

    def _strategy_changed(self) -> None:
        """Apply the new strategy: order all pods by it, and requeue all waiting pods."""
        self.cache.set_strategy(self.settings.strategy)
        self._reorder_all()
        self._requeue_all()

    def _limits_changed(self) -> None:
        """Apply the new limits: order all pods by their new priorities, and requeue pods that wait for quota."""
        self._reorder_all()
        self.cache.set_limits(self.limits.limits, self.pod_states.namespaces())

    def _reorder_all(self) -> None:
        for uid, pod in self.pod_states.awaiting(self._policy):
            self.queue.set_priority(uid, self.settings.priority_of(pod))

    def _requeue_all(self) -> None:
        now = self._clock()
        for uid in self.pod_states.waiting(self._policy):
            self.queue.add(uid, now)
        self._wakeup.set()

    async def _wait_for_work(self, now: float) -> None:
        """Sleep until there is work or a timer is due, at most `Timings.interval`."""
        dues = [due for due in (self.queue.next_due(now), self.cache.next_due) if due is not None]
        seconds = min(max(min(dues, default=inf) - now, 0), self._timings.interval)
        self._heartbeat = now + seconds
        self._wakeup.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()

    async def _filter_nodes(self, uid: str) -> float:
        """Filter the nodes in turns if the pod has no map and is the first of its class. Return the processor time."""
        state, cost = self.pod_states.get(uid), 0.0
        if state is None or state.pod.request.line is not None:
            return cost
        try:
            turn, began = Turn(), self._processor()
            for _ in filtering(state.pod, self.cache.cluster):
                cost += self._processor() - began
                await turn.pause()
                began = self._processor()
        except Exception:
            log.exception("Filtering failed with an internal error", extra={"uid": uid})
        await self.lists.ended()
        return cost

    def _schedule_safely(self, uid: str, began: float, cost: float) -> bool:
        """Run `_schedule_one`. An unexpected exception costs this pod one attempt and affects no other pod."""
        try:
            return self._schedule_one(uid, began, cost)
        except Exception:
            log.exception("Deciding failed with an internal error", extra={"uid": uid})
            self.queue.back_off(uid, self._clock())
            return False

    def _schedule_one(self, uid: str, began: float, cost: float) -> bool:
        """Decide on one pod and apply the decision. Return True if a write has started, which keeps its slot.

        `cost` is the processor time that the attempt has taken so far.
        """
        state = self.pod_states.get(uid)
        if state is None or state.releasing:
            # A bind would use the claims that are being withdrawn.
            self.queue.remove(uid) if state is None else self.queue.back_off(uid, self._clock())
            return False
        if state.bind_unknown_since is not None and state.assumed is not None:
            self._binding_cycle.start(state, state.assumed, began)
            return True
        used = self._processor()
        decision = decide(state.pod, self.cache.cluster)
        backoff = self._rejection_backoff.delay(state.pod, decision, began) if isinstance(decision, Bind) else None
        if backoff is not None:
            wait, rest = backoff
            self._status_writer.write(state, wait)
            self.queue.back_off(uid, self._clock(), rest)
            self._ports.recorder.attempted(AttemptResult.UNSCHEDULABLE, self._clock() - began)
            self._ports.recorder.waits(wait.reason)
            return False
        self.cache.journal.decided(state.pod.ref, decision)
        match decision:
            case None:
                self.queue.remove(uid)
            case Bind():
                state.assumed, state.reserved_index, state.waits_for = decision, None, None
                self._on_events(self.ledger.assume(state.pod, decision.placement))
                self.queue.assumed(uid, self._clock())
                self._binding_cycle.start(state, decision, began)
                return True
            case Wait() | Refuse():
                self._mark_unschedulable(state, decision, began, cost + self._processor() - used)
                return self._start_writes(state, decision)
        return False

    def _start_writes(self, state: PodState, decision: Wait | Refuse) -> bool:
        """Start the write that a waiting pod needs: one at a time. Return True if one has started.

        ResourceClaims that are reserved for it are withdrawn, and its volumes are made where it will run.
        """
        pod = state.pod
        claims = self.cache.reserved_for(pod) if pod.resource_claims else ()
        if claims:
            self._binding_cycle.start_release(state, claims)
            return True
        selection = decision.selection if isinstance(decision, Wait) else None
        if selection is None or not selection.claims:
            return False
        self._binding_cycle.start_volumes(pod, selection)
        return True

    def _mark_unschedulable(self, state: PodState, decision: Wait | Refuse, began: float, cost: float) -> None:
        self._status_writer.write(state, decision)
        events = decision.cured_by if isinstance(decision, Wait) else NO_EVENTS
        self.queue.add_unschedulable(decision.pod.uid, events, self._clock(), cost)
        reserve = decision.reserve if isinstance(decision, Wait) else None
        if reserve != state.reserved_index:
            state.reserved_index = reserve
            self._on_events(self.ledger.reserve_index(decision.pod.uid, reserve))
        self._ports.recorder.attempted(AttemptResult.UNSCHEDULABLE, self._clock() - began)
        self._ports.recorder.waits(decision.reason)
        # Its decision may have ended before all lines of its map were checked.
        self._on_events(NO_EVENTS)

    async def _run_audit(self, now: float) -> None:
        """Check for expired monitor Leases, ended cordons, conflicts and wrong ledger entries.

        It runs also while there is work.
        """
        try:
            self.cache.expire_monitors()
            self.cache.end_cordons()
            ledger = await self._audit.run(
                now, self.ledger, lambda: self.cache.ledger_steps(self.pod_states), self.lists.ended
            )
        except Exception:
            log.exception("The audit failed with an internal error")
            return
        if ledger is not self.ledger:
            self.cache.replace(ledger)
            # Any pod may have waited because of the wrong entries, so all waiting pods are requeued.
            self._requeue_all()
