"""The work queue: which key is reconciled next. A changed key is due at once, a failed key after a growing back-off.

LAW: holds keys and times only. The caller gives the time as `now`, in monotonic seconds. A key that is being reconciled
is not returned again before it is done. A key without a due time is not kept.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_SLACK: Final = 64
"""Outdated timers are removed when there are more timers than twice the keys with a due time, plus this number."""


class WorkQueue(Generic[Key]):
    """Keys that wait for a reconcile, are being reconciled, or have a time at which they are due."""

    __slots__ = ("_busy", "_due", "_failures", "_first", "_longest", "_order", "_timers", "_waiting")

    def __init__(self, first: float, longest: float) -> None:
        """`first` and `longest` are the first and the longest back-off after a failure, in seconds."""
        self._first = first
        self._longest = longest
        # An ordered set: keys in the order in which they were added; the values have no meaning.
        self._waiting: dict[Key, None] = {}
        self._busy: set[Key] = set()
        self._due: dict[Key, int] = {}
        self._failures: dict[Key, int] = {}
        # A heap of (time, number, key). A timer is outdated unless its number is the key's number in `_due`.
        self._timers: list[tuple[float, int, Key]] = []
        self._order = 0

    def add(self, key: Key) -> None:
        """Queue a changed key behind those that already wait."""
        self._due.pop(key, None)
        self._waiting[key] = None

    def pop(self, now: float) -> Key | None:
        """Return the next key, or None. It is not returned again before `done` or `failed`."""
        self._fire(now)
        for key in self._waiting:
            if key not in self._busy:
                del self._waiting[key]
                self._busy.add(key)
                return key
        return None

    def done(self, key: Key, now: float, again: float | None = None) -> None:
        """Record a reconcile that succeeded. `again`: seconds until the key is due again, even if nothing changes."""
        self._busy.discard(key)
        self._failures.pop(key, None)
        self._later(key, now, again)

    def failed(self, key: Key, now: float) -> None:
        """Record a reconcile that failed. The key is due when the back-off is over, or as soon as it changes."""
        self._busy.discard(key)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._later(key, now, min(self._longest, self._first * 2 ** min(failures - 1, 32)))

    def next_due(self, now: float) -> float | None:
        """Return when `pop` will next return a key: `now` if it can already, None if no key waits or has a time."""
        self._fire(now)
        if any(key not in self._busy for key in self._waiting):
            return now
        return self._timers[0][0] if self._timers else None

    def now_due(self, now: float) -> int:
        """Return the number of keys that wait or are being reconciled, without those whose time is still to come."""
        self._fire(now)
        return len(self._waiting.keys() | self._busy)

    def __len__(self) -> int:
        """Number of keys that wait, are being reconciled, or have a due time."""
        return len(self._waiting.keys() | self._busy | self._due.keys())

    def _later(self, key: Key, now: float, seconds: float | None) -> None:
        if seconds is None or key in self._waiting:
            return
        self._order += 1
        self._due[key] = self._order
        heappush(self._timers, (now + seconds, self._order, key))
        if len(self._timers) > 2 * len(self._due) + _SLACK:
            self._timers = [item for item in self._timers if self._due.get(item[2]) == item[1]]
            heapify(self._timers)

    def _fire(self, now: float) -> None:
        """Move the keys that are due to the waiting keys. Then the first timer, if any, is not outdated."""
        while self._timers:
            due, number, key = self._timers[0]
            valid = self._due.get(key) == number
            if valid and due > now:
                return
            heappop(self._timers)
            if valid:
                self.add(key)
