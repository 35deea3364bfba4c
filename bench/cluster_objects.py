"""Builds the objects of a benchmark cluster: nodes with GPUs, and workloads whose maps name them.

Each pod has its own GPU, and the pods of each workload are on many nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests import objects as shapes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Object = dict[str, Any]

GPUS_PER_NODE: Final = 16
WORKLOAD_PODS: Final = 50
"""Pods of a workload, which is also the number of lines of its map."""
NAMESPACE_PODS: Final = 3000
"""Kubernetes' tested limit of pods in one namespace."""
REQUESTS: Final = {"cpu": "100m", "memory": "64Mi"}
"""Resource requests of each pod, beside GPUs."""
ROOM: Final = {"nvidia.com/gpu": str(GPUS_PER_NODE), "cpu": "256", "memory": "2Ti", "pods": "1000"}
"""Enough for all pods of a node: the benchmark measures placing, not a lack of resources."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The node and devices of a bound pod."""

    node: str
    output: str
    """The node in the pod's own annotation; empty without that annotation."""
    devices: tuple[str, ...]
    """The devices in the pod's own annotation."""


class ClusterObjects(Protocol):
    """Nodes, pods to place on them, and the check of the placements."""

    @property
    def nodes(self) -> int:
        """The number of nodes."""

    @property
    def pods(self) -> int:
        """The number of pods; pod names are unique across namespaces."""

    @property
    def gpus(self) -> int:
        """The number of GPUs that all pods request."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The names of the pods' namespaces."""

    def node_bodies(self) -> Iterator[Object]:
        """Yield the nodes, ready to POST."""

    def misplaced(self, bound: Mapping[str, Assignment], *, devices: bool) -> Iterator[str]:
        """Yield a sentence for each misplaced pod. `devices`: the contender reports devices, so check them too."""


@dataclass(frozen=True, slots=True)
class MappedPod:
    """One pod of a workload."""

    workload: int
    number: int

    @property
    def name(self) -> str:
        """The name that a StatefulSet gives the pod."""
        return f"{self.owner}-{self.number}"

    @property
    def owner(self) -> str:
        """The workload's name."""
        return f"w{self.workload:04}"


@dataclass(frozen=True, slots=True)
class MappedPods:
    """`pods` pods on `nodes` nodes, WORKLOAD_PODS for each workload. A GPU is assigned at most `rounds` times."""

    nodes: int
    pods: int
    rounds: int = 1

    def __post_init__(self) -> None:
        """ValueError if there are not enough GPUs: each pod needs its own GPU while it exists."""
        if self.pods > self.nodes * GPUS_PER_NODE * self.rounds:
            raise ValueError(f"cannot place {self.pods} pods on {self.nodes} nodes: each has {GPUS_PER_NODE} GPUs")

    @property
    def gpus(self) -> int:
        """See ClusterObjects."""
        return self.pods

    @property
    def namespaces(self) -> tuple[str, ...]:
        """As many namespaces as the pods need."""
        return namespace_names("objects", self.pods)

    def node_bodies(self) -> Iterator[Object]:
        """Yield the nodes."""
        for number in range(self.nodes):
            yield shapes.node(node_name(number), room=ROOM)

    def members(self) -> Iterator[MappedPod]:
        """Yield the pods, workload by workload."""
        for number in range(self.pods):
            yield MappedPod(number // WORKLOAD_PODS, number % WORKLOAD_PODS)

    def namespace(self, member: MappedPod) -> str:
        """Return the pod's namespace: all pods of a workload are in the same one."""
        spaces = self.namespaces
        return spaces[member.workload % len(spaces)]

    def place(self, member: MappedPod) -> tuple[str, int]:
        """Return the node and the GPU that the map names."""
        number = member.workload * WORKLOAD_PODS + member.number
        return node_name(number % self.nodes), number // self.nodes % GPUS_PER_NODE

    def assignment(self, member: MappedPod) -> Assignment:
        """Return what the pod is given, as our scheduler reports it."""
        node, device = self.place(member)
        return Assignment(node, node, (str(device),))

    def body(self, member: MappedPod, scheduler: str, *, pinned: bool = False, admitted: bool = True) -> Object:
        """Return the pod as controller and webhook write it, or, if not `admitted`, as its controller creates it.

        `pinned` adds the node as a node affinity, which kube-scheduler understands.
        """
        node, device = self.place(member)
        owner = MappedPod(member.workload, 0)
        spec: Object = {"affinity": _only(node)} if pinned else {}
        return shapes.pod(
            member.name,
            self._map(owner),
            shapes.literal(str(device)) if admitted else None,
            owner=("StatefulSet", owner.owner),
            labels={"apps.kubernetes.io/pod-index": str(member.number)},
            scheduler=scheduler,
            requests=REQUESTS,
            **spec,
        )

    def pod_requests(
        self, scheduler: str, *, pinned: bool = False, admitted: bool = True
    ) -> Iterator[tuple[str, Object]]:
        """Yield for each pod the path to POST it to, and its body."""
        for member in self.members():
            body = self.body(member, scheduler, pinned=pinned, admitted=admitted)
            yield f"/api/v1/namespaces/{self.namespace(member)}/pods", body

    def misplaced(self, bound: Mapping[str, Assignment], *, devices: bool) -> Iterator[str]:
        """Yield a sentence for each pod whose assignment differs from its map."""
        for member in self.members():
            given, right = bound.get(member.name), self.assignment(member)
            if given is not None and (given != right if devices else given.node != right.node):
                yield f"{member.name} belongs on GPU {','.join(right.devices)} of {right.node}"

    def _map(self, owner: MappedPod) -> str:
        lines = []
        for number in range(min(WORKLOAD_PODS, self.pods - owner.workload * WORKLOAD_PODS)):
            node, device = self.place(MappedPod(owner.workload, number))
            lines.append(f"{number}={node}:{device}\n")
        return "".join(lines)


def namespace_names(name: str, pods: int) -> tuple[str, ...]:
    """Return the names of the namespaces that `pods` pods need, in the order of their numbers."""
    return tuple(f"{name}-{number}" for number in range(-(-pods // NAMESPACE_PODS)))


def node_name(number: int) -> str:
    """Return the name of the node with this number; names sort by number."""
    return f"node-{number:05}"


def _only(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
