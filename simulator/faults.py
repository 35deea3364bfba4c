"""What can go wrong between a replica and the API server, by name, and what of it is to come or in force now."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class Fault(StrEnum):
    """The closed list. The first word says what it strikes."""

    BIND_ANSWER_LOST = "bind-answer-lost"
    BIND_LOST = "bind-lost"
    BIND_TIMEOUT_BEFORE = "bind-timeout-before"
    BIND_TIMEOUT_AFTER = "bind-timeout-after"
    BIND_LATE = "bind-late"
    BIND_401 = "bind-401"
    BIND_404 = "bind-404"
    BIND_409 = "bind-409"
    BIND_410 = "bind-410"
    BIND_429 = "bind-429"
    BIND_500 = "bind-500"
    BIND_503_DONE = "bind-503-done"
    LOOK_LOST = "look-lost"
    LOOK_500 = "look-500"
    STATUS_ANSWER_LOST = "status-answer-lost"
    STATUS_LATE = "status-late"
    STATUS_429 = "status-429"
    STATUS_500 = "status-500"
    EVENT_LOST = "event-lost"
    EVENT_500 = "event-500"
    LIST_SLOW = "list-slow"
    LIST_LOST = "list-lost"
    LIST_500 = "list-500"
    LIST_EXPIRED = "list-expired"
    LEASE_ANSWER_LOST = "lease-answer-lost"
    LEASE_LATE = "lease-late"
    LEASE_500 = "lease-500"
    WATCH_REFUSED = "watch-refused"
    WATCH_GONE = "watch-gone"
    WATCH_EXPIRED = "watch-expired"
    WATCH_CUT = "watch-cut"
    WATCH_TRUNCATED = "watch-truncated"
    WATCH_FROZEN = "watch-frozen"
    WATCH_SILENT = "watch-silent"
    WATCH_TWICE = "watch-twice"
    WATCH_BOOKMARKS = "watch-bookmarks"
    DELETED_LOST = "deleted-lost"
    OUTAGE = "outage"
    PARTITION = "partition"
    LEASE_TAKEN = "lease-taken"
    PROCESS_STOPPED = "process-stopped"
    PROCESS_KILLED = "process-killed"
    PROCESS_RESTARTED = "process-restarted"
    CLOCK_STEPPED = "clock-stepped"
    NODE_CORDONED = "node-cordoned"
    NODE_NOT_READY = "node-not-ready"
    NODE_DELETED = "node-deleted"
    NODE_GPUS = "node-gpus"
    CAPACITY_TAKEN = "capacity-taken"
    POD_RECREATED = "pod-recreated"


@dataclass(frozen=True, slots=True)
class Act:
    """What becomes of one request."""

    delivered: bool = True
    answered: bool = True
    cut: bool = False
    """Where there is no answer, the connection is cut at once; else nothing is said until the caller's time is over."""
    status: int | None = None
    """Answered so, whatever the server did."""
    late: float = 0.0
    """Seconds by which the server gets it later."""
    slow: float = 0.0
    """Seconds by which the answer comes later."""
    retry_after: float | None = None
    dropped: bool = False
    """Sent again by the kernel until it comes through, or nobody has acknowledged it for too long."""


PLAIN: Final = Act()
REFUSED: Final = Act(delivered=False, answered=False, cut=True)
SILENT: Final = Act(delivered=False, answered=False)
DROPPED: Final = Act(dropped=True)

_LOST: Final = Act(answered=False, cut=True)
_LATE: Final = Act(answered=False, late=4.6)
"""Long after the caller has given up; but no longer than its lease outlives the time in which it may bind."""


def _said(status: int, *, done: bool = False, retry_after: float | None = None) -> Act:
    return Act(delivered=done, status=status, retry_after=retry_after)


ACTS: Final[dict[Fault, tuple[str, Act]]] = {
    Fault.BIND_ANSWER_LOST: ("bind", _LOST),
    Fault.BIND_LOST: ("bind", REFUSED),
    Fault.BIND_TIMEOUT_BEFORE: ("bind", SILENT),
    Fault.BIND_TIMEOUT_AFTER: ("bind", Act(answered=False)),
    Fault.BIND_LATE: ("bind", _LATE),
    Fault.BIND_401: ("bind", _said(401)),
    Fault.BIND_404: ("bind", _said(404)),
    Fault.BIND_409: ("bind", _said(409)),
    Fault.BIND_410: ("bind", _said(410)),
    Fault.BIND_429: ("bind", _said(429, retry_after=2.0)),
    Fault.BIND_500: ("bind", _said(500)),
    Fault.BIND_503_DONE: ("bind", _said(503, done=True)),
    Fault.LOOK_LOST: ("look", REFUSED),
    Fault.LOOK_500: ("look", _said(500)),
    Fault.STATUS_ANSWER_LOST: ("status", _LOST),
    Fault.STATUS_LATE: ("status", _LATE),
    Fault.STATUS_429: ("status", _said(429, retry_after=1.0)),
    Fault.STATUS_500: ("status", _said(500)),
    Fault.EVENT_LOST: ("event", REFUSED),
    Fault.EVENT_500: ("event", _said(500)),
    Fault.LIST_SLOW: ("list", Act(slow=6.0)),
    Fault.LIST_LOST: ("list", _LOST),
    Fault.LIST_500: ("list", _said(500)),
    Fault.LIST_EXPIRED: ("page", _said(410)),
    Fault.LEASE_ANSWER_LOST: ("lease", _LOST),
    Fault.LEASE_LATE: ("lease", _LATE),
    Fault.LEASE_500: ("lease", _said(500)),
    Fault.WATCH_REFUSED: ("watch", _said(500)),
    Fault.WATCH_GONE: ("watch", _said(410)),
}
"""The faults that strike the next request of a kind."""


class Switchboard:
    """The faults that are to come, those in force, and how often each has struck."""

    def __init__(self) -> None:
        """All is well."""
        self._armed: dict[str, deque[Fault]] = {}
        self.struck: Counter[Fault] = Counter()
        self.out = False
        """Whether the API server is away."""
        self.cut_off: dict[str, list[Callable[[], None]]] = {}
        """Replicas whose packets are dropped, and what they send again as soon as packets come through."""

    def arm(self, fault: Fault) -> None:
        """Let it strike the next request of its kind."""
        self._armed.setdefault(ACTS[fault][0], deque()).append(fault)

    def strike(self, fault: Fault) -> None:
        """It struck."""
        self.struck[fault] += 1

    def act(self, who: str, kind: str) -> Act:
        """What becomes of a request of this replica."""
        if self.out:
            return REFUSED
        if who in self.cut_off:
            return DROPPED
        armed = self._armed.get(kind)
        if not armed:
            return PLAIN
        fault = armed.popleft()
        self.strike(fault)
        return ACTS[fault][1]

    def disarm(self) -> None:
        """Nothing is to come any more, and nothing in force."""
        self._armed.clear()
        self.out = False

    def heal(self, who: str) -> None:
        """Its packets come through again."""
        for send in self.cut_off.pop(who, ()):
            send()
