"""What the pods of each node take of it: processor, memory, ports, and the cards that a device plugin hands out.

LAW: counts every bound pod, whoever scheduled it, and the assumed ones; each change and each question costs what one
pod takes, never what a node holds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import ClusterEvent, DeviceChanged, ResourceFreed
from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.pods.pod import EVERY_PORT, ForeignPod, HostPort
from gpu_scheduler.core.refs import PodRef

PODS: Final = "pods"
"""The resource that every pod takes one of."""

PORTS: Final = "ports"
"""What ResourceFreed calls any port of the host."""

_NOBODY: Final[frozenset[ClusterEvent]] = frozenset()


@dataclass(slots=True)
class _Use:
    """What is taken of one node."""

    totals: dict[str, int] = field(default_factory=dict)
    ports: dict[tuple[str, int], dict[tuple[str, HostPort], None]] = field(default_factory=dict)
    """By protocol and number: which pods have it, and on which address; one pod may have it on several."""
    plugin_users: dict[str, None] = field(default_factory=dict)


class UsedResources:
    """All bound pods by uid, and what they take of their nodes."""

    __slots__ = ("_nodes", "_residents", "_touched")

    def __init__(self, touched: NodeGenerations | None = None) -> None:
        """`touched` is told of every node where something changed."""
        self._touched = NodeGenerations() if touched is None else touched
        self._residents: dict[str, ForeignPod] = {}
        self._nodes: dict[str, _Use] = {}

    def put(self, foreign_pod: ForeignPod) -> frozenset[ClusterEvent]:
        """Take note that the pod takes this now; answers what it no longer takes."""
        before = self._residents.get(foreign_pod.ref.uid)
        if before == foreign_pod:
            return _NOBODY
        freed = _NOBODY if before is None else self.drop(foreign_pod.ref.uid)
        self._touched.mark(foreign_pod.node)
        self._residents[foreign_pod.ref.uid] = foreign_pod
        use = self._nodes.setdefault(foreign_pod.node, _Use())
        for resource, amount in _taken(foreign_pod):
            use.totals[resource] = use.totals.get(resource, 0) + amount
        for port in foreign_pod.resource_request.ports:
            use.ports.setdefault((port.protocol, port.port), {})[foreign_pod.ref.uid, port] = None
        if names.GPU_RESOURCE in foreign_pod.resource_request.requests:
            use.plugin_users[foreign_pod.ref.uid] = None
        return freed

    def drop(self, uid: str) -> frozenset[ClusterEvent]:
        """Take note that the pod is gone or finished; answers what it gave back."""
        foreign_pod = self._residents.pop(uid, None)
        if foreign_pod is None:
            return _NOBODY
        node, use = foreign_pod.node, self._nodes[foreign_pod.node]
        self._touched.mark(node)
        cured_by: set[ClusterEvent] = set()
        for resource, amount in _taken(foreign_pod):
            use.totals[resource] -= amount
            if not use.totals[resource]:
                del use.totals[resource]
            cured_by.add(ResourceFreed(node, resource))
        for port in foreign_pod.resource_request.ports:
            bearers = use.ports[port.protocol, port.port]
            del bearers[uid, port]
            if not bearers:
                del use.ports[port.protocol, port.port]
            cured_by.add(ResourceFreed(node, PORTS))
        if use.plugin_users.pop(uid, uid) is None:
            cured_by.add(DeviceChanged(node, ""))
        if PODS not in use.totals:
            del self._nodes[node]
        return frozenset(cured_by)

    def used(self, node: str, resource: str) -> int:
        """How much of a resource the node's pods take; `pods` is how many they are."""
        use = self._nodes.get(node)
        return 0 if use is None else use.totals.get(resource, 0)

    def port_holder(self, node: str, port: HostPort) -> tuple[PodRef, HostPort] | None:
        """Who on the node has a port that excludes `port`, and which."""
        use = self._nodes.get(node)
        if use is None:
            return None
        for key in (port, EVERY_PORT):
            for uid, taken in use.ports.get((key.protocol, key.port), {}):
                if taken.overlaps(port):
                    return self._residents[uid].ref, taken
        return None

    def plugin_user(self, node: str) -> PodRef | None:
        """Who on the node has cards of the device plugin (who came first)."""
        use = self._nodes.get(node)
        uid = None if use is None else next(iter(use.plugin_users), None)
        return None if uid is None else self._residents[uid].ref

    def entries(self) -> Iterator[tuple[object, object]]:
        """Everything that is noted, as pairs of key and value, for who compares two of these."""
        for uid, foreign_pod in self._residents.items():
            yield ("resident", uid), foreign_pod
        for node, use in self._nodes.items():
            for resource, amount in use.totals.items():
                if amount:
                    yield ("used", node, resource), amount
            for port, bearers in use.ports.items():
                yield ("ports", node, port), frozenset(bearers)
            yield ("plugin", node), frozenset(use.plugin_users)


def _taken(foreign_pod: ForeignPod) -> Iterator[tuple[str, int]]:
    yield PODS, 1
    yield from foreign_pod.resource_request.requests.items()
