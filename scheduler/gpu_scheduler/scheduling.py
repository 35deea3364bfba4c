"""The loop: gather what the watches show, let core decide, apply the decision. Placement is not its business.

LAW: one task decides, one pod at a time; binds fly beside it. What a pod was promised stays held until it is settled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_scheduler.core.backlog import Backlog
from gpu_scheduler.core.decide import Bind, Refuse, Wait, awaits_placement, decide
from gpu_scheduler.core.ledger import Ledger
from gpu_scheduler.core.nodes import Nodes
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.notices import conflict_notice, notice_of
from gpu_scheduler.ports import Bound, Dropped, Failed, NotSent, Result, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.ledger import Conflict
    from gpu_scheduler.core.model import Condition, Node, Pod, Policy
    from gpu_scheduler.core.reasons import Wake
    from gpu_scheduler.ports import Announcer, Binder, BindResult, Recorder

T = TypeVar("T")

BINDERS = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Feed(Generic[T]):
    """Where a watch delivers: fits ports.Observer."""

    applied: Callable[[T], None]
    forgotten: Callable[[T], None]


@dataclass(slots=True)
class _Tracked:
    """What the loop remembers of one pod."""

    pod: Pod
    first_seen: float
    told: Condition | None
    # A bind that was sent and whose outcome the API has not settled yet: it is sent again as it is, never decided anew.
    unsettled: Bind | None = None
    flying: bool = False


class Scheduler:
    """Feeds `pods` and `nodes` may be filled at any time; nothing is decided before `run`."""

    def __init__(  # noqa: PLR0913 - its three ports, and what tests turn
        self,
        policy: Policy,
        *,
        binder: Binder,
        announcer: Announcer,
        recorder: Recorder,
        clock: Callable[[], float] = time.monotonic,
        interval: float = 5.0,
        binders: int = BINDERS,
    ) -> None:
        """`interval` is the longest sleep in seconds, `binders` how many binds may fly at once."""
        self._policy = policy
        self._binder = binder
        self._announcer = announcer
        self._recorder = recorder
        self._clock = clock
        self._interval = interval
        self.ledger = Ledger(policy)
        self._nodes = Nodes()
        self.backlog = Backlog()
        self._tracked: dict[str, _Tracked] = {}
        self._conflicts: frozenset[Conflict] = frozenset()
        self._audit_due = clock()
        self._slots = asyncio.Semaphore(binders)
        self._flights: set[asyncio.Task[None]] = set()
        self._stir = asyncio.Event()
        self._stopping = False
        self._beat: float | None = None
        self.pods = Feed(self._pod_applied, self._pod_forgotten)
        self.nodes = Feed(self._node_applied, self._node_forgotten)

    @property
    def pulse(self) -> float:
        """Seconds by which the loop's next turn is late; 0 before it runs. A rest that it chose is not late."""
        return 0.0 if self._beat is None else max(0.0, self._clock() - self._beat)

    def pending(self) -> int:
        """How many of our pods have no node yet and are not finished."""
        return sum(not (tracked.pod.bound or tracked.pod.finished) for tracked in self._tracked.values())

    def running(self) -> int:
        """How many of our pods have a node and are not finished."""
        return sum(tracked.pod.bound and not tracked.pod.finished for tracked in self._tracked.values())

    async def run(self) -> None:
        """Decide until `drain`; the beat goes on whether or not there is work."""
        while not self._stopping:
            self._beat = self._clock()
            await self._slots.acquire()
            self._beat = began = self._clock()
            uid = None if self._stopping else self.backlog.pop(began)
            if uid is None:
                self._slots.release()
                await self._rest(began)
                continue
            if not self._look_at(uid, began):
                self._slots.release()
            # Give the watches and the binds their turn between two decisions.
            await asyncio.sleep(0)

    async def drain(self, seconds: float) -> bool:
        """Decide nothing more and let flying binds land, at most so long. True when no bind of ours is unsettled."""
        self._stopping = True
        self._stir.set()
        if self._flights:
            await asyncio.wait(self._flights, timeout=seconds)
        return not any(tracked.flying or tracked.unsettled for tracked in self._tracked.values())

    def _pod_applied(self, pod: Pod) -> None:
        uid = pod.ref.uid
        tracked = self._tracked.get(uid)
        if tracked is None:
            tracked = self._tracked[uid] = _Tracked(pod, self._clock(), pod.scheduled_condition)
        elif tracked.pod == pod:
            tracked.pod = pod
            return
        tracked.pod = pod
        self._wake(self.ledger.apply(pod))
        if pod.bound:
            tracked.unsettled = None
        if not awaits_placement(pod, self._policy):
            self.backlog.remove(uid)
        elif not tracked.flying and tracked.unsettled is None:
            self.backlog.add(uid)
            self._stir.set()

    def _pod_forgotten(self, pod: Pod) -> None:
        self._tracked.pop(pod.ref.uid, None)
        self.backlog.remove(pod.ref.uid)
        self._wake(self.ledger.forget(pod.ref.uid))

    def _node_applied(self, node: Node) -> None:
        self._wake(self._nodes.apply(node))

    def _node_forgotten(self, node: Node) -> None:
        self._wake(self._nodes.forget(node.name))

    def _wake(self, wakes: frozenset[Wake]) -> None:
        if wakes:
            self.backlog.wake(wakes, self._clock())
            self._stir.set()

    async def _rest(self, now: float) -> None:
        """Sleep until something stirs or is due."""
        if now >= self._audit_due:
            self._audit_due = now + self._interval
            self._report_conflicts()
        due = self.backlog.next_due(now)
        seconds = self._interval if due is None else min(max(due - now, 0), self._interval)
        self._beat = now + seconds
        self._stir.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._stir.wait()
        except TimeoutError:
            pass

    def _look_at(self, uid: str, began: float) -> bool:
        """Decide on one pod and apply it; True when a bind took off and with it a place among the binders."""
        tracked = self._tracked.get(uid)
        if tracked is None:
            self.backlog.remove(uid)
            return False
        if tracked.unsettled is not None:
            self._take_off(tracked, tracked.unsettled, began)
            return True
        decision = decide(tracked.pod, self.ledger, self._nodes, self._policy)
        match decision:
            case None:
                self.backlog.remove(uid)
            case Bind():
                self.ledger.assume(tracked.pod, decision.placement)
                self._take_off(tracked, decision, began)
                return True
            case Wait() | Refuse():
                self._tell(tracked, decision)
                self.backlog.wait(uid, decision.wakes if isinstance(decision, Wait) else (), self._clock())
                self._recorder.attempted(Result.UNSCHEDULABLE, self._clock() - began)
        return False

    def _take_off(self, tracked: _Tracked, bind: Bind, began: float) -> None:
        tracked.flying = True
        flight = asyncio.create_task(self._fly(tracked, bind, began))
        self._flights.add(flight)
        flight.add_done_callback(self._flights.discard)

    async def _fly(self, tracked: _Tracked, bind: Bind, began: float) -> None:
        result: BindResult = Unknown("the bind was cut short")
        try:
            if await self._announcer.withdraw(bind.pod):
                tracked.told = None
            result = await self._binder.bind(bind)
        except Exception:
            log.exception("A bind ended in an error of our own: its outcome is unknown", extra={"pod": str(bind.pod)})
        finally:
            tracked.flying = False
            self._slots.release()
            self._land(tracked, bind, result, began)
            self._stir.set()

    def _land(self, tracked: _Tracked, bind: Bind, result: BindResult, began: float) -> None:
        """Confirm, release or keep what was assumed."""
        uid, now = bind.pod.uid, self._clock()
        if self._tracked.get(uid) is not tracked:
            # Gone meanwhile; its hold went with it.
            return
        if tracked.unsettled is not None and isinstance(result, Failed | NotSent):
            # This write did nothing, but the one before it may still land: only the pod itself can settle that.
            result = Unknown(f"still, after {result}")
        tracked.unsettled = None
        if tracked.pod.bound:
            # The watch was quicker than the answer, and the ledger already has what it showed.
            result = (
                Bound()
                if tracked.pod.node == bind.placement.node
                else Dropped(f"bound to {tracked.pod.node}, not by us")
            )
        details = {"pod": str(bind.pod), "node": bind.placement.node, "devices": bind.placement.value}
        match result:
            case Bound():
                log.info("Bound %s to %s", bind.pod, bind.placement.node, extra=details)
                self._announcer.announce(bind.pod, notice_of(bind))
                self._recorder.attempted(Result.SCHEDULED, now - began)
                self._recorder.placed(now - tracked.first_seen)
            case Failed(message):
                log.warning("Binding failed", extra={**details, "error": message})
                self._release(tracked)
                self._tell(tracked, Wait(bind.pod, Reason.BIND_FAILED, message, frozenset()))
                self._recorder.attempted(Result.ERROR, now - began)
            case Dropped(why) | NotSent(why):
                log.info("A bind was dropped", extra={**details, "why": why})
                self._release(tracked)
            case Unknown(why):
                log.warning("A bind's outcome is unknown: its devices stay held", extra={**details, "why": why})
                tracked.unsettled = bind
                self.backlog.retry(uid, now)
                self._recorder.attempted(Result.ERROR, now - began)

    def _release(self, tracked: _Tracked) -> None:
        """Take the assumption back; the pod itself is looked at again when its back-off is over."""
        uid = tracked.pod.ref.uid
        if not tracked.pod.bound:
            self._wake(self.ledger.forget(uid))
            self.backlog.retry(uid, self._clock())

    def _tell(self, tracked: _Tracked, decision: Wait | Refuse) -> None:
        """Say it once: the same words again would only cost writes."""
        notice = notice_of(decision)
        if notice.condition == tracked.told:
            return
        log.info(
            "%s waits: %s",
            decision.pod,
            decision.message,
            extra={"pod": str(decision.pod), "reason": decision.reason},
        )
        if self._announcer.announce(decision.pod, notice):
            tracked.told = notice.condition

    def _report_conflicts(self) -> None:
        """Tell both pods' owners, once, of a GPU held twice against the rules: it should not exist."""
        found = frozenset(self.ledger.conflicts())
        for conflict in found - self._conflicts:
            for holder, other in ((conflict.first, conflict.second), (conflict.second, conflict.first)):
                self._announcer.announce(holder.ref, conflict_notice(conflict, holder, other))
        self._conflicts = found
