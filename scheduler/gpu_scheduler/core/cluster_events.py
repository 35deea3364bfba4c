"""What can change in a cluster so that a waiting pod may be placed.

LAW: an event names what changed and nothing of who waits for it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto

from gpu_scheduler.core.refs import WorkloadKey


@dataclass(frozen=True, slots=True)
class DeviceChanged:
    """Who holds a card of a real node changed; an empty `card` stands for the node's cards as a whole."""

    node: str
    card: str


@dataclass(frozen=True, slots=True)
class IndexChanged:
    """An index of a workload became free, or what holds it changed."""

    workload: WorkloadKey
    index: int


@dataclass(frozen=True, slots=True)
class AnyIndexFreed:
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
class ResourceFreed:
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
class ClassChanged:
    """A node begins to fit pods of one shape, or something else than before keeps them from all nodes.

    `shape` is what they ask for, and equal for all of them. As long as somebody has the value, somebody waits.
    """

    shape: Hashable


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """A pod of the namespace gave back devices, or the namespace's limit changed."""

    namespace: str


ClusterEvent = (
    DeviceChanged
    | IndexChanged
    | AnyIndexFreed
    | NodeChanged
    | QuotaChanged
    | ResourceFreed
    | ClassChanged
    | StorageChanged
)
"""What can cure a wait. That a change of the pod itself can goes without saying."""
