"""Which monitors renew their Lease in time. A node whose monitor does not is stale.

LAW: the wall clock is read once, when a Lease is first seen. After that, only the monotonic time since the last renewal
counts. A renewal costs one lookup, for any number of nodes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heappop, heappush
from math import ceil
from typing import Final

from gpu_scheduler.core.immutable import immutable

GRAIN: Final = 0.5
"""Seconds. Leases that expire within one grain are reported together, at its end."""


@immutable
class MonitorLease:
    """A monitor's Lease as the API shows it. `renewed` is its renewTime as read, `lasts` is its duration in seconds."""

    node: str
    renewed: str | None
    lasts: float


@dataclass(slots=True)
class _Watched:
    """One node's Lease."""

    last: MonitorLease
    expires: float
    queued: float
    """When it is checked next: at most one grain after it expires, unless it is stale."""
    stale: bool = False


class MonitorLeases:
    """All Leases by node. A node without a Lease is never stale: its devices were listed by hand."""

    __slots__ = ("_due", "_watched")

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        # Some entries may be outdated: only the time in _Watched is valid.
        self._due: list[tuple[float, str]] = []

    def stale(self, node: str) -> bool:
        """Whether the node's monitor has not renewed its Lease in time."""
        watched = self._watched.get(node)
        return watched is not None and watched.stale

    def known(self, node: str) -> bool:
        """Whether the Lease of the node's monitor has been seen."""
        return node in self._watched

    def seen(self, lease: MonitorLease, *, now: float, wall: float) -> bool:
        """Store a Lease. Return whether the node became stale or is no longer stale.

        `now` is monotonic seconds, `wall` is seconds since the epoch.
        """
        watched = self._watched.get(lease.node)
        if watched is None:
            expires = now + lease.lasts - _age(lease.renewed, wall)
            watched = self._watched[lease.node] = _Watched(lease, expires, expires, stale=expires <= now)
            self._queue(lease.node, watched)
            return watched.stale
        if lease == watched.last:
            return False
        renewed = lease.renewed != watched.last.renewed
        watched.expires = now + lease.lasts if renewed else watched.expires + lease.lasts - watched.last.lasts
        watched.last = lease
        was, watched.stale = watched.stale, watched.expires <= now
        if was or watched.expires < watched.queued:
            self._queue(lease.node, watched)
        return was != watched.stale

    def gone(self, node: str) -> bool:
        """Remove the Lease. Return whether the node was stale."""
        watched = self._watched.pop(node, None)
        return watched is not None and watched.stale

    def expired(self, now: float) -> Iterator[str]:
        """Yield the nodes that have become stale by `now`, each once."""
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
        """Return when `expired` must be called next; None if no node can become stale."""
        return self._due[0][0] if self._due else None

    def _queue(self, node: str, watched: _Watched) -> None:
        if not watched.stale:
            watched.queued = ceil(watched.expires / GRAIN) * GRAIN
            heappush(self._due, (watched.queued, node))


def _age(renewed: str | None, wall: float) -> float:
    """Return the seconds since a renewal. A time that cannot be read, or that is in the future, gives 0."""
    try:
        then = datetime.fromisoformat(renewed or "")
    except ValueError:
        return 0.0
    return max(0.0, wall - (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp())
