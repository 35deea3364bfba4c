"""Which of our pods came last: where a strategy that takes turns goes on.

LAW: a change costs the logarithm of how many there are, and follows from the holders alone: times are those that the
Bindings wrote. Only who is assumed has none yet, and is newer than all who have.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from gpu_scheduler.core.ledger.hold import Hold

_SLACK: Final = 16
"""Outlived entries that a short heap may have before it is made anew."""

_Key = tuple[int, int, str, str]
"""How it sorts, then its uid and its node."""


class LatestHold:
    """Holders by when they came, newest first."""

    __slots__ = ("_came", "_heap", "_live")

    def __init__(self) -> None:
        self._came = 0
        self._live: dict[str, _Key] = {}
        self._heap: list[_Key] = []
        """Keys of the living, and of some who are gone."""

    def put(self, holder: Hold) -> None:
        """It came; who claims no device takes no turn."""
        if not holder.devices:
            return
        self._came += 1
        when = self._came if holder.assumed else _moment(holder.assigned_at)
        key = (-holder.assumed, -when, holder.ref.uid, holder.node)
        self._live[holder.ref.uid] = key
        heappush(self._heap, key)
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapify(self._heap)

    def drop(self, uid: str) -> None:
        """It is gone."""
        self._live.pop(uid, None)

    def newest(self) -> tuple[str, str] | None:
        """Node and uid of who came last of those who are still there; of two at one moment, the first by uid."""
        while self._heap:
            first = self._heap[0]
            _, _, uid, node = first
            if self._live.get(uid) == first:
                return node, uid
            heappop(self._heap)
        return None

    def entries(self) -> Iterator[tuple[object, object]]:
        """Everything that is noted, as pairs of key and value, for who compares two of these."""
        for uid, (assumed, when, _, node) in self._live.items():
            # In which order the assumed ones came is in nobody's list.
            yield ("came", uid), (node, 1 if assumed else when)


def _moment(text: str) -> int:
    """A time that sorts as a number, because all are written alike; 0, the oldest, when there is none."""
    digits = "".join(filter(str.isdecimal, text))
    return int(digits or "0")
