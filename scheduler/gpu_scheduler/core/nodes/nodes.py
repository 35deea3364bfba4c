"""The nodes of the cluster, and which node a map's line means.

LAW: a lookup by name takes constant time. Only changes of what a decision reads become cluster events, so that
heartbeats requeue no pod.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, Inventory
from gpu_scheduler.core.pods.constraints import Taint
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote


@immutable
class Node:
    """A node. `alias` is its label `gpu-node-name`."""

    name: str
    ready: bool = True
    unschedulable: bool = False
    alias: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict, hash=False)
    """By resource: `cpu` in thousandths of a core, others in bytes or pieces. `pods` is how many pods it takes."""
    inventory: Inventory | None = None
    """Its devices, from the monitor's annotation, otherwise from the number that a device plugin advertises."""
    advertised: int | None = None
    """How many devices a device plugin hands out there (`nvidia.com/gpu` in its capacity). 0 while it restarts, None if
    there is none."""
    readings: Mapping[int, DeviceReading] = field(default_factory=dict, hash=False)
    """What its monitor last read, by device index."""
    stale: bool = False
    """Its monitor has not renewed its Lease in time: the state of its devices is unknown."""
    monitored: bool = False
    """A monitor wrote its devices and their readings; otherwise an operator or a device plugin did."""
    cordons: tuple[Cordon, ...] = ()
    """The devices that operators have taken out of service."""


_ASPECT_VALUES: Final[Mapping[Aspect, Callable[[Node], object]]] = {
    Aspect.READY: lambda node: node.ready,
    Aspect.UNSCHEDULABLE: lambda node: node.unschedulable,
    Aspect.TAINTS: lambda node: node.taints,
    Aspect.LABELS: lambda node: node.labels,
    Aspect.ALLOCATABLE: lambda node: node.allocatable,
    Aspect.INVENTORY: lambda node: (node.inventory, node.advertised),
    Aspect.HEALTH: lambda node: (
        node.stale,
        {device: each.health for device, each in node.readings.items() if each.health is not Health.HEALTHY},
    ),
    Aspect.CORDONS: lambda node: node.cordons,
    Aspect.LOAD: lambda node: {
        device: load for device, each in node.readings.items() if any(load := (each.used, each.utilization))
    },
}

ANY_NODE: Final = ""
"""The node name in a NodeChanged that is about the inventory of the whole cluster."""


class Nodes:
    """The nodes of the cluster, by name and by alias."""

    __slots__ = ("_aliases", "_nodes", "advertising")

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: dict[str, Node] = {}
        self._aliases: dict[str, dict[str, None]] = {}
        self.advertising = 0
        """How many nodes have a device plugin that hands out devices."""

    def apply(self, node: Node) -> frozenset[ClusterEvent]:
        """Store `node`. Return the cluster events that its change causes."""
        before = self._nodes.get(node.name)
        if before == node:
            return frozenset()
        if before is not None:
            self._drop_alias(before)
        self._nodes[node.name] = node
        if node.alias is not None:
            self._aliases.setdefault(node.alias, {})[node.name] = None
        changed = _identity_events(node) if before is None else _changed(before, node)
        return changed | self._count_plugins(before, node)

    def forget(self, name: str) -> frozenset[ClusterEvent]:
        """Remove the node. Return the cluster events that this causes."""
        before = self._nodes.pop(name, None)
        if before is None:
            return frozenset()
        self._drop_alias(before)
        return _identity_events(before) | self._count_plugins(before, None)

    def _count_plugins(self, before: Node | None, node: Node | None) -> frozenset[ClusterEvent]:
        """Update `advertising`.

        When the last device plugin is gone, a limit of devices has another meaning on all nodes.
        """
        had = self.advertising
        self.advertising += _has_plugin(node) - _has_plugin(before)
        return frozenset({NodeChanged(ANY_NODE, Aspect.INVENTORY)}) if had and not self.advertising else frozenset()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """Iterate over all nodes."""
        return iter(self._nodes.values())

    def find(self, name: str) -> Node | None:
        """Return the node that a map calls `name`: by real name, otherwise by alias. None if not exactly one has it."""
        node = self._nodes.get(name)
        if node is not None:
            return node
        aliased = self._aliases.get(name, {})
        return self._nodes[next(iter(aliased))] if len(aliased) == 1 else None

    def resolve(self, name: str) -> Node | Unschedulable:
        """Return the node that a map calls `name`, or why there is none: no node, or more than one, has that alias."""
        node = self.find(name)
        if node is not None:
            return node
        aliased = self._aliases.get(name, {})
        cured_by = frozenset({NodeChanged(name, Aspect.IDENTITY)})
        if not aliased:
            return Unschedulable(
                Reason.NODE_NOT_FOUND,
                f"cannot find node {quote(name)} of the map: "
                f"no node has that name, nor the label {names.NODE_ALIAS}={name}",
                f"label the node that it means: kubectl label node NODE {names.NODE_ALIAS}={name}, "
                f"or {made_anew('name another node')}",
                cured_by,
            )
        first, second, *others = sorted(aliased)
        also = f" and {len(others)} more" if others else ""
        command = f"kubectl label node {second} {names.NODE_ALIAS}-"
        return Unschedulable(
            Reason.NODE_AMBIGUOUS,
            f"cannot tell which node {quote(name)} of the map is: "
            f"label {names.NODE_ALIAS}={name} is on {first}, {second}{also}",
            f"leave it on one node: {command}",
            cured_by,
            command="" if others else command,
        )

    def _drop_alias(self, node: Node) -> None:
        if node.alias is not None:
            named = self._aliases[node.alias]
            del named[node.name]
            if not named:
                del self._aliases[node.alias]


def _has_plugin(node: Node | None) -> bool:
    return node is not None and node.advertised is not None


def _identity_events(*views: Node) -> frozenset[ClusterEvent]:
    """Return events for all names of a node that came, went, or has another alias now.

    They requeue pods that ask for these names.
    """
    called = {name for view in views for name in (view.name, view.alias) if name is not None}
    return frozenset(NodeChanged(name, Aspect.IDENTITY) for name in called)


def _changed(before: Node, node: Node) -> frozenset[ClusterEvent]:
    """Return events for what changed, under the node's real name.

    An alias is resolved before anything else is checked.
    """
    cured_by: frozenset[ClusterEvent] = frozenset(
        NodeChanged(node.name, aspect) for aspect, ask in _ASPECT_VALUES.items() if ask(before) != ask(node)
    )
    return cured_by if before.alias == node.alias else cured_by | _identity_events(before, node)
