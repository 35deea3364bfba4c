"""The scheduling queue: which pod is tried next, and which cluster event requeues which pod.

LAW: the queue keeps uids and times, and no pod objects. Time is the argument `now`, in monotonic seconds. The cost of
an event depends only on the number of pods that wait for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from typing import Final

from gpu_scheduler.core.cluster_events import ClassChanged, ClusterEvent, QuotaChanged

_SHARED: Final = (QuotaChanged, ClassChanged)
"""Events that many pods wait for together. The first of these pods may take everything that became free."""

_SLACK: Final = 64
"""A heap may have twice as many entries as there are pods, and this many more, before outdated entries are removed."""

_REQUEUES_WITHOUT_BACKOFF: Final = 3
"""How many times in a row an unschedulable pod is requeued without back-off. After that, a node that flaps, or on which
pods often start and end, does not cause an attempt for each event."""


class _State(Enum):
    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    POPPED = auto()


_Order = tuple[int, str, int]
"""Negative priority, creation and arrival: the order of pods."""


@dataclass(slots=True)
class _QueuedPod:
    """The queue's state of one pending pod."""

    created: str
    """`creationTimestamp` as read (RFC 3339, UTC, seconds): such texts are in the order of time."""
    arrival: int
    """The pod's number in the order in which pods were added first. It decides between pods of one second."""
    state: _State = _State.POPPED
    priority: int = 0
    attempts: int = 0
    """How many attempts in a row ended in waiting."""
    backoff: float = 0.0
    """Seconds of back-off after its last attempt."""
    backoff_until: float = 0.0
    due: float = 0.0
    """When it becomes active without an event."""
    events: tuple[ClusterEvent, ...] = ()
    shared: tuple[ClusterEvent, ...] = ()
    """The events of `_SHARED` among `events`: several pods wait for the same devices or quota. Kept until it is
    placed."""

    @property
    def order(self) -> _Order:
        return -self.priority, self.created, self.arrival


