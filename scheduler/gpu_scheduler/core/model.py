"""The values that decisions are made of.

LAW: frozen values, parsed at the border and complete; nothing here knows how the API writes them, and nothing changes
them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from gpu_scheduler import names
from gpu_scheduler.core.bounds import Excess
from gpu_scheduler.core.constraints import ANYWHERE, Constraints, Taint
from gpu_scheduler.core.demand import NOTHING, Demand
from gpu_scheduler.core.inventory import Inventory, Reading
from gpu_scheduler.core.placement_map import PlacementMap


class Sharing(StrEnum):
    """When two pods may hold one device (`GPU_SHARING`)."""

    SAME_WORKLOAD = "same-workload"
    """Where two different lines of their common map name it, or both pods say `agentaflow.gpu/sharing: any`."""
    ANY = "any"
    NONE = "none"
    """Never, whatever the pods say: the operator's word is the last."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator chose."""

    scheduler_name: str = names.SCHEDULER_NAME
    sharing: Sharing = Sharing.SAME_WORKLOAD
    utilization_goal: int = 80
    """Percent: a card that is busier gets no pod by strategy."""


@dataclass(frozen=True, slots=True)
class PodRef:
    """Which pod. `str()` gives `default/train-0`; `uid` is empty for a pod under admission."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """As kubectl's users write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A pod's controller: the owner reference with `controller: true`."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class EnvVar:
    """One entry of a container's `env`.

    Both `value` and `field_path` are None when it comes from elsewhere (a Secret, say); an entry that gives neither
    value nor source has `value=""`.
    """

    name: str
    value: str | None
    field_path: str | None = None


class ContainerKind(StrEnum):
    """A container's list; the value is the field of `spec`."""

    CONTAINER = "containers"
    INIT = "initContainers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class Container:
    """A container at `position` of its list.

    `env` keeps only the two CUDA variables, in order; None means that the container has no such list yet.
    """

    kind: ContainerKind
    position: int
    name: str
    env: tuple[EnvVar, ...] | None


@dataclass(frozen=True, slots=True)
class Condition:
    """The pod's `PodScheduled` condition; `since` is its lastTransitionTime, as read."""

    status: str
    reason: str
    message: str
    since: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as placement cares.

    Two views of a pod are equal when they ask for the same: the condition is what we wrote ourselves, so it is no
    difference. `annotations` hold only what `names.POD_ANNOTATIONS` names, `labels` only those of index and workload.
    """

    ref: PodRef
    scheduler_name: str = names.SCHEDULER_NAME
    node: str | None = None
    phase: str = "Pending"
    deleting_since: str | None = None
    """`deletionTimestamp` as read (RFC 3339)."""
    gated: bool = False
    generate_name: str | None = None
    owner: Owner | None = None
    annotations: Mapping[str, str] = field(default_factory=dict, hash=False)
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    containers: tuple[Container, ...] = ()
    demand: Demand = NOTHING
    constraints: Constraints = ANYWHERE
    claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims that it mounts, in its own namespace; of generic ephemeral volumes too."""
    gpu_limits: tuple[tuple[str, int], ...] = ()
    """Containers with a limit of `nvidia.com/gpu` above 0, and that limit."""
    unsupported: tuple[str, ...] = ()
    """Fields that ask for something we do not decide, by their path in the pod."""
    scheduled_condition: Condition | None = field(default=None, compare=False)
    excess: Excess | None = None
    """What it has too much of to be kept whole; such a pod is never placed."""
    rejected: str = ""
    """Why its kubelet would not run it, in the kubelet's word; empty where it did not say so."""

    @property
    def bound(self) -> bool:
        """It has a node, for good: no pod ever loses or changes it."""
        return self.node is not None

    @property
    def finished(self) -> bool:
        """Its containers have stopped for good, so it uses no GPU."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def map_text(self) -> str | None:
        """The map as written, if any."""
        return self.annotations.get(names.MAP)

    @property
    def observer(self) -> bool:
        """It sees its devices and holds its index, but claims no device."""
        return self.annotations.get(names.OBSERVER) == "true"

    @property
    def keep_env(self) -> bool:
        """Its containers may set the CUDA variables themselves."""
        return self.annotations.get(names.KEEP_ENV) == "true"

    @property
    def sharing_any(self) -> bool:
        """It shares its devices with whoever says the same."""
        return self.annotations.get(names.SHARING) == "any"

    @property
    def gpu_limit(self) -> int:
        """How many cards it wants from a device plugin; 0 when it does not ask for any that way."""
        return sum(limit for _, limit in self.gpu_limits)


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `alias` is its label `gpu-node-name`."""

    name: str
    ready: bool = True
    unschedulable: bool = False
    alias: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    """By resource, in the units of demand.py; `pods` is how many it takes."""
    inventory: Inventory | None = None
    """Its cards, from the monitor's annotation, else from the number that a device plugin advertises."""
    advertised: int | None = None
    """How many cards a device plugin hands out there (`nvidia.com/gpu` in its capacity): 0 while it restarts, None
    where there is none."""
    readings: Mapping[int, Reading] = field(default_factory=dict, hash=False)
    """What its monitor last read, by card index."""
    stale: bool = False
    """Its monitor has been silent for too long: nobody knows how its cards are."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A bound pod of another scheduler: not ours to touch, but what it takes is gone."""

    ref: PodRef
    node: str
    demand: Demand


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod goes and what it sees there.

    `node` is a real name, `devices` come in the order in which CUDA is to number them, `index` is the map line's; None
    when a strategy chose.
    """

    node: str
    devices: tuple[str, ...]
    index: int | None
    uuids: tuple[str, ...] | None = None
    """Of the devices, in their order, where they are known."""

    @property
    def value(self) -> str:
        """The devices as CUDA_VISIBLE_DEVICES spells them; empty means no GPU."""
        return ",".join(self.devices)

    @property
    def annotations(self) -> dict[str, str]:
        """What the Binding must carry, so that node, devices and index become durable in one write.

        The ledger reads it back.
        """
        known = {} if self.uuids is None else {names.ASSIGNED_UUIDS: ",".join(self.uuids)}
        if self.index is not None:
            known[names.ASSIGNED_INDEX] = str(self.index)
        return {names.ASSIGNED_DEVICES: self.value, names.ASSIGNED_NODE: self.node, **known}


@dataclass(frozen=True, slots=True)
class WorkloadKey:
    """The pods that divide a map's lines among them.

    They have one namespace, one top controller (empty for bare pods) and one parsed map, whose digest this is.
    """

    namespace: str
    owner_kind: str
    owner_name: str
    map: str

    def __str__(self) -> str:
        """The controller as kubectl's users write it; empty for bare pods."""
        return f"{self.owner_kind}/{self.owner_name}" if self.owner_kind else ""


def workload_of(pod: Pod, placement_map: PlacementMap) -> WorkloadKey:
    """Which workload `pod` belongs to; a ReplicaSet made by a Deployment counts as that Deployment."""
    owner = pod.owner
    if owner is None:
        return _workload(pod.ref.namespace, "", "", placement_map.digest)
    suffix = "-" + pod.labels.get(names.POD_TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and suffix != "-" and owner.name.endswith(suffix):
        return _workload(pod.ref.namespace, "Deployment", owner.name.removesuffix(suffix), placement_map.digest)
    return _workload(pod.ref.namespace, owner.kind, owner.name, placement_map.digest)


@lru_cache(maxsize=4096)
def _workload(namespace: str, owner_kind: str, owner_name: str, digest: str) -> WorkloadKey:
    """One value for all pods of a workload."""
    return WorkloadKey(namespace, owner_kind, owner_name, digest)
