"""What the scheduling loop needs of the outside, as Protocols of two methods or fewer, and their values.

LAW: shapes only. Whoever fits them does not import the loop, and the loop imports none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpu_scheduler.core.decision import Bind, Decision
    from gpu_scheduler.core.pods.pod import ScheduledCondition
    from gpu_scheduler.core.refs import PodRef


@dataclass(frozen=True, slots=True)
class Bound:
    """The API has the pod on our node, with our devices."""


@dataclass(frozen=True, slots=True)
class Failed:
    """This write certainly did nothing; `message` tells the pod's owner why. `patience`: seconds the API asked for."""

    message: str
    patience: float = 0.0


@dataclass(frozen=True, slots=True)
class Dropped:
    """Not bound by us and never will be, as the pod itself proves: it is gone, going, or bound elsewhere."""

    why: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """Nothing was written this time: this replica may not bind now."""

    why: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may be bound, now or a moment from now: whatever it was to get must stay held. `patience` as for Failed."""

    why: str
    patience: float = 0.0


BindResult = Bound | Failed | Dropped | NotSent | Unknown


class Binder(Protocol):
    """Makes a placement durable."""

    async def bind(self, bind: Bind) -> BindResult:
        """One bounded try; never raises for what the API did or did not say."""


class VolumeBinder(Protocol):
    """Tells a claim's provisioner where the pod will run."""

    async def select(self, namespace: str, claim: str, node: str) -> str | None:
        """One bounded try; None: done, else why not, for a retry; never raises for what the API did or did not say."""


class EventType(StrEnum):
    """Kubernetes' two kinds of event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell a pod's owner: as an event, and as the pod's PodScheduled condition where there is one."""

    type: EventType
    reason: str
    action: str
    note: str
    condition: ScheduledCondition | None = None


class EventRecorder(Protocol):
    """Tells pods' owners, some time later and never in the way of a bind."""

    def record(self, pod: PodRef, notice: Notice) -> bool:
        """Take it for delivery, in place of one of the same reason still waiting. False: no room, ask again later."""

    async def withdraw(self, pod: PodRef) -> bool:
        """Before a bind: its condition is soon untrue. Return when it is not being written; True when it never was."""


class Result(StrEnum):
    """How an attempt ended, in upstream's words."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class AttemptMetrics(Protocol):
    """Counts what the loop does."""

    def attempted(self, result: Result, seconds: float) -> None:
        """Count one pod that was decided on (and, where that was the decision, bound) in so many seconds."""

    def placed(self, seconds: float) -> None:
        """Count a pod that was bound so many seconds after it was first seen."""


class RepairMetrics(Protocol):
    """Counts what should never happen."""

    def repaired(self, entries: int) -> None:
        """Count entries of the ledger that were found wrong and made anew."""


class InputKind(StrEnum):
    """What there is to take in."""

    NODE = "node"
    POD = "pod"
    RESIDENT = "resident"
    CLAIM = "claim"
    VOLUME = "volume"
    STORAGE_CLASS = "class"
    STRATEGY = "strategy"
    LIMITS = "limits"
    RELEASED = "released"
    """What a pod had been promised is taken back."""
    REPAIRED = "repaired"
    """The ledger was made anew."""


class Journal(Protocol):
    """Keeps what is taken in and what is decided by it, in order, so that it can be decided again."""

    def received(self, news: InputKind, value: object, *, gone: bool = False) -> None:
        """Keep that this is so from now on or, where it is `gone`, no longer."""

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """Keep what all that was taken in before came to."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The loop's ways out."""

    binder: Binder
    claims: VolumeBinder
    event_recorder: EventRecorder
    recorder: AttemptMetrics
    repairs: RepairMetrics
    journal: Journal | None = None


class NoJournal(Journal):
    """Keeps nothing."""

    def received(self, news: InputKind, value: object, *, gone: bool = False) -> None:
        """See Journal."""

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """See Journal."""
