"""The scheduling queue: which pod is tried next, and which cluster event requeues which pod.

LAW: the queue keeps uids, namespaces, priorities and times, and no pod objects. Time is the argument `now`, in
monotonic seconds. The cost of an event depends only on the number of pods that wait for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heappop, heappush
from typing import Final

from gpu_scheduler.core.cluster_events import ClassChanged, ClusterEvent, QuotaChanged
from gpu_scheduler.core.fair_queue import SLACK, FairQueue, Priority

_SHARED: Final = (QuotaChanged, ClassChanged)
"""Events that many pods wait for together. The first of these pods may take everything that became free."""

_REQUEUES_WITHOUT_BACKOFF: Final = 3
"""How many times in a row an unschedulable pod is requeued without back-off. After that, a node that flaps, or on which
pods often start and end, does not cause an attempt for each event."""

_FIRST_ATTEMPTS_IN_A_ROW: Final = 4
"""Of pods of the same priority, a retry goes after so many first attempts. So new pods, however many, leave a fifth of
the attempts to pods that were tried before."""

SHARE: Final = 0.05
"""The share of its time that a pod may take for attempts that end in waiting: a decision of 20 ms, the longest that is
allowed, is made again after 0.4 s at the earliest. Events and changes of the pod, however many, do not shorten that."""


class _State(Enum):
    ACTIVE = auto()
    BACKOFF = auto()
    UNSCHEDULABLE = auto()
    POPPED = auto()


@dataclass(slots=True)
class _QueuedPod:
    """The queue's state of one pending pod."""

    created: str
    """`creationTimestamp` as read (RFC 3339, UTC, seconds): such texts are in the order of time."""
    arrival: int
    """The pod's number in the order in which pods were added first. It decides between pods of one second."""
    namespace: str
    state: _State = _State.POPPED
    priority: Priority = (0, 0)
    attempts: int = 0
    """How many attempts in a row ended in waiting."""
    backoff: float = 0.0
    """Seconds of back-off after its last attempt."""
    backoff_until: float = 0.0
    paid_until: float = 0.0
    """When the cost of its last attempt is `SHARE` of the time since. Not after `backoff_until`."""
    due: float = 0.0
    """When it becomes active without an event."""
    events: tuple[ClusterEvent, ...] = ()
    shared: tuple[ClusterEvent, ...] = ()
    """The events of `_SHARED` among `events`: several pods wait for the same devices or quota. Kept until it is
    placed."""

    @property
    def tried(self) -> bool:
        """Whether an attempt ended in waiting or in an error."""
        return self.attempts > 0 or self.backoff > 0

    def push(self, uid: str, queue: FairQueue) -> None:
        """Add it to `queue` with its present priority."""
        queue.push(uid, self.priority, self.namespace, self.created, self.arrival)