class _Line:
    """Pods in their order. Its heap may have outdated entries: only what `_members` says is valid."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._members: dict[str, _Order] = {}
        self._heap: list[tuple[_Order, str]] = []

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, uid: str) -> bool:
        return uid in self._members

    def push(self, uid: str, order: _Order) -> None:
        """Add a pod, or change its order."""
        self._members[uid] = order
        heappush(self._heap, (order, uid))
        if len(self._heap) > 2 * len(self._members) + _SLACK:
            self._heap = sorted((order, uid) for uid, order in self._members.items())

    def discard(self, uid: str) -> None:
        """Remove a pod. An unknown uid is ignored."""
        self._members.pop(uid, None)

    def pop(self) -> str | None:
        """Remove and return the first pod, or None."""
        while self._heap:
            order, uid = heappop(self._heap)
            if self._members.get(uid) == order:
                del self._members[uid]
                return uid
        return None


class SchedulingQueue:
    """Pending pods by uid: active, in back-off, or unschedulable until an event requeues them."""

    __slots__ = (
        "_active",
        "_arrivals",
        "_entries",
        "_initial",
        "_lines",
        "_maximum",
        "_resync",
        "_timers",
        "_waiting",
    )

    def __init__(self, initial: float = 1.0, maximum: float = 10.0, resync: float = 300.0) -> None:
        """Start empty.

        All arguments are seconds: first and longest back-off, longest time in unschedulable without an event.
        """
        self._initial = initial
        self._maximum = maximum
        self._resync = resync
        self._arrivals = 0
        self._entries: dict[str, _QueuedPod] = {}
        self._waiting: dict[ClusterEvent, dict[str, None]] = {}
        self._lines: dict[ClusterEvent, _Line] = {}
        """The pods that wait for an event of `_SHARED`."""
        self._active = _Line()
        # It may have outdated entries: only the values in _QueuedPod are valid.
        self._timers: list[tuple[float, int, str]] = []

    def add(self, uid: str, created: str = "") -> None:
        """Make a pod active because it is new or has changed. A running back-off ends.

        `created` is its `creationTimestamp`. It is read only from a pod that the queue does not know yet.
        """
        self._activate(uid, self._entry(uid, created))

    def set_priority(self, uid: str, priority: int) -> None:
        """Set the pod's priority. An unknown uid is ignored."""
        entry = self._entries.get(uid)
        if entry is not None and entry.priority != priority:
            entry.priority = priority
            lines = (self._lines[event] for event in entry.shared if event in self._lines)
            for line in (self._active, *lines):
                if uid in line:
                    line.push(uid, entry.order)

    def pop(self, now: float) -> str | None:
        """Return the uid of the next pod, or None: highest priority first, then the oldest by creation.

        A restart keeps this order: only of pods of one second, the one that was added first goes first. The queue still
        knows the pod.
        """
        self._activate_due(now)
        uid = self._active.pop()
        if uid is not None:
            self._entries[uid].state = _State.POPPED
        return uid

    def add_unschedulable(self, uid: str, events: Iterable[ClusterEvent], now: float) -> None:
        """Put a pod after a Wait or Refuse into unschedulable.

        It stays there until one of `events`, a change of the pod (`add`), or the resync.
        """
        entry = self._entry(uid)
        if self._long_ago(entry, now):
            entry.attempts = 0
        entry.attempts += 1
        if entry.attempts > _REQUEUES_WITHOUT_BACKOFF:
            self._wait(uid, entry, now)
        else:
            self._stop_waiting(uid, entry)
            entry.backoff_until = now
        entry.state = _State.UNSCHEDULABLE
        entry.events = tuple(dict.fromkeys(events))
        entry.shared = tuple(event for event in entry.events if isinstance(event, _SHARED))
        for event in entry.events:
            self._waiting.setdefault(event, {})[uid] = None
        for event in entry.shared:
            self._lines.setdefault(event, _Line()).push(uid, entry.order)
        self._set_timer(uid, entry, now + self._resync)

    def back_off(self, uid: str, now: float, at_least: float = 0.0) -> None:
        """Put a pod after an error into back-off.

        It becomes active when the back-off and `at_least` seconds have passed.
        """
        entry = self._entry(uid)
        self._wait(uid, entry, now)
        entry.backoff_until = max(entry.backoff_until, now + at_least)
        entry.state = _State.BACKOFF
        self._set_timer(uid, entry, entry.backoff_until)

    def on_events(self, events: Iterable[ClusterEvent], now: float) -> None:
        """Requeue all pods that wait for one of `events`: active at once, or after their back-off."""
        events = tuple(events)
        self._activate_first(events)
        requeued = {uid: self._entries[uid] for event in events for uid in self._waiting.get(event, ())}
        for uid, entry in requeued.items():
            if now >= entry.backoff_until:
                self._activate(uid, entry)
            elif entry.state is not _State.BACKOFF:
                entry.state = _State.BACKOFF
                self._set_timer(uid, entry, entry.backoff_until)

    def assumed(self, uid: str) -> None:
        """The pod was assumed.

        Activate the next pod that waits for the same shared events: something may be left for it.
        """
        entry = self._entries.get(uid)
        if entry is not None:
            shared, entry.shared = entry.shared, ()
            self._activate_first(shared)

    def requeue_soon(self, events: Iterable[ClusterEvent], now: float) -> None:
        """Requeue pods after events that freed nothing, after the first back-off: their reason may have changed."""
        for event in events:
            for uid in self._waiting.get(event, ()):
                entry = self._entries[uid]
                soon = max(now + self._initial, entry.backoff_until)
                if soon < entry.due:
                    self._set_timer(uid, entry, soon)

    def remove(self, uid: str) -> None:
        """Forget a pod that is bound, gone, or no longer ours. An unknown uid is ignored."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._stop_waiting(uid, entry)

    def next_due(self, now: float) -> float | None:
        """Return when `pop` will next return a pod: `now` if one is active, None if no pod has a timer."""
        self._activate_due(now)
        if self.any_active():
            return now
        return self._timers[0][0] if self._timers else None

    def any_active(self) -> bool:
        """Whether a pod is active now, before any further timer is due."""
        return len(self._active) > 0

    def active_at_most(self) -> int:
        """Return the number of pods that are active now, before any further timer is due."""
        return len(self._active)

    def count_active(self, now: float) -> int:
        """Return the number of pods that `pop` would return now, one after the other."""
        self._activate_due(now)
        return sum(entry.state is _State.ACTIVE for entry in self._entries.values())

    def counts(self) -> dict[str, int]:
        """Return the number of pods by `active`, `backoff` and `unschedulable`.

        Pods that `pop` returned are not counted.
        """
        states = [entry.state for entry in self._entries.values()]
        return {state.name.lower(): states.count(state) for state in _State if state is not _State.POPPED}

    def _entry(self, uid: str, created: str = "") -> _QueuedPod:
        entry = self._entries.get(uid)
        if entry is None:
            self._arrivals += 1
            entry = self._entries[uid] = _QueuedPod(created, self._arrivals)
        return entry

    def _activate(self, uid: str, entry: _QueuedPod) -> None:
        if entry.state is not _State.ACTIVE:
            self._stop_waiting(uid, entry)
            entry.state = _State.ACTIVE
            self._active.push(uid, entry.order)

    def _activate_first(self, events: Iterable[ClusterEvent]) -> None:
        """For each shared event, activate the first pod that waits for it, even during its back-off.

        Otherwise devices could stay idle while all pods that wait for them are in back-off.
        """
        lines = (self._lines.get(event) for event in events if isinstance(event, _SHARED))
        for first in dict.fromkeys(filter(None, [line.pop() for line in lines if line is not None])):
            self._activate(first, self._entries[first])

    def _wait(self, uid: str, entry: _QueuedPod, now: float) -> None:
        """Start the back-off.

        It doubles with each attempt in a row, and starts anew after a long time without an attempt.
        """
        self._stop_waiting(uid, entry)
        again = entry.backoff and not self._long_ago(entry, now)
        entry.backoff = min(2 * entry.backoff, self._maximum) if again else self._initial
        entry.backoff_until = now + entry.backoff

    def _long_ago(self, entry: _QueuedPod, now: float) -> bool:
        """Whether the last back-off ended so long ago (the longest back-off) that earlier attempts do not count."""
        return now >= entry.backoff_until + self._maximum

    def _stop_waiting(self, uid: str, entry: _QueuedPod) -> None:
        """Take the pod out of every line."""
        self._active.discard(uid)
        for event in entry.events:
            waiting = self._waiting[event]
            del waiting[uid]
            if not waiting:
                del self._waiting[event]
                self._lines.pop(event, None)
            elif event in self._lines:
                self._lines[event].discard(uid)
        entry.events = ()

    def _set_timer(self, uid: str, entry: _QueuedPod, due: float) -> None:
        entry.due = due
        heappush(self._timers, (due, entry.arrival, uid))
        if len(self._timers) > 2 * len(self._entries) + _SLACK:
            self._timers = sorted({item for item in self._timers if self._is_due(*item)})

    def _activate_due(self, now: float) -> None:
        """Activate all pods whose timer is due. Afterwards the first timer is a valid one, or there is none."""
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
