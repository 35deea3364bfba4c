"""Cluster events: changes of the cluster after which a waiting pod may be placed.

LAW: an event names what changed. It never names a pod that waits for it.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.refs import WorkloadKey


@immutable
class DeviceChanged:
    """The holders of a device changed. `node` is the real name. An empty `device` means all devices of the node."""

    node: str
    device: str


@immutable
class IndexChanged:
    """An index of a workload became free, or the pod that holds it changed."""

    workload: WorkloadKey
    index: int


@immutable
class AnyIndexFreed:
    """An index of a workload became free. A pod without an index of its own may take it."""

    workload: WorkloadKey


@immutable
class WorkloadStarted:
    """The first pod of a workload that starts together is assumed or bound: the others do not wait for it any more."""

    workload: WorkloadKey


class Aspect(Enum):
    """The properties of a node that a decision reads."""

    IDENTITY = auto()
    """Whether the node exists, and which node its name or alias means."""
    READY = auto()
    UNSCHEDULABLE = auto()
    TAINTS = auto()
    LABELS = auto()
    ALLOCATABLE = auto()
    INVENTORY = auto()
    HEALTH = auto()
    """The health of its devices as its monitor reports it, and whether the monitor's Lease is current."""
    CORDONS = auto()
    """Which of its devices operators have taken out of service."""
    LOAD = auto()
    """Used memory and utilization of its devices."""


@immutable
class NodeChanged:
    """One aspect of the node with this name or alias changed."""

    name: str
    aspect: Aspect


@immutable
class ResourceFreed:
    """A pod released an amount of a resource on a node. `resource` is the resource's name, or `ports`."""

    node: str
    resource: str


class Storage(Enum):
    """The kinds of storage object that a decision reads."""

    CLAIM = auto()
    VOLUME = auto()
    CLASS = auto()


@immutable
class StorageChanged:
    """A claim (`name` is NAMESPACE/NAME), a volume or a storage class changed."""

    kind: Storage
    name: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ClassChanged:
    """A node begins to fit pods of one equivalence class, or the reason why no node fits them has changed.

    `Ranking` has a weak reference to this value: it treats pods of the class as waiting while any other reference
    exists.
    """

    equivalence_class: Hashable


@immutable
class QuotaChanged:
    """A pod of the namespace released devices, or the namespace's limit changed."""

    namespace: str


@immutable
class ResourceClaimChanged:
    """A ResourceClaim of a user has changed, or one of this scheduler is reserved for pods. `name` is NAMESPACE/NAME.

    A pod that carries it and waits may use it now, or gives it back: an earlier write may have come late.
    """

    name: str


ClusterEvent = (
    DeviceChanged
    | IndexChanged
    | AnyIndexFreed
    | NodeChanged
    | QuotaChanged
    | ResourceClaimChanged
    | ResourceFreed
    | ClassChanged
    | StorageChanged
    | WorkloadStarted
)
"""Everything that can end a wait, except a change of the pod itself."""

NO_EVENTS: Final[frozenset[ClusterEvent]] = frozenset()
