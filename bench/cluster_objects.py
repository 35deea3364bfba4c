"""The cluster in which pods are placed, as bodies ready to POST: nodes with GPUs, and workloads whose maps name them.

Placements are laid out so that each pod has a GPU of its own, and each workload's pods stand on many nodes.
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
"""Pods of a workload, and so lines of its map."""
NAMESPACE_PODS: Final = 3000
"""Upstream's threshold for the pods of one namespace."""
REQUESTS: Final = {"cpu": "100m", "memory": "64Mi"}
"""What each pod takes beside GPUs."""
ROOM: Final = {"nvidia.com/gpu": str(GPUS_PER_NODE), "cpu": "256", "memory": "2Ti", "pods": "1000"}
"""Room for whatever lands on a node: what is measured is placing, not running short."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where a pod was found in the end."""

    node: str
    said: str
    """The node that its own annotation names; empty where none does."""
    devices: tuple[str, ...]
    """As its annotation names them."""


class ClusterObjects(Protocol):
    """Nodes, pods to place there, and what is right of where they end."""

    @property
    def nodes(self) -> int:
        """How many."""

    @property
    def pods(self) -> int:
        """How many; each has a name of its own, whatever its namespace."""

    @property
    def gpus(self) -> int:
        """How many all pods get together."""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those of the pods."""

    def node_bodies(self) -> Iterator[Object]:
        """The nodes, ready to POST."""

    def misplaced(self, bound: Mapping[str, Assignment], *, devices: bool) -> Iterator[str]:
        """A sentence for each of these pods that is not as it should be; `devices` where theirs are told."""


@dataclass(frozen=True, slots=True)
class MappedPod:
    """One pod of a workload."""

    workload: int
    number: int

    @property
    def name(self) -> str:
        """As a StatefulSet calls it."""
        return f"{self.owner}-{self.number}"

    @property
    def owner(self) -> str:
        """The workload's name."""
        return f"w{self.workload:04}"


@dataclass(frozen=True, slots=True)
class MappedPods:
    """`pods` of them on `nodes`, WORKLOAD_PODS to a workload; each GPU is given so many times, one after another."""

    nodes: int
    pods: int
    turns: int = 1

    def __post_init__(self) -> None:
        """Each pod has a GPU of its own while it is there, or nothing is measured."""
        if self.pods > self.nodes * GPUS_PER_NODE * self.turns:
            raise ValueError(f"cannot place {self.pods} pods on {self.nodes} nodes: each has {GPUS_PER_NODE} GPUs")

    @property
    def gpus(self) -> int:
        """See ClusterObjects."""
        return self.pods

    @property
    def namespaces(self) -> tuple[str, ...]:
        """As many as their pods need."""
        return namespace_names("objects", self.pods)

    def node_bodies(self) -> Iterator[Object]:
        """The nodes."""
        for number in range(self.nodes):
            yield shapes.node(node_name(number), room=ROOM)

    def members(self) -> Iterator[MappedPod]:
        """The pods, workload by workload."""
        for number in range(self.pods):
            yield MappedPod(number // WORKLOAD_PODS, number % WORKLOAD_PODS)

    def namespace(self, member: MappedPod) -> str:
        """A workload's pods are in one."""
        spaces = self.namespaces
        return spaces[member.workload % len(spaces)]

    def place(self, member: MappedPod) -> tuple[str, int]:
        """The node and the GPU that the map names."""
        number = member.workload * WORKLOAD_PODS + member.number
        return node_name(number % self.nodes), number // self.nodes % GPUS_PER_NODE

    def body(self, member: MappedPod, scheduler: str, *, pinned: bool = False, admitted: bool = True) -> Object:
        """The pod as controller and webhook leave it, or, where it is not `admitted`, as its controller asks for it.

        `pinned` says its node as kube-scheduler understands it.
        """
        node, card = self.place(member)
        owner = MappedPod(member.workload, 0)
        spec: Object = {"affinity": _only(node)} if pinned else {}
        return shapes.pod(
            member.name,
            self._map(owner),
            shapes.literal(str(card)) if admitted else None,
            owner=("StatefulSet", owner.owner),
            labels={"apps.kubernetes.io/pod-index": str(member.number)},
            scheduler=scheduler,
            requests=REQUESTS,
            **spec,
        )

    def pod_requests(
        self, scheduler: str, *, pinned: bool = False, admitted: bool = True
    ) -> Iterator[tuple[str, Object]]:
        """All pods with the paths to which they are POSTed."""
        for member in self.members():
            body = self.body(member, scheduler, pinned=pinned, admitted=admitted)
            yield f"/api/v1/namespaces/{self.namespace(member)}/pods", body

    def misplaced(self, bound: Mapping[str, Assignment], *, devices: bool) -> Iterator[str]:
        """Pods that are elsewhere than their map says."""
        for member in self.members():
            given = bound.get(member.name)
            node, card = self.place(member)
            right = Assignment(node, node, (str(card),))
            if given is not None and (given != right if devices else given.node != node):
                yield f"{member.name} belongs on GPU {card} of {node}"

    def _map(self, owner: MappedPod) -> str:
        lines = []
        for number in range(min(WORKLOAD_PODS, self.pods - owner.workload * WORKLOAD_PODS)):
            node, card = self.place(MappedPod(owner.workload, number))
            lines.append(f"{number}={node}:{card}\n")
        return "".join(lines)


def namespace_names(name: str, pods: int) -> tuple[str, ...]:
    """The names of as many namespaces as these pods need, in the order of their numbers."""
    return tuple(f"{name}-{number}" for number in range(-(-pods // NAMESPACE_PODS)))


def node_name(number: int) -> str:
    """The nodes' names, as they sort."""
    return f"node-{number:05}"


def _only(node: str) -> Object:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
