"""Pods: ours with everything that a decision reads, those of other schedulers with what they take.

LAW: frozen and complete values. Other modules parse them: this one does not know the formats of the API or of users.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.constraints import ANYWHERE, SchedulingConstraints
from gpu_scheduler.core.pods.container_env import NO_CONTAINERS, Environment
from gpu_scheduler.core.pods.placement import UNASSIGNED, Assignment
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.refs import Owner, PodRef

ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - what Kubernetes calls "every address of the host"


@immutable
class HostPort:
    """A port of the node: one protocol, and one address or every address."""

    protocol: str
    address: str
    port: int

    def __str__(self) -> str:
        """Return the port as text for people: `8080/TCP`, with the address unless it is every address."""
        if self == EVERY_PORT:
            return "every port"
        where = "" if self.address == ANY_ADDRESS else f"{self.address}:"
        return f"{where}{self.port}/{self.protocol}"

    def overlaps(self, other: "HostPort") -> bool:
        """Whether one host cannot give both ports to different pods."""
        if EVERY_PORT in {self, other}:
            return True
        return (self.protocol, self.port) == (other.protocol, other.port) and (
            self.address == other.address or ANY_ADDRESS in {self.address, other.address}
        )


EVERY_PORT: Final = HostPort("", ANY_ADDRESS, 0)
"""All ports. A pod that has more ports than are kept one by one counts as having all."""


@immutable
class ResourceRequest:
    """What one pod takes of its node.

    `requests` are by resource name, in the order in which they are checked, without zeroes, in the units of
    `Node.allocatable`. `ports` are ports of the host.
    """

    requests: Mapping[str, int] = field(default_factory=dict, hash=False)
    ports: frozenset[HostPort] = frozenset()


NOTHING: Final = ResourceRequest()


@immutable
class ScheduledCondition:
    """The pod's `PodScheduled` condition. `since` is its lastTransitionTime, as read."""

    status: str
    reason: str
    message: str
    since: str | None = field(default=None, compare=False)


@immutable
class Pod:
    """A pod of this scheduler, with the fields that a decision needs.

    Two views of a pod are equal if they ask for the same. The condition is not compared, because the scheduler writes
    it.
    """

    ref: PodRef
    request: PlacementRequest
    scheduler_name: str = names.SCHEDULER_NAME
    node: str | None = None
    phase: str = "Pending"
    deleting_since: str | None = None
    """`deletionTimestamp` as read (RFC 3339)."""
    gated: bool = False
    priority: int = 0
    """`spec.priority`: the API server takes it from the pod's PriorityClass."""
    created: str = ""
    """`creationTimestamp` as read (RFC 3339, UTC)."""
    generate_name: str | None = None
    owner: Owner | None = None
    assignment: Assignment = UNASSIGNED
    environment: Environment = NO_CONTAINERS
    resource_request: ResourceRequest = NOTHING
    constraints: SchedulingConstraints = ANYWHERE
    claims: tuple[str, ...] = ()
    """Names of the PersistentVolumeClaims that it mounts, in its own namespace, including those of generic ephemeral
    volumes."""
    resource_claims: tuple[str, ...] = ()
    """Names of the ResourceClaims that our entries of its spec refer to, in order; or that of its own claim. With
    claims, the kubelet gives its containers only the devices of these, and CUDA_VISIBLE_DEVICES names them by UUID."""
    gpu_limits: tuple[tuple[str, int], ...] = ()
    """Containers with a limit of `nvidia.com/gpu` above 0, and that limit."""
    scheduled_condition: ScheduledCondition | None = field(default=None, compare=False)
    excess: Excess | None = None
    """What exceeds its bound, so that the pod is not kept whole. Such a pod is never placed."""
    rejected: str = ""
    """Why its kubelet rejected it, in the kubelet's word; empty if it did not reject it."""

    @property
    def bound(self) -> bool:
        """Whether it has a node. A pod never loses or changes its node."""
        return self.node is not None

    @property
    def finished(self) -> bool:
        """Whether its containers have stopped for good, so that it uses no GPU."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def isolated(self) -> bool:
        """Whether the kubelet gives its containers the devices of its ResourceClaims and no other.

        A pod under admission may get its claims only now.
        """
        return bool(self.resource_claims) or self.request.claims is not None or self.request.own_claim is not None

    @property
    def gpu_limit(self) -> int:
        """Return how many devices it requests from a device plugin; 0 if it has no such limit."""
        return sum([limit for _, limit in self.gpu_limits])


@immutable
class ForeignPod:
    """A bound pod of another scheduler. This scheduler never changes it, but counts what it takes."""

    ref: PodRef
    node: str
    resource_request: ResourceRequest