class SchedulingQueue:
    """Pending pods by uid: active, in back-off, or unschedulable until an event requeues them."""

    __slots__ = (
        "_arrivals",
        "_entries",
        "_first_attempts",
        "_initial",
        "_maximum",
        "_resync",
        "_retries",
        "_retries_passed",
        "_shared",
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
        self._shared: dict[ClusterEvent, FairQueue] = {}
        """The pods that wait for an event of `_SHARED`."""
        self._first_attempts = FairQueue()
        self._retries = FairQueue()
        self._retries_passed = 0
        """How many first attempts in a row went before a retry."""
        # It may have outdated entries: only the values in _QueuedPod are valid.
        self._timers: list[tuple[float, int, str]] = []

    def add(self, uid: str, now: float, created: str = "", namespace: str = "") -> None:
        """Make a pod active because it is new or has changed, but not before the cost of its last attempt is paid.

        Otherwise a running back-off ends. Attempts stay counted.

        `created` is its `creationTimestamp`. It and the namespace are read only from a pod that the queue does not know
        yet.
        """
        entry = self._entry(uid, created, namespace)
        self._activate_at(entry.paid_until, uid, entry, now)

    def set_priority(self, uid: str, priority: Priority) -> None:
        """Set the pod's priority. An unknown uid is ignored."""
        entry = self._entries.get(uid)
        if entry is not None and entry.priority != priority:
            entry.priority = priority
            shared = (self._shared[event] for event in entry.shared if event in self._shared)
            for queue in (self._first_attempts, self._retries, *shared):
                if uid in queue:
                    entry.push(uid, queue)

    def pop(self, now: float) -> str | None:
        """Return the uid of the next pod, or None. The queue still knows the pod.

        The order: `spec.priority`, the priority by strategy, first attempts before retries, namespaces in turn, age.
        A restart keeps what follows from the pods themselves: whose turn it is and what was tried are forgotten.
        """
        self._activate_due(now)
        queue = self._next_queue()
        uid = queue.pop()
        if uid is not None:
            self._entries[uid].state = _State.POPPED
            passes = queue is self._first_attempts and len(self._retries) > 0
            self._retries_passed = self._retries_passed + 1 if passes else 0
        return uid

    def popped(self, uid: str) -> bool:
        """Whether the pod was popped, and is neither active nor gone since."""
        entry = self._entries.get(uid)
        return entry is not None and entry.state is _State.POPPED

    def add_unschedulable(self, uid: str, events: Iterable[ClusterEvent], now: float, cost: float = 0.0) -> None:
        """Put a pod after a Wait or Refuse into unschedulable. `cost` is the time in seconds that its decision took.

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
        entry.paid_until = now + cost / SHARE
        entry.backoff_until = max(entry.backoff_until, entry.paid_until)
        entry.state = _State.UNSCHEDULABLE
        entry.events = tuple(dict.fromkeys(events))
        entry.shared = tuple(event for event in entry.events if isinstance(event, _SHARED))
        for event in entry.events:
            self._waiting.setdefault(event, {})[uid] = None
        for event in entry.shared:
            entry.push(uid, self._shared.setdefault(event, FairQueue()))
        self._set_timer(uid, entry, max(now + self._resync, entry.paid_until))

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
        self._activate_first(events, now)
        requeued = {uid for event in events for uid in self._waiting.get(event, ())}
        for uid, entry in self._by_age(requeued):
            self._activate_at(entry.backoff_until, uid, entry, now)

    def assumed(self, uid: str, now: float) -> None:
        """The pod was assumed.

        Activate the next pod that waits for the same shared events: something may be left for it.
        """
        entry = self._entries.get(uid)
        if entry is not None and entry.shared:
            shared, entry.shared = entry.shared, ()
            self._activate_first(shared, now)

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
        return self.active() > 0

    def active(self) -> int:
        """Return the number of pods that are active now, before any further timer is due."""
        return len(self._first_attempts) + len(self._retries)

    def count_active(self, now: float) -> int:
        """Return the number of pods that `pop` would return now, one after the other."""
        self._activate_due(now)
        return self.active()

    def counts(self) -> dict[str, int]:
        """Return the number of pods by `active`, `backoff` and `unschedulable`.

        Pods that `pop` returned are not counted.
        """
        states = [entry.state for entry in self._entries.values()]
        return {state.name.lower(): states.count(state) for state in _State if state is not _State.POPPED}

    def _next_queue(self) -> FairQueue:
        """Return the queue of the next pod."""
        if not self._retries:
            return self._first_attempts
        first, retry = self._first_attempts.level(), self._retries.level()
        if first is None or retry is None:
            return self._retries if first is None else self._first_attempts
        its_turn = first == retry and self._retries_passed >= _FIRST_ATTEMPTS_IN_A_ROW
        return self._retries if retry < first or its_turn else self._first_attempts

    def _entry(self, uid: str, created: str = "", namespace: str = "") -> _QueuedPod:
        entry = self._entries.get(uid)
        if entry is None:
            self._arrivals += 1
            entry = self._entries[uid] = _QueuedPod(created, self._arrivals, namespace)
        return entry

    def _activate(self, uid: str, entry: _QueuedPod) -> None:
        if entry.state is not _State.ACTIVE:
            self._stop_waiting(uid, entry)
            entry.state = _State.ACTIVE
            entry.push(uid, self._retries if entry.tried else self._first_attempts)

    def _activate_at(self, due: float, uid: str, entry: _QueuedPod, now: float) -> None:
        """Activate the pod when `due` has come, or when it was to become active if that is earlier."""
        if now >= due:
            self._activate(uid, entry)
        elif entry.state is not _State.ACTIVE and (entry.state is not _State.BACKOFF or due < entry.due):
            entry.state = _State.BACKOFF
            self._set_timer(uid, entry, due)

    def _activate_first(self, events: Iterable[ClusterEvent], now: float) -> None:
        """For each shared event, activate the first pod that waits for it, even during a back-off that is not its cost.

        Otherwise devices could stay idle while all pods that wait for them are in back-off.
        """
        queues = [self._shared[event] for event in events if isinstance(event, _SHARED) and event in self._shared]
        firsts = {uid for uid in [queue.pop() for queue in queues] if uid is not None}
        for uid, entry in self._by_age(firsts):
            self._activate_at(entry.paid_until, uid, entry, now)

    def _by_age(self, uids: set[str]) -> list[tuple[str, _QueuedPod]]:
        """Sort the pods, so that the turns of namespaces do not depend on the order of events."""
        found = [(uid, self._entries[uid]) for uid in uids]
        return sorted(found, key=lambda item: (item[1].created, item[1].arrival))

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
        """Take the pod out of every queue."""
        if entry.state is _State.ACTIVE:
            self._first_attempts.discard(uid)
            self._retries.discard(uid)
        for event in entry.events:
            waiting = self._waiting[event]
            del waiting[uid]
            if not waiting:
                del self._waiting[event]
                self._shared.pop(event, None)
            elif event in self._shared:
                self._shared[event].discard(uid)
        entry.events = ()

    def _set_timer(self, uid: str, entry: _QueuedPod, due: float) -> None:
        entry.due = due
        heappush(self._timers, (due, entry.arrival, uid))
        if len(self._timers) > 2 * len(self._entries) + SLACK:
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
