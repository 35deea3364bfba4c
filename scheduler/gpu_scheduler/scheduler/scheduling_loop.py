"""The loop: gather what the watches show, let core decide, apply the decision. Placement is not its business.

LAW: one task decides, one pod at a time; binds fly beside it. What a pod was promised stays held until it is settled.
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
from gpu_scheduler.scheduler.binding_cycle import BINDERS, BindingCycle, select_claims
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.dynamic_config import DynamicConfig
from gpu_scheduler.scheduler.limits_config import LimitsConfig
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from gpu_scheduler.scheduler.ports import InputKind, Result, Unknown
from gpu_scheduler.scheduler.rejection_backoff import RejectionBackoff
from gpu_scheduler.scheduler.status_writer import StatusWriter
from gpu_scheduler.scheduler.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.filters.volumes import Selection
    from gpu_scheduler.core.ledger.ledger import Ledger
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.scheduler.ports import BindResult, Ports

log = logging.getLogger(__name__)


class Scheduler:
    """Its feeds may be filled at any time; nothing is decided before `run`."""

    def __init__(  # noqa: PLR0913 - what tests turn, each with its default
        self,
        policy: Policy,
        ports: Ports,
        *,
        strategy: Strategy = Strategy.LEAST_UTILIZED,
        rhythm: Timings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        binders: int = BINDERS,
        hurry: Callable[[], bool] = lambda: False,
    ) -> None:
        """`strategy` holds until settings name another; `binders` writes may fly; `hurry` reads what watches left."""
        self._policy = policy
        self._ports = ports
        self._rhythm = rhythm or Timings()
        self._clock = clock
        self.world = ClusterCache(policy, self._wake, clock=clock, wall=wall, journal=ports.journal)
        self.world.steer(strategy)
        self.limits = LimitsConfig(self._limit)
        self.settings = DynamicConfig(strategy, self._turn, lambda: self.limits.limits)
        self.backlog = SchedulingQueue(self._rhythm.backoff_first, self._rhythm.backoff_longest, self._rhythm.resync)
        self._audit = LedgerAudit(
            ports.announcer, ports.repairs, now=clock(), look=self._rhythm.interval, rebuild=self._rhythm.audit
        )
        self.tracked = PodStates()
        self._damping = RejectionBackoff()
        self._teller = StatusWriter(ports.announcer)
        self._landing = BindingCycle(ports, self._teller, world=self.world, backlog=self.backlog, wake=self._wake)
        self._slots = asyncio.Semaphore(binders)
        self._hurry = hurry
        self._flights: set[asyncio.Task[None]] = set()
        self._stir = asyncio.Event()
        self._stopping = False
        self._beat: float | None = None
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)

    @property
    def ledger(self) -> Ledger:
        """The one that decisions are made by."""
        return self.world.cluster.ledger

    @property
    def pulse(self) -> float:
        """Seconds by which the loop's next turn is late; 0 before it runs. A rest that it chose is not late."""
        return 0.0 if self._beat is None else max(0.0, self._clock() - self._beat)

    @property
    def busy(self) -> bool:
        """As many writes fly as may, or soon will: between two of them there is room for a moment."""
        return self._slots.locked() or (bool(self._flights) and self.backlog.any_active())

    async def run(self) -> None:
        """Decide until `drain`; the beat goes on whether or not there is work."""
        while not self._stopping:
            self._beat = self._clock()
            await self._slots.acquire()
            if self._hurry():
                await asyncio.sleep(0)  # the watches' next turn, in which they take it in, is before ours
            self._beat = began = self._clock()
            self._look_after(began)
            uid = None if self._stopping else self.backlog.pop(began)
            if uid is None:
                self._slots.release()
                await self._rest(began)
                continue
            if not self._dare_to_look_at(uid, began):
                self._slots.release()
            # Give the watches and the binds their turn between two decisions.
            await asyncio.sleep(0)

    async def drain(self, seconds: float) -> bool:
        """Decide nothing more and let flying binds land, at most so long. True when no bind of ours is unsettled."""
        self._stopping = True
        self._stir.set()
        if self._flights:
            await asyncio.wait(self._flights, timeout=seconds)
        return not any(tracked.flying or tracked.unsettled is not None for tracked in self.tracked.values())

    def _pod_applied(self, pod: Pod) -> None:
        uid = pod.ref.uid
        tracked = self.tracked.get(uid)
        if tracked is None:
            tracked = self.tracked[uid] = PodState(pod, self._clock(), pod.scheduled_condition)
        elif tracked.pod == pod:
            tracked.pod = pod
            return
        # It holds what it held: that it is terminating, say, is news but no cure.
        self._damping.shown(tracked.pod, pod, self._clock())
        held, tracked.pod = tracked.pod.bound and not pod.finished, pod
        self.world.journal.took(InputKind.POD, pod)
        self._wake(self.ledger.apply(pod), self.backlog.hint if held else self.backlog.wake)
        if pod.bound or pod.finished:
            self._landing.shown(tracked, self._clock())
        elif pod.deleting_since is not None and tracked.unsettled is not None and not tracked.flying:
            # The API server binds no such pod, so no earlier try can land any more.
            self._landing.release(tracked, self._clock())
        if not awaits_placement(pod, self._policy):
            tracked.reserved = None
            self.backlog.remove(uid)
        elif tracked.promised is None:
            self.backlog.add(uid)
            self.backlog.rank(uid, self.settings.rank(pod))
            self._stir.set()

    def _pod_forgotten(self, pod: Pod) -> None:
        self.tracked.pop(pod.ref.uid, None)
        self.backlog.remove(pod.ref.uid)
        self.world.journal.took(InputKind.POD, pod, gone=True)
        self._wake(self.ledger.forget(pod.ref.uid))

    def _wake(
        self, wakes: frozenset[ClusterEvent], how: Callable[[frozenset[ClusterEvent], float], None] | None = None
    ) -> None:
        now, news = self._clock(), self.world.cluster.candidates.news()
        if wakes:
            (how or self.backlog.wake)(wakes, now)
        if news:
            self.backlog.wake(news, now)
        if wakes or news:
            self._stir.set()

    def _turn(self) -> None:
        """The strategy is another one: whoever waits has another turn, in the order that it makes."""
        self.world.steer(self.settings.strategy)
        self._rank_all()
        self._look_at_all()

    def _limit(self) -> None:
        """The limits are others: whoever waits for quota has another turn, and priorities count as far as they may."""
        self._rank_all()
        self.world.limit(self.limits.limits, self.tracked.namespaces())

    def _rank_all(self) -> None:
        for uid, pod in self.tracked.awaiting(self._policy):
            self.backlog.rank(uid, self.settings.rank(pod))

    def _look_at_all(self) -> None:
        for uid in self.tracked.waiting(self._policy):
            self.backlog.add(uid)
        self._stir.set()

    async def _rest(self, now: float) -> None:
        """Sleep until something stirs or is due."""
        dues = [due for due in (self.backlog.next_due(now), self.world.next_due) if due is not None]
        seconds = min(max(min(dues, default=inf) - now, 0), self._rhythm.interval)
        self._beat = now + seconds
        self._stir.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stir.wait()

    def _dare_to_look_at(self, uid: str, began: float) -> bool:
        """An error of our own costs the pod that it happens with its turn, and nobody else."""
        try:
            return self._look_at(uid, began)
        except Exception:
            log.exception("Deciding ended in an error of our own", extra={"uid": uid})
            self.backlog.retry(uid, self._clock())
            return False

    def _look_at(self, uid: str, began: float) -> bool:
        """Decide on one pod and apply it; True when a write took off and with it a place among the binders."""
        tracked = self.tracked.get(uid)
        if tracked is None:
            self.backlog.remove(uid)
            return False
        if tracked.unsettled is not None and tracked.promised is not None:
            self._take_off(tracked, tracked.promised, began)
            return True
        decision = decide(tracked.pod, self.world.cluster)
        damped = self._damping.damped(tracked.pod, decision, began) if isinstance(decision, Bind) else None
        if damped is not None:
            wait, rest = damped
            self._teller.tell(tracked, wait)
            self.backlog.retry(uid, self._clock(), rest)
            self._ports.recorder.attempted(Result.UNSCHEDULABLE, self._clock() - began)
            return False
        self.world.journal.decided(tracked.pod.ref, decision)
        match decision:
            case None:
                self.backlog.remove(uid)
            case Bind():
                self.ledger.assume(tracked.pod, decision.placement)
                tracked.promised, tracked.reserved = decision, None
                self.backlog.placed(uid)
                self._take_off(tracked, decision, began)
                return True
            case Wait(selection=selection, wakes=wakes):
                self._put_off(tracked, decision, wakes, began)
                if selection is not None and selection.claims:
                    self._launch(self._select(tracked.pod, selection))
                    return True
            case Refuse():
                self._put_off(tracked, decision, frozenset(), began)
        return False

    def _put_off(
        self, tracked: PodState, decision: Wait | Refuse, wakes: frozenset[ClusterEvent], began: float
    ) -> None:
        self._teller.tell(tracked, decision)
        self.backlog.wait(decision.pod.uid, wakes, self._clock())
        reserve = decision.reserve if isinstance(decision, Wait) else None
        if reserve != tracked.reserved:
            tracked.reserved = reserve
            self._wake(self.ledger.reserve(decision.pod.uid, reserve))
        self._ports.recorder.attempted(Result.UNSCHEDULABLE, self._clock() - began)

    def _launch(self, flight: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(flight)
        self._flights.add(task)
        task.add_done_callback(self._flights.discard)

    async def _select(self, pod: Pod, selection: Selection) -> None:
        """Tell the provisioners of a waiting pod's claims its node; the watch of claims tells how that went."""
        failure: str | None = "it was cut short"
        try:
            failure = await select_claims(self._ports.claims, pod, selection)
        finally:
            if failure is not None:
                log.warning("A claim could not be given its node", extra={"pod": str(pod.ref), "error": failure})
                tracked = self.tracked.get(pod.ref.uid)
                if tracked is not None and tracked.promised is None and awaits_placement(tracked.pod, self._policy):
                    self.backlog.retry(pod.ref.uid, self._clock())
            self._slots.release()
            self._stir.set()

    def _take_off(self, tracked: PodState, bind: Bind, began: float) -> None:
        tracked.flying = True
        self._launch(self._fly(tracked, bind, began))

    async def _fly(self, tracked: PodState, bind: Bind, began: float) -> None:
        result: BindResult = Unknown("the bind was cut short")
        try:
            await self._teller.hush(tracked)
            result = await self._ports.binder.bind(bind)
        except Exception:
            log.exception("A bind ended in an error of our own: its outcome is unknown", extra={"pod": str(bind.pod)})
        finally:
            tracked.flying = False
            self._slots.release()
            # Gone meanwhile, its hold went with it.
            if self.tracked.get(bind.pod.uid) is tracked:
                self._landing.land(tracked, bind, result, began=began, now=self._clock())
            self._stir.set()

    def _look_after(self, now: float) -> None:
        """Silent monitors, conflicts and corruption are looked for also while there is work."""
        try:
            self.world.listen()
            ledger = self._audit.run(now, self.ledger, lambda: self.world.rebuilt(self.tracked))
        except Exception:
            log.exception("The audit ended in an error of our own")
            return
        if ledger is not self.ledger:
            self.world.replace(ledger)
            # What the wrong entries kept waiting can't be told: everybody has another turn.
            self._look_at_all()
