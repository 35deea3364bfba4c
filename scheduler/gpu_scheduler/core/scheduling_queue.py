"""Which pod is looked at next, and which change wakes which pod.

LAW: holds uids and times, nothing of pods; time comes in as `now`, monotonic seconds that never go back. A wake touches
only those who wait for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from typing import Final

from gpu_scheduler.core.cluster_events import ClassChanged, ClusterEvent, QuotaChanged

_SHARED: Final = (QuotaChanged, ClassChanged)
"""The changes that many pods wait for of which the first may take all."""

_SLACK: Final = 64
"""How many outdated timers or places there may be, beside one for each pod, before they are cleaned out."""

_PROMPT: Final = 3
"""How many wake-ups of a waiting pod are answered at once before they serve the back-off. A node that flaps, or where
others come and go, is soon slowed down."""


class _State(Enum):
    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    HANDED_OUT = auto()


@dataclass(slots=True)
class _QueuedPod:
    """What is known of one pending pod."""

    arrival: int
    """Its place in the order in which pods came."""
    state: _State
    priority: int = 0
    position: int = 0
    """Its place in the order in which pods became active."""
    attempts: int = 0
    """How many attempts in a row ended in waiting."""
    backoff: float = 0.0
    """Seconds it had to leave alone after its last attempt."""
    resting_until: float = 0.0
    due: float = 0.0
    """When it becomes active by itself, unless something does earlier."""
    events: tuple[ClusterEvent, ...] = ()
    shapes: tuple[ClusterEvent, ...] = ()
    """Those of them that many have in common who may all have the same GPUs, or quota; known until it is placed."""


class SchedulingQueue:
    """Pending pods by uid: active, in back-off, or unschedulable until something wakes them."""

    __slots__ = (
        "_active",
        "_arrivals",
        "_entries",
        "_initial",
        "_maximum",
        "_positions",
        "_resync",
        "_timers",
        "_waiting",
    )

    def __init__(self, initial: float = 1.0, maximum: float = 10.0, resync: float = 300.0) -> None:
        """Seconds: the first back-off, the longest, and how long a pod stays unschedulable without any change."""
        self._initial = initial
        self._maximum = maximum
        self._resync = resync
        self._arrivals = 0
        self._positions = 0
        self._entries: dict[str, _QueuedPod] = {}
        self._waiting: dict[ClusterEvent, dict[str, None]] = {}
        # In both some may be outdated; what an _Entry says now is what counts. Of one rank, whoever became active first
        # stands first: whoever is woken often must not keep others from their turn.
        self._active: list[tuple[int, int, str]] = []
        self._timers: list[tuple[float, int, str]] = []

    def add(self, uid: str) -> None:
        """A pod that is new or has changed itself: it is looked at when its turn comes, back-off or not."""
        self._activate(uid, self._entry(uid))

    def set_priority(self, uid: str, priority: int) -> None:
        """Put the pod before all of lower rank; among equals it keeps its place. An unknown uid is fine."""
        entry = self._entries.get(uid)
        if entry is not None and entry.priority != priority:
            entry.priority = priority
            if entry.state is _State.ACTIVE:
                self._push_active(uid, entry)

    def pop(self, now: float) -> str | None:
        """Hand out the pod of the highest rank that has been active for longest; it stays known until it is removed."""
        self._activate_due(now)
        if not self.any_active():
            return None
        _, _, uid = heappop(self._active)
        self._entries[uid].state = _State.HANDED_OUT
        return uid

    def add_unschedulable(self, uid: str, events: Iterable[ClusterEvent], now: float) -> None:
        """After a Wait or Refuse: unschedulable until one of `events`, a change of its own (`add`), or the resync."""
        entry = self._entry(uid)
        if self._long_ago(entry, now):
            entry.attempts = 0
        entry.attempts += 1
        if entry.attempts > _PROMPT:
            self._wait(uid, entry, now)
        else:
            self._stop_waiting(uid, entry)
            entry.resting_until = now
        entry.state = _State.UNSCHEDULABLE
        entry.events = tuple(dict.fromkeys(events))
        entry.shapes = tuple(wake for wake in entry.events if isinstance(wake, _SHARED))
        for wake in entry.events:
            self._waiting.setdefault(wake, {})[uid] = None
        self._set_timer(uid, entry, now + self._resync)

    def back_off(self, uid: str, now: float, patience: float = 0.0) -> None:
        """After an error: active again by itself when its back-off is over, and not within `patience` seconds."""
        entry = self._entry(uid)
        self._wait(uid, entry, now)
        entry.resting_until = max(entry.resting_until, now + patience)
        entry.state = _State.BACKOFF
        self._set_timer(uid, entry, entry.resting_until)

    def on_events(self, events: Iterable[ClusterEvent], now: float) -> None:
        """Something changed: who waits for it becomes active, or serves out its back-off first."""
        events = tuple(events)
        self._activate_first(events)
        woken = {uid: self._entries[uid] for wake in events for uid in self._waiting.get(wake, ())}
        # Of those who wait for one thing, who came first has the first turn.
        for uid, entry in sorted(woken.items(), key=lambda item: item[1].arrival):
            if now >= entry.resting_until:
                self._activate(uid, entry)
            elif entry.state is not _State.BACKOFF:
                entry.state = _State.BACKOFF
                self._set_timer(uid, entry, entry.resting_until)

    def assumed(self, uid: str) -> None:
        """What the pod waited for came: there may be some left for the next in line."""
        entry = self._entries.get(uid)
        if entry is not None:
            shapes, entry.shapes = entry.shapes, ()
            self._activate_first(shapes)

    def requeue_soon(self, events: Iterable[ClusterEvent], now: float) -> None:
        """Something changed that frees nothing: who waits for it is looked at soon, to be told another story."""
        for wake in events:
            for uid in self._waiting.get(wake, ()):
                entry = self._entries[uid]
                soon = max(now + self._initial, entry.resting_until)
                if soon < entry.due:
                    self._set_timer(uid, entry, soon)

    def remove(self, uid: str) -> None:
        """The pod is bound, gone, or no longer ours; an unknown uid is fine."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._stop_waiting(uid, entry)

    def next_due(self, now: float) -> float | None:
        """When `pop` will next have something: `now` if it has already, None if nobody waits."""
        self._activate_due(now)
        if self.any_active():
            return now
        return self._timers[0][0] if self._timers else None

    def any_active(self) -> bool:
        """Whether `pop` has somebody without a timer's help."""
        while self._active and not self._is_current(*self._active[0]):
            heappop(self._active)
        return bool(self._active)

    def counts(self) -> dict[str, int]:
        """How many are `active`, in `backoff`, and `unschedulable`; those handed out are in none."""
        states = [entry.state for entry in self._entries.values()]
        return {state.name.lower(): states.count(state) for state in _State if state is not _State.HANDED_OUT}

    def _entry(self, uid: str) -> _QueuedPod:
        entry = self._entries.get(uid)
        if entry is None:
            self._arrivals += 1
            entry = self._entries[uid] = _QueuedPod(self._arrivals, _State.HANDED_OUT)
        return entry

    def _activate(self, uid: str, entry: _QueuedPod) -> None:
        self._stop_waiting(uid, entry)
        if entry.state is not _State.ACTIVE:
            entry.state = _State.ACTIVE
            self._positions += 1
            entry.position = self._positions
            self._push_active(uid, entry)

    def _activate_first(self, events: Iterable[ClusterEvent]) -> None:
        """The first in line does not rest: where many wait for any GPU, none is left idle because all came in vain."""
        lines = (self._waiting.get(wake) for wake in events if isinstance(wake, _SHARED))
        firsts = {min(waiting, key=self._order) for waiting in lines if waiting}
        # Wakes come in no order: of those who wait for different things, too, who came first has the first turn.
        for first in sorted(firsts, key=self._order):
            self._activate(first, self._entries[first])

    def _order(self, uid: str) -> tuple[int, int]:
        entry = self._entries[uid]
        return -entry.priority, entry.arrival

    def _push_active(self, uid: str, entry: _QueuedPod) -> None:
        heappush(self._active, (-entry.priority, entry.position, uid))
        if len(self._active) > 2 * len(self._entries) + _SLACK:
            self._active = sorted({item for item in self._active if self._is_current(*item)})

    def _is_current(self, priority: int, position: int, uid: str) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and (entry.state, -entry.priority, entry.position) == (
            _State.ACTIVE,
            priority,
            position,
        )

    def _wait(self, uid: str, entry: _QueuedPod, now: float) -> None:
        """Each time in a row doubles the back-off, until the pod has been left alone for long."""
        self._stop_waiting(uid, entry)
        again = entry.backoff and not self._long_ago(entry, now)
        entry.backoff = min(2 * entry.backoff, self._maximum) if again else self._initial
        entry.resting_until = now + entry.backoff

    def _long_ago(self, entry: _QueuedPod, now: float) -> bool:
        """Whether nothing has been tried for so long that what was tried before counts no more."""
        return now >= entry.resting_until + self._maximum

    def _stop_waiting(self, uid: str, entry: _QueuedPod) -> None:
        for wake in entry.events:
            waiting = self._waiting[wake]
            del waiting[uid]
            if not waiting:
                del self._waiting[wake]
        entry.events = ()

    def _set_timer(self, uid: str, entry: _QueuedPod, due: float) -> None:
        entry.due = due
        heappush(self._timers, (due, entry.arrival, uid))
        if len(self._timers) > 2 * len(self._entries) + _SLACK:
            self._timers = sorted({item for item in self._timers if self._is_due(*item)})

    def _activate_due(self, now: float) -> None:
        """Activate whose time has come, and leave a timer in front that counts, or none."""
        while self._timers:
            due, arrival, uid = self._timers[0]
            valid = self._is_due(due, arrival, uid)
            if valid and due > now:
                return
            heappop(self._timers)
            if valid:
                self._activate(uid, self._entries[uid])

    def _is_due(self, due: float, arrival: int, uid: str) -> bool:
        entry = self._entries.get(uid)
        return (
            entry is not None
            and (entry.arrival, entry.due) == (arrival, due)
            and entry.state in {_State.BACKOFF, _State.UNSCHEDULABLE}
        )
