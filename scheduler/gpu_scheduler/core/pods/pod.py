"""A pod as placement sees it: ours with all that is decided by, another scheduler's with what it takes.

LAW: frozen values, parsed at the border and complete; nothing here knows how the API or a user writes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.constraints import ANYWHERE, SchedulingConstraints
from gpu_scheduler.core.pods.container_env import NO_CONTAINERS, Environment
from gpu_scheduler.core.pods.placement import UNASSIGNED, Assignment
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.refs import Owner, PodRef

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what Kubernetes calls "every address of the host"


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node: one protocol, one address or every one."""

    protocol: str
    address: str
    port: int

    def __str__(self) -> str:
        """As people write it: `8080/TCP`, with the address where it is not every one."""
        if self == EVERY_PORT:
            return "every port"
        where = "" if self.address == ANY_ADDRESS else f"{self.address}:"
        return f"{where}{self.port}/{self.protocol}"

    def overlaps(self, other: "HostPort") -> bool:
        """Whether one host cannot give both."""
        if EVERY_PORT in {self, other}:
            return True
        return (self.protocol, self.port) == (other.protocol, other.port) and (
            self.address == other.address or ANY_ADDRESS in {self.address, other.address}
        )


EVERY_PORT: Final = HostPort("", ANY_ADDRESS, 0)
"""What a pod counts as having that has more ports than are kept one by one."""


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What one pod takes: `requests` by resource name, without zeroes, and ports of the host."""

    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    ports: frozenset[HostPort] = frozenset()


NOTHING: Final = ResourceRequest()


@dataclass(frozen=True, slots=True)
class ScheduledCondition:
    """The pod's `PodScheduled` condition; `since` is its lastTransitionTime, as read."""

    status: str
    reason: str
    message: str
    since: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, as far as placement cares.

    Two views of a pod are equal when they ask for the same: the condition is what we wrote ourselves, so it is no
    difference.
    """

    ref: PodRef
    request: PlacementRequest
    scheduler_name: str = names.SCHEDULER_NAME
    node: str | None = None
    phase: str = "Pending"
    deleting_since: str | None = None
    """`deletionTimestamp` as read (RFC 3339)."""
    gated: bool = False
    generate_name: str | None = None
    owner: Owner | None = None
    assignment: Assignment = UNASSIGNED
    environment: Environment = NO_CONTAINERS
    resource_request: ResourceRequest = NOTHING
    constraints: SchedulingConstraints = ANYWHERE
    claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims that it mounts, in its own namespace; of generic ephemeral volumes too."""
    gpu_limits: tuple[tuple[str, int], ...] = ()
    """Containers with a limit of `nvidia.com/gpu` above 0, and that limit."""
    scheduled_condition: ScheduledCondition | None = field(default=None, compare=False)
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
    def gpu_limit(self) -> int:
        """How many devices it wants from a device plugin; 0 when it does not ask for any that way."""
        return sum(limit for _, limit in self.gpu_limits)


@dataclass(frozen=True, slots=True)
class ForeignPod:
    """A bound pod of another scheduler: not ours to touch, but what it takes is gone."""

    ref: PodRef
    node: str
    resource_request: ResourceRequest
