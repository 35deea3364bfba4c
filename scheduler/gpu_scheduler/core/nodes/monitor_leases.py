"""Whether the monitors of the nodes still speak: each renews a Lease, and one that is not renewed in time is stale.

LAW: the wall clock counts once, when a Lease is first seen; from then on only how long ago a renewal was seen, by a
clock that can't be set. A renewal costs no more than a look into a table, however many nodes there are.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from math import ceil
from typing import Final

GRAIN: Final = 0.5
"""Seconds: what falls silent within one grain is noticed together, at its end."""


@dataclass(frozen=True, slots=True)
class MonitorLease:
    """A monitor's Lease as the API shows it; `renewed` is its renewTime as read, `lasts` its duration in seconds."""

    node: str
    renewed: str | None
    lasts: float


@dataclass(slots=True)
class _Watched:
    """One node's Lease."""

    last: MonitorLease
    expires: float
    queued: float
    """When it is looked at next; never later than it expires, unless it is stale."""
    stale: bool = False


class MonitorLeases:
    """All Leases by node. A node without one is never stale: somebody listed its cards by hand."""

    __slots__ = ("_due", "_watched")

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        # Some may be outdated; what a _Watched says now is what counts.
        self._due: list[tuple[float, str]] = []

    def stale(self, node: str) -> bool:
        """Whether the node's monitor has been silent for too long."""
        watched = self._watched.get(node)
        return watched is not None and watched.stale

    def seen(self, sighting: MonitorLease, *, now: float, wall: float) -> bool:
        """Take a Lease as it is now; answers whether the node is stale no longer, or from the start.

        `now` is monotonic, `wall` the seconds since the epoch.
        """
        watched = self._watched.get(sighting.node)
        if watched is None:
            expires = now + sighting.lasts - _age(sighting.renewed, wall)
            watched = self._watched[sighting.node] = _Watched(sighting, expires, expires, stale=expires <= now)
            self._queue(sighting.node, watched)
            return watched.stale
        if sighting == watched.last:
            return False
        renewed = sighting.renewed != watched.last.renewed
        watched.expires = now + sighting.lasts if renewed else watched.expires + sighting.lasts - watched.last.lasts
        watched.last = sighting
        was, watched.stale = watched.stale, watched.expires <= now
        if was or watched.expires < watched.queued:
            self._queue(sighting.node, watched)
        return was != watched.stale

    def gone(self, node: str) -> bool:
        """The Lease is no more; answers whether the node was stale."""
        watched = self._watched.pop(node, None)
        return watched is not None and watched.stale

    def expired(self, now: float) -> Iterator[str]:
        """Nodes that have become stale by now; each is told once."""
        while self._due and self._due[0][0] <= now:
            due, node = heappop(self._due)
            watched = self._watched.get(node)
            if watched is None or watched.stale or watched.queued != due:
                continue
            watched.stale = watched.expires <= now
            if watched.stale:
                yield node
            else:
                self._queue(node, watched)

    def next_due(self) -> float | None:
        """When `fallen_silent` is to be asked next; None when nothing can become stale."""
        return self._due[0][0] if self._due else None

    def _queue(self, node: str, watched: _Watched) -> None:
        if not watched.stale:
            watched.queued = ceil(watched.expires / GRAIN) * GRAIN
            heappush(self._due, (watched.queued, node))


def _age(renewed: str | None, wall: float) -> float:
    """Seconds since a renewal, as far as it can be told; one from the future was right now."""
    try:
        then = datetime.fromisoformat(renewed or "")
    except ValueError:
        return 0.0
    return max(0.0, wall - (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp())
