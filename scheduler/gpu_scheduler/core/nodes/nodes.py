"""Which nodes there are, and which one a map's line means.

LAW: answers by name in constant time; says what changed only when a placement could ask about it, so that heartbeats
wake nobody.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, Inventory
from gpu_scheduler.core.pods.constraints import Taint
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote


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
    readings: Mapping[int, DeviceReading] = field(default_factory=dict, hash=False)
    """What its monitor last read, by card index."""
    stale: bool = False
    """Its monitor has been silent for too long: nobody knows how its cards are."""


_ASKED: Final[Mapping[Aspect, Callable[[Node], object]]] = {
    Aspect.READY: lambda node: node.ready,
    Aspect.UNSCHEDULABLE: lambda node: node.unschedulable,
    Aspect.TAINTS: lambda node: node.taints,
    Aspect.LABELS: lambda node: node.labels,
    Aspect.ALLOCATABLE: lambda node: node.allocatable,
    Aspect.INVENTORY: lambda node: (node.inventory, node.advertised),
    Aspect.HEALTH: lambda node: (
        node.stale,
        {card: each.health for card, each in node.readings.items() if each.health is not Health.HEALTHY},
    ),
    Aspect.LOAD: lambda node: {
        card: load for card, each in node.readings.items() if any(load := (each.used, each.utilization))
    },
}

ANY_NODE: Final = ""
"""The name under which the inventory of the cluster as a whole is told to have changed."""


class Nodes:
    """The nodes of the cluster, by name and by alias."""

    __slots__ = ("_aliases", "_nodes", "advertising")

    def __init__(self) -> None:
        """Begin with none."""
        self._nodes: dict[str, Node] = {}
        self._aliases: dict[str, dict[str, None]] = {}
        self.advertising = 0
        """How many nodes have a device plugin that hands out cards."""

    def apply(self, node: Node) -> frozenset[ClusterEvent]:
        """Take `node` as it is now; answers who may want to know."""
        before = self._nodes.get(node.name)
        if before == node:
            return frozenset()
        if before is not None:
            self._drop_alias(before)
        self._nodes[node.name] = node
        if node.alias is not None:
            self._aliases.setdefault(node.alias, {})[node.name] = None
        changed = _known_as(node) if before is None else _changed(before, node)
        return changed | self._count_plugins(before, node)

    def forget(self, name: str) -> frozenset[ClusterEvent]:
        """Take the node as gone; answers who may want to know."""
        before = self._nodes.pop(name, None)
        if before is None:
            return frozenset()
        self._drop_alias(before)
        return _known_as(before) | self._count_plugins(before, None)

    def _count_plugins(self, before: Node | None, node: Node | None) -> frozenset[ClusterEvent]:
        """What a limit of cards means is a question to the whole cluster while nobody hands out any."""
        had = self.advertising
        self.advertising += _has_plugin(node) - _has_plugin(before)
        return frozenset({NodeChanged(ANY_NODE, Aspect.INVENTORY)}) if had and not self.advertising else frozenset()

    def __iter__(self) -> Iterator[Node]:
        """All nodes."""
        return iter(self._nodes.values())

    def resolve(self, name: str) -> Node | Unschedulable:
        """The node that a map calls `name`: by its real name, else by its alias, which must be on one node only."""
        node = self._nodes.get(name)
        if node is not None:
            return node
        aliased = self._aliases.get(name, {})
        if len(aliased) == 1:
            return self._nodes[next(iter(aliased))]
        cured_by = frozenset({NodeChanged(name, Aspect.IDENTITY)})
        if not aliased:
            return Unschedulable(
                Reason.NODE_NOT_FOUND,
                f"cannot find node {quote(name)} of the map: "
                f"no node has that name, nor the label {names.NODE_ALIAS}={name}",
                f"name an existing node, or label one: kubectl label node NODE {names.NODE_ALIAS}={name}",
                cured_by,
            )
        first, second, *others = sorted(aliased)
        also = f" and {len(others)} more" if others else ""
        return Unschedulable(
            Reason.NODE_AMBIGUOUS,
            f"cannot tell which node {quote(name)} of the map is: "
            f"label {names.NODE_ALIAS}={name} is on {first}, {second}{also}",
            f"leave it on one node: kubectl label node {second} {names.NODE_ALIAS}-",
            cured_by,
        )

    def _drop_alias(self, node: Node) -> None:
        if node.alias is not None:
            bearers = self._aliases[node.alias]
            del bearers[node.name]
            if not bearers:
                del self._aliases[node.alias]


def _has_plugin(node: Node | None) -> bool:
    return node is not None and node.advertised is not None


def _known_as(*views: Node) -> frozenset[ClusterEvent]:
    """It came or went, or its name means another node: whoever asks for it asks anew."""
    called = {name for view in views for name in (view.name, view.alias) if name is not None}
    return frozenset(NodeChanged(name, Aspect.IDENTITY) for name in called)


def _changed(before: Node, node: Node) -> frozenset[ClusterEvent]:
    """What is different about it, told under its real name; an alias is resolved before anything else is asked."""
    cured_by: frozenset[ClusterEvent] = frozenset(
        NodeChanged(node.name, aspect) for aspect, ask in _ASKED.items() if ask(before) != ask(node)
    )
    return cured_by if before.alias == node.alias else cured_by | _known_as(before, node)
