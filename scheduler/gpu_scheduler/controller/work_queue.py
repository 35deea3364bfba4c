"""Which key is looked at next: each by one at a time, at once when it changed, later and later when it failed.

LAW: holds keys and times only; time comes in as `now`, monotonic seconds that never go back. What rests for good is
forgotten.
"""

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_SLACK: Final = 64
"""How many outdated timers there may be, beside one for each key, before they are cleaned out."""


class WorkQueue(Generic[Key]):
    """Keys that wait for a look, are looked at, or have a time at which they want to be."""

    __slots__ = ("_busy", "_due", "_failures", "_first", "_longest", "_order", "_timers", "_waiting")

    def __init__(self, first: float, longest: float) -> None:
        """Seconds: the first back-off after a failure, and the longest."""
        self._first = first
        self._longest = longest
        # In the order in which they came; the values mean nothing.
        self._waiting: dict[Key, None] = {}
        self._busy: set[Key] = set()
        self._due: dict[Key, int] = {}
        self._failures: dict[Key, int] = {}
        # Each has a number of its own; some may be outdated, the number in `_due` is the one that counts.
        self._timers: list[tuple[float, int, Key]] = []
        self._order = 0

    def add(self, key: Key) -> None:
        """Something changed: look at it, after those that came before."""
        self._due.pop(key, None)
        self._waiting[key] = None

    def pop(self, now: float) -> Key | None:
        """Hand a key out; until it is `done`, nobody else gets it."""
        self._fire(now)
        for key in self._waiting:
            if key not in self._busy:
                del self._waiting[key]
                self._busy.add(key)
                return key
        return None

    def done(self, key: Key, now: float, again: float | None = None) -> None:
        """It was looked at; `again` is after how many seconds it wants another look though nothing changes."""
        self._busy.discard(key)
        self._failures.pop(key, None)
        self._later(key, now, again)

    def failed(self, key: Key, now: float) -> None:
        """The look came to nothing: another one when the back-off is over, or when something changes."""
        self._busy.discard(key)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        self._later(key, now, min(self._longest, self._first * 2 ** min(failures - 1, 32)))

    def next_due(self, now: float) -> float | None:
        """When `pop` will next have something: `now` if it has already, None if nobody waits."""
        self._fire(now)
        if any(key not in self._busy for key in self._waiting):
            return now
        return self._timers[0][0] if self._timers else None

    def __len__(self) -> int:
        """How many wait, are looked at, or have a time."""
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
        """Let those wait whose time has come, and leave a timer in front that counts, or none."""
        while self._timers:
            due, number, key = self._timers[0]
            valid = self._due.get(key) == number
            if valid and due > now:
                return
            heappop(self._timers)
            if valid:
                self.add(key)
