"""The newest hold: round robin continues after its device.

LAW: the cost of a change is the logarithm of the number of holds. Everything is derived from the holds. Their times are
those that the Bindings wrote. An assumed pod has no time yet, and counts as newer than all pods that have one.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from gpu_scheduler.core.ledger.hold import Hold

_SLACK: Final = 16
"""The heap may have twice as many entries as there are holds, and this many more, before it is rebuilt."""

_Key = tuple[int, int, str, str]
"""A heap entry: -1 if assumed, else 0; the time with a minus sign; uid; node."""


class LatestHold:
    """Holds in the order of their binds, newest first."""

    __slots__ = ("_came", "_heap", "_live")

    def __init__(self) -> None:
        self._came = 0
        self._live: dict[str, _Key] = {}
        self._heap: list[_Key] = []
        """Keys of all current holds, and of some former ones."""

    def put(self, holder: Hold) -> None:
        """Add a hold. Round robin counts pods alone, and of these only those with devices."""
        if not holder.devices or holder.kept or holder.is_claim:
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
        """Remove the hold of this pod."""
        self._live.pop(uid, None)

    def newest(self) -> tuple[str, str] | None:
        """Return node and uid of the newest current hold, or None.

        If two have the same time, return the first by uid.
        """
        while self._heap:
            first = self._heap[0]
            _, _, uid, node = first
            if self._live.get(uid) == first:
                return node, uid
            heappop(self._heap)
        return None

    def entries(self) -> Iterator[tuple[object, object]]:
        """List the entries of this moment as pairs of key and value, also if they are read after later changes."""
        # A ledger that is rebuilt from a list does not know the order of assumed holds.
        return (
            (("came", uid), (node, 1 if assumed else when)) for uid, (assumed, when, _, node) in {**self._live}.items()
        )


def _moment(text: str) -> int:
    """Return a time as a number that sorts by time, because all times have one format.

    An empty text gives 0, the oldest.
    """
    digits = "".join(filter(str.isdecimal, text))
    return int(digits or "0")
