"""The faults between a replica and the API server: their names, what each does to a request, and which are active."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable


class Fault(StrEnum):
    """All faults, a closed list. The first word of a name is what the fault affects."""

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
    CLAIM_ANSWER_LOST = "claim-answer-lost"
    CLAIM_LOST = "claim-lost"
    CLAIM_LATE = "claim-late"
    CLAIM_409 = "claim-409"
    CLAIM_500 = "claim-500"
    GET_LOST = "get-lost"
    GET_500 = "get-500"
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
    """The effect of a fault on one request."""

    delivered: bool = True
    answered: bool = True
    cut: bool = False
    """Without an answer, the connection is cut at once; else the caller waits for its time-out."""
    status: int | None = None
    """The status of the answer, whatever the server did."""
    late: float = 0.0
    """Seconds by which the request is delayed."""
    slow: float = 0.0
    """Seconds by which the answer is delayed."""
    retry_after: float | None = None
    dropped: bool = False
    """The packets are dropped: the kernel resends them until they arrive or its time-out ends."""


PLAIN: Final = Act()
REFUSED: Final = Act(delivered=False, answered=False, cut=True)
SILENT: Final = Act(delivered=False, answered=False)
DROPPED: Final = Act(dropped=True)

_LOST: Final = Act(answered=False, cut=True)
_LATE: Final = Act(answered=False, late=4.6)
"""After the caller's time-out, and within the time by which the lease outlives the bind window."""


def _answered(status: int, *, done: bool = False, retry_after: float | None = None) -> Act:
    return Act(delivered=done, status=status, retry_after=retry_after)


ACTS: Final[dict[Fault, tuple[str, Act]]] = {
    Fault.BIND_ANSWER_LOST: ("bind", _LOST),
    Fault.BIND_LOST: ("bind", REFUSED),
    Fault.BIND_TIMEOUT_BEFORE: ("bind", SILENT),
    Fault.BIND_TIMEOUT_AFTER: ("bind", Act(answered=False)),
    Fault.BIND_LATE: ("bind", _LATE),
    Fault.BIND_401: ("bind", _answered(401)),
    Fault.BIND_404: ("bind", _answered(404)),
    Fault.BIND_409: ("bind", _answered(409)),
    Fault.BIND_410: ("bind", _answered(410)),
    Fault.BIND_429: ("bind", _answered(429, retry_after=2.0)),
    Fault.BIND_500: ("bind", _answered(500)),
    Fault.BIND_503_DONE: ("bind", _answered(503, done=True)),
    Fault.CLAIM_ANSWER_LOST: ("claim", _LOST),
    Fault.CLAIM_LOST: ("claim", REFUSED),
    Fault.CLAIM_LATE: ("claim", _LATE),
    Fault.CLAIM_409: ("claim", _answered(409)),
    Fault.CLAIM_500: ("claim", _answered(500)),
    Fault.GET_LOST: ("get", REFUSED),
    Fault.GET_500: ("get", _answered(500)),
    Fault.STATUS_ANSWER_LOST: ("status", _LOST),
    Fault.STATUS_LATE: ("status", _LATE),
    Fault.STATUS_429: ("status", _answered(429, retry_after=1.0)),
    Fault.STATUS_500: ("status", _answered(500)),
    Fault.EVENT_LOST: ("event", REFUSED),
    Fault.EVENT_500: ("event", _answered(500)),
    Fault.LIST_SLOW: ("list", Act(slow=6.0)),
    Fault.LIST_LOST: ("list", _LOST),
    Fault.LIST_500: ("list", _answered(500)),
    Fault.LIST_EXPIRED: ("page", _answered(410)),
    Fault.LEASE_ANSWER_LOST: ("lease", _LOST),
    Fault.LEASE_LATE: ("lease", _LATE),
    Fault.LEASE_500: ("lease", _answered(500)),
    Fault.WATCH_REFUSED: ("watch", _answered(500)),
    Fault.WATCH_GONE: ("watch", _answered(410)),
}
"""The faults that affect the next request of their kind, the kind, and the effect."""


class FaultState:
    """The armed and the active faults, and how often each took effect."""

    def __init__(self) -> None:
        """Begin without faults."""
        self._armed: dict[str, deque[Fault]] = {}
        self.struck: Counter[Fault] = Counter()
        self.out = False
        """Whether the API server is unreachable."""
        self.cut_off: dict[str, list[Callable[[], None]]] = {}
        """The replicas whose packets are dropped, and what they resend once the network is back."""

    def arm(self, fault: Fault) -> None:
        """Apply the fault to the next request of its kind."""
        self._armed.setdefault(ACTS[fault][0], deque()).append(fault)

    def strike(self, fault: Fault) -> None:
        """Count the fault."""
        self.struck[fault] += 1

    def act(self, who: str, kind: str) -> Act:
        """Give the effect on this replica's request."""
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
        """Remove all armed faults and end the outage."""
        self._armed.clear()
        self.out = False

    def heal(self, who: str) -> None:
        """Let this replica's packets through again."""
        for send in self.cut_off.pop(who, ()):
            send()
