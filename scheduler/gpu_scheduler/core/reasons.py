"""Why a pod is refused or waits, and what could cure it.

LAW: one word per reason, the same in message, command line, metric label and documentation; an obstacle carries all
that can be said of it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from gpu_scheduler.core.model import WorkloadKey
from gpu_scheduler.core.text import sentence


class Reason(StrEnum):
    """The closed list. The value is the word that users see."""

    MAP_INVALID = "MapInvalid"
    REQUEST_INVALID = "RequestInvalid"
    NOTHING_REQUESTED = "NothingRequested"
    UNSUPPORTED = "Unsupported"
    INDEX_UNKNOWN = "IndexUnknown"
    INDEX_NOT_IN_MAP = "IndexNotInMap"
    INDEX_HELD = "IndexHeld"
    NO_FREE_INDEX = "NoFreeIndex"
    NODE_NOT_FOUND = "NodeNotFound"
    NODE_AMBIGUOUS = "NodeAmbiguous"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    PORT_IN_USE = "PortInUse"
    VOLUME_NOT_BOUND = "VolumeNotBound"
    GPU_NOT_FOUND = "GpuNotFound"
    GPU_HELD = "GpuHeld"
    GPU_UNHEALTHY = "GpuUnhealthy"
    NOT_ENOUGH_GPUS = "NotEnoughGpus"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INSUFFICIENT_GPU_MEMORY = "InsufficientGpuMemory"
    ENV_NOT_INJECTED = "EnvNotInjected"
    ENV_CONFLICT = "EnvConflict"
    BIND_FAILED = "BindFailed"


REFUSED_AT_ADMISSION: Final = frozenset(
    {
        Reason.MAP_INVALID,
        Reason.REQUEST_INVALID,
        Reason.UNSUPPORTED,
        Reason.INDEX_UNKNOWN,
        Reason.INDEX_NOT_IN_MAP,
        Reason.ENV_CONFLICT,
    }
)
"""Faults of the pod's own text: the webhook refuses them; where one slipped by, only a change of the pod cures it."""


@dataclass(frozen=True, slots=True)
class GpuChanged:
    """Who holds a card of a real node changed; an empty `card` stands for the node's cards as a whole."""

    node: str
    card: str


@dataclass(frozen=True, slots=True)
class IndexChanged:
    """An index of a workload became free, or what holds it changed."""

    workload: WorkloadKey
    index: int


@dataclass(frozen=True, slots=True)
class LineFreed:
    """Some index of a workload became free: a pod that takes any may have it."""

    workload: WorkloadKey


class Aspect(Enum):
    """What a placement asks about a node."""

    IDENTITY = auto()
    """That it exists, and which node its name or alias means."""
    READY = auto()
    UNSCHEDULABLE = auto()
    TAINTS = auto()
    LABELS = auto()
    ALLOCATABLE = auto()
    INVENTORY = auto()
    HEALTH = auto()
    """What its monitor says of its cards' health, and whether it still says anything."""
    LOAD = auto()
    """How much of its cards is in use."""


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """One aspect of the node with this name or alias changed."""

    name: str
    aspect: Aspect


@dataclass(frozen=True, slots=True)
class RoomFreed:
    """A pod left a node and gave back some of a resource; `resource` is its name, or `ports`."""

    node: str
    resource: str


class Storage(Enum):
    """The kinds of storage object that a placement asks about."""

    CLAIM = auto()
    VOLUME = auto()
    CLASS = auto()


@dataclass(frozen=True, slots=True)
class StorageChanged:
    """A claim (`name` is NAMESPACE/NAME), a volume or a storage class changed."""

    kind: Storage
    name: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ShapeChanged:
    """A node begins to fit pods of one shape, or something else than before keeps them from all nodes.

    `shape` is what they ask for, and equal for all of them. As long as somebody has the value, somebody waits.
    """

    shape: Hashable


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """A pod of the namespace gave back devices, or the namespace's limit changed."""

    namespace: str


Wake = GpuChanged | IndexChanged | LineFreed | NodeChanged | QuotaChanged | RoomFreed | ShapeChanged | StorageChanged
"""What can cure a wait. That a change of the pod itself can goes without saying."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why a pod cannot be placed: what is the case, what its owner can do, and which changes may help.

    `about` is what makes it the same obstacle next time, where `what` has numbers that change by the minute.
    """

    reason: Reason
    what: str
    cure: str
    wakes: frozenset[Wake] = frozenset()
    about: str = ""

    @property
    def message(self) -> str:
        """The text of condition, event, log line and refusal; it begins with the reason's word and a colon."""
        return sentence(self.reason, self.what, self.cure)

    @property
    def topic(self) -> str:
        """Two obstacles with one topic are one obstacle: it is told once."""
        return f"{self.reason}: {self.about or self.what}"
