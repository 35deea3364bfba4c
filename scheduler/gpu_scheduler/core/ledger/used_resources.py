"""What the pods of each node use: CPU, memory, ports, and the GPUs that a device plugin hands out.

LAW: every bound pod of every scheduler counts, and every assumed pod. The cost of a change or query depends on what one
pod takes, never on what all pods of a node take.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import NO_EVENTS, ClusterEvent, DeviceChanged, ResourceFreed
from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.pods.pod import EVERY_PORT, ForeignPod, HostPort
from gpu_scheduler.core.refs import PodRef

PODS: Final = "pods"
"""The resource of which every pod takes 1."""

PORTS: Final = "ports"
"""The resource name that ResourceFreed uses for all ports of the host."""


@dataclass(slots=True)
class _Use:
    """What the pods of one node use."""

    totals: dict[str, int] = field(default_factory=dict)
    ports: dict[tuple[str, int], dict[tuple[str, HostPort], None]] = field(default_factory=dict)
    """By protocol and port number: the pods that have the port, and their addresses. One pod may have it on several
    addresses."""
    plugin_users: dict[str, None] = field(default_factory=dict)

    def copied(self) -> "_Use":
        """Return a copy that no later change alters."""
        return _Use({**self.totals}, {port: {**holders} for port, holders in self.ports.items()}, {**self.plugin_users})

    def entries(self, node: str) -> Iterator[tuple[object, object]]:
        """List the entries of this node as pairs of key and value. Nothing may change meanwhile."""
        for resource, amount in self.totals.items():
            if amount:
                yield ("used", node, resource), amount
        for port, holders in self.ports.items():
            yield ("ports", node, port), frozenset(holders)
        yield ("plugin", node), frozenset(self.plugin_users)


class UsedResources:
    """All bound and assumed pods by uid, and what they use of their nodes."""

    __slots__ = ("_generations", "_nodes", "_pods")

    def __init__(self, generations: NodeGenerations | None = None) -> None:
        """Start empty. Every node whose use changes is marked in `generations`."""
        self._generations = NodeGenerations() if generations is None else generations
        self._pods: dict[str, ForeignPod] = {}
        self._nodes: dict[str, _Use] = {}

    def put(self, foreign_pod: ForeignPod) -> frozenset[ClusterEvent]:
        """Record what the pod takes now. Return the cluster events of what it no longer takes."""
        before = self._pods.get(foreign_pod.ref.uid)
        if before == foreign_pod:
            return NO_EVENTS
        freed = NO_EVENTS if before is None else self.drop(foreign_pod.ref.uid)
        self._generations.mark(foreign_pod.node)
        self._pods[foreign_pod.ref.uid] = foreign_pod
        use = self._nodes.setdefault(foreign_pod.node, _Use())
        for resource, amount in _taken(foreign_pod):
            use.totals[resource] = use.totals.get(resource, 0) + amount
        for port in foreign_pod.resource_request.ports:
            use.ports.setdefault((port.protocol, port.port), {})[foreign_pod.ref.uid, port] = None
        if names.GPU_RESOURCE in foreign_pod.resource_request.requests:
            use.plugin_users[foreign_pod.ref.uid] = None
        return freed

    def drop(self, uid: str) -> frozenset[ClusterEvent]:
        """Remove a pod that is gone or finished. Return the cluster events of what it released."""
        foreign_pod = self._pods.pop(uid, None)
        if foreign_pod is None:
            return NO_EVENTS
        node, use = foreign_pod.node, self._nodes[foreign_pod.node]
        self._generations.mark(node)
        cured_by: set[ClusterEvent] = set()
        for resource, amount in _taken(foreign_pod):
            use.totals[resource] -= amount
            if not use.totals[resource]:
                del use.totals[resource]
            cured_by.add(ResourceFreed(node, resource))
        for port in foreign_pod.resource_request.ports:
            holders = use.ports[port.protocol, port.port]
            del holders[uid, port]
            if not holders:
                del use.ports[port.protocol, port.port]
            cured_by.add(ResourceFreed(node, PORTS))
        if use.plugin_users.pop(uid, uid) is None:
            cured_by.add(DeviceChanged(node, ""))
        if PODS not in use.totals:
            del self._nodes[node]
        return frozenset(cured_by)

    def used(self, node: str, resource: str) -> int:
        """Return how much of a resource the node's pods take. For `pods` this is the number of pods."""
        use = self._nodes.get(node)
        return 0 if use is None else use.totals.get(resource, 0)

    def port_holder(self, node: str, port: HostPort) -> tuple[PodRef, HostPort] | None:
        """Return a pod of the node that has a port in conflict with `port`, and its port; None if there is none."""
        use = self._nodes.get(node)
        if use is None:
            return None
        for key in (port, EVERY_PORT):
            for uid, taken in use.ports.get((key.protocol, key.port), {}):
                if taken.overlaps(port):
                    return self._pods[uid].ref, taken
        return None

    def plugin_user(self, node: str) -> PodRef | None:
        """Return the pod that first took devices of the node's device plugin, or None."""
        use = self._nodes.get(node)
        uid = None if use is None else next(iter(use.plugin_users), None)
        return None if uid is None else self._pods[uid].ref

    def entries(self) -> Iterator[tuple[object, object]]:
        """List the entries of this moment as pairs of key and value, also if they are read after later changes."""
        nodes = [(node, use.copied()) for node, use in self._nodes.items()]
        return chain(
            ((("foreign_pod", uid), foreign_pod) for uid, foreign_pod in tuple(self._pods.items())),
            chain.from_iterable(use.entries(node) for node, use in nodes),
        )


def _taken(foreign_pod: ForeignPod) -> Iterator[tuple[str, int]]:
    yield PODS, 1
    yield from foreign_pod.resource_request.requests.items()
