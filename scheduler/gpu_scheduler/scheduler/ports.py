"""The interfaces that the scheduling loop needs, as Protocols of two methods or fewer, and their values.

LAW: types only. An implementation does not import the loop, and the loop imports no implementation.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_scheduler.core.decision import Bind, Decision
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.nodes.cordons import NodeCordons
    from gpu_scheduler.core.pods.pod import Pod, ScheduledCondition
    from gpu_scheduler.core.refs import PodRef


@immutable
class Bound:
    """The API server has bound the pod to our node, with our devices."""


@immutable
class Failed:
    """This write certainly did nothing; `message` says why, for users. The server asked for `retry_after` seconds."""

    message: str
    retry_after: float = 0.0
    reason: Reason = Reason.BIND_FAILED


@immutable
class Dropped:
    """Not bound by us and never will be, as the pod itself proves: it is gone, terminating, or bound elsewhere."""

    why: str


@immutable
class NotSent:
    """Nothing was written this time: this replica may not bind now."""

    why: str


@immutable
class Unknown:
    """The pod may be bound now or soon, so its assumed placement must stay held. `retry_after` as for Failed."""

    why: str
    retry_after: float = 0.0


BindResult = Bound | Failed | Dropped | NotSent | Unknown


class Binder(Protocol):
    """Writes a placement to the API server."""

    async def bind(self, bind: Bind) -> BindResult:
        """Try once, in bounded time. It never raises because of an answer or a missing answer of the API server."""


class ClaimAllocator(Protocol):
    """Allocates the ResourceClaims of a pod before it is bound."""

    def may_give_gpus(self, device_class: str) -> bool:
        """Whether a claim may be allocated GPUs from the DeviceClass with this name. True if that is not known."""

    async def allocate(self, bind: Bind) -> dict[str, str] | Failed | NotSent:
        """Try once, in bounded time. Return the version of each claim, by name, if all are reserved for the pod.

        It never raises because of an answer or a missing answer of the API server. The pod is not bound in any case.
        """

    async def release(self, pod: PodRef, claims: Sequence[AllocatedClaim]) -> str | None:
        """Withdraw reservations for a pod that is not bound, and allocations for no other pod.

        Return None on success, else the cause of the failure. It never raises because of the API server.
        """


class VolumeBinder(Protocol):
    """Writes into a claim the node where the pod will run, for the claim's provisioner."""

    async def select(self, namespace: str, claim: str, node: str) -> str | None:
        """Try once, in bounded time. Return None on success, else the cause of the failure; the caller may retry.

        It never raises because of an answer or a missing answer of the API server.
        """


class CordonStatus(Protocol):
    """Writes into a GPUNode that its cordons are obeyed."""

    async def confirm(self, cordons: NodeCordons) -> str | None:
        """Try once, in bounded time. Return None on success or if the GPUNode is gone, else the cause of the failure.

        It never raises because of an answer or a missing answer of the API server.
        """


class EventType(StrEnum):
    """Kubernetes' two types of event."""

    NORMAL = "Normal"
    WARNING = "Warning"


@immutable
class Notice:
    """A notice for a pod's owner: an event and, if set, the pod's PodScheduled condition."""

    type: EventType
    reason: str
    action: str
    note: str
    condition: ScheduledCondition | None = None


class EventRecorder(Protocol):
    """Records events and conditions for pods' owners. Binds take precedence over them."""

    def record(self, pod: PodRef, notice: Notice) -> bool:
        """Queue the notice. It replaces a queued notice of the same pod and reason.

        Return False if the queue is full, or if this replica writes no condition because it stops; the caller tries
        again later.
        """

    async def withdraw(self, pod: PodRef) -> bool:
        """Withdraw the pod's queued condition before a bind, which will make it untrue.

        Return when no write of it is in flight, after at most one time-out of a request: True if it was never written.
        """


class AttemptResult(StrEnum):
    """How an attempt ended, with kube-scheduler's label values."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class AttemptMetrics(Protocol):
    """Counts the attempts and binds of the loop."""

    def attempted(self, result: AttemptResult, seconds: float) -> None:
        """Count one attempt: the decision, and the bind if there was one, took `seconds`."""

    def waits(self, reason: Reason) -> None:
        """Count an attempt that ended without a placement, for this reason."""

    def placed(self, pod: Pod, bind: Bind, seconds: float) -> None:
        """Count a pod that was bound `seconds` after it was first seen."""


class RepairMetrics(Protocol):
    """Counts repairs of the ledger, which should never be necessary."""

    def repaired(self, entries: int) -> None:
        """Count the ledger entries that were wrong and have been rebuilt."""


class AllocationOutcome(StrEnum):
    """How an attempt to allocate a pod's claims ended."""

    ALLOCATED = "allocated"
    FAILED = "failed"
    """A write was refused, or not answered, or not allowed to this replica."""
    UNSEEN = "unseen"
    """The watch has not shown it in time."""
    WITHDRAWN = "withdrawn"
    """Another claim, or a pod, has one of the GPUs."""


class AllocationMetrics(Protocol):
    """Counts allocations of claims."""

    def allocation(self, outcome: AllocationOutcome, seconds: float) -> None:
        """Count an attempt to allocate all claims of a pod, which took `seconds`."""


class InputKind(StrEnum):
    """The kinds of input that the journal records."""

    NODE = "node"
    POD = "pod"
    FOREIGN_POD = "foreign_pod"
    CLAIM = "claim"
    VOLUME = "volume"
    STORAGE_CLASS = "class"
    DEVICE_SLICE = "device_slice"
    DEVICE_CLAIM = "device_claim"
    STRATEGY = "strategy"
    LIMITS = "limits"
    RELEASED = "released"
    """The assumed placement of a pod is released."""
    REPAIRED = "repaired"
    """The ledger was rebuilt."""


class Journal(Protocol):
    """Records inputs and decisions in order, so that the decisions can be reproduced."""

    def received(self, kind: InputKind, value: object, *, gone: bool = False) -> None:
        """Record that `value` applies from now on or, if `gone`, no longer."""

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """Record the decision that follows from all inputs recorded before."""


@immutable
class Ports:
    """The implementations that the loop uses."""

    binder: Binder
    claims: VolumeBinder
    allocator: ClaimAllocator
    event_recorder: EventRecorder
    recorder: AttemptMetrics
    repairs: RepairMetrics
    allocations: AllocationMetrics
    journal: Journal | None = None


class NoJournal(Journal):
    """Records nothing."""

    def received(self, kind: InputKind, value: object, *, gone: bool = False) -> None:
        """Do nothing."""

    def decided(self, pod: PodRef, decision: Decision | None) -> None:
        """Do nothing."""
