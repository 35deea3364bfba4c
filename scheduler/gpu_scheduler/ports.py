"""What the loop needs of the world, as Protocols of two methods or fewer; the tests' fakes fit them and can refuse.

LAW: shapes only. Adapters fit them without importing the loop, and the loop uses them without importing an adapter.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from gpu_scheduler.core.decide import Bind, Decision
    from gpu_scheduler.core.gpu_node import Occupied
    from gpu_scheduler.core.model import Condition, PodRef
    from gpu_scheduler.core.monitored import Gpu, Report
    from gpu_scheduler.core.workload import Status, Workload
    from gpu_scheduler.core.workload_phase import Trouble

Seen_contra = TypeVar("Seen_contra", contravariant=True)


class Observer(Protocol[Seen_contra]):
    """Is told of every object as it is now, in the order things happened."""

    def applied(self, value: Seen_contra) -> None:
        """Take note that it is there, new or changed (or the same: a list tells of everything)."""

    def forgotten(self, value: Seen_contra) -> None:
        """Take note that it is gone; `value` is the last that was seen of it."""


class Fence(Protocol):
    """Whether this replica may write a placement at this moment."""

    def may_bind(self) -> bool:
        """Asked right before each write."""


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


class ClaimSelector(Protocol):
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
    condition: Condition | None = None


class Announcer(Protocol):
    """Tells pods' owners, some time later and never in the way of a bind."""

    def announce(self, pod: PodRef, notice: Notice) -> bool:
        """Take it for delivery, in place of one of the same reason still waiting. False: no room, ask again later."""

    async def withdraw(self, pod: PodRef) -> bool:
        """Before a bind: its condition is soon untrue. Return when it is not being written; True when it never was."""


class Result(StrEnum):
    """How an attempt ended, in upstream's words."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Recorder(Protocol):
    """Counts what the loop does."""

    def attempted(self, result: Result, seconds: float) -> None:
        """Count one pod that was decided on (and, where that was the decision, bound) in so many seconds."""

    def placed(self, seconds: float) -> None:
        """Count a pod that was bound so many seconds after it was first seen."""


class RepairRecorder(Protocol):
    """Counts what should never happen."""

    def repaired(self, entries: int) -> None:
        """Count entries of the ledger that were found wrong and made anew."""


class News(StrEnum):
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

    def took(self, news: News, value: object, *, gone: bool = False) -> None:
        """Keep that this is so from now on or, where it is `gone`, no longer."""

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """Keep what all that was taken in before came to."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The loop's ways out."""

    binder: Binder
    claims: ClaimSelector
    announcer: Announcer
    recorder: Recorder
    repairs: RepairRecorder
    journal: Journal | None = None


class UnreadableError(Exception):
    """The GPUs of this node could not be looked at; the text says why."""


class GpuSource(Protocol):
    """Where a monitor's readings come from."""

    async def read(self) -> tuple[Gpu, ...]:
        """One bounded look at every GPU of this node, in the order of their index; UnreadableError when it failed."""


class Reporter(Protocol):
    """Writes readings where others read them."""

    async def report(self, report: Report) -> str | None:
        """One bounded try; None: it stands there, else why not, for a retry; never raises for what the API said."""


class Heart(Protocol):
    """Says that what stands written of this node is still so."""

    async def beat(self) -> str | None:
        """One bounded try; None: done, else why not."""


class PodMaker(Protocol):
    """Makes the pods of workloads."""

    async def make(self, workload: Workload, number: int) -> Trouble | None:
        """Have this try's pod, made now or before; None: it is there. One bounded try, which never raises for it."""


class WorkloadWriter(Protocol):
    """Tells workloads' owners."""

    async def write(self, workload: Workload, status: Status) -> Workload | None:
        """Write over the status that was read; the workload as it is then, None where it did not come to that."""


class NodeWriter(Protocol):
    """Tells what of a node is taken."""

    async def write(self, name: str, occupied: Occupied) -> bool:
        """Write this part of a GPUNode's status and no other; whether that was done."""
