"""Which nodes there are, and which one a map's line means.

LAW: answers by name in constant time; says what changed only when a placement could ask about it, so that heartbeats
wake nobody.
"""

from gpu_scheduler import names
from gpu_scheduler.core.model import Node
from gpu_scheduler.core.reasons import NodeChanged, Obstacle, Reason, Wake
from gpu_scheduler.core.text import quote


class Nodes:
    """The nodes of the cluster, by name and by alias."""

    __slots__ = ("_aliases", "_nodes")

    def __init__(self) -> None:
        """Begin with none."""
        self._nodes: dict[str, Node] = {}
        self._aliases: dict[str, dict[str, None]] = {}

    def apply(self, node: Node) -> frozenset[Wake]:
        """Take `node` as it is now; answers who may want to know."""
        before = self._nodes.get(node.name)
        if before == node:
            return frozenset()
        if before is not None:
            self._drop_alias(before)
        self._nodes[node.name] = node
        if node.alias is not None:
            self._aliases.setdefault(node.alias, {})[node.name] = None
        return _changed(before, node)

    def forget(self, name: str) -> frozenset[Wake]:
        """Take the node as gone; answers who may want to know."""
        before = self._nodes.pop(name, None)
        if before is not None:
            self._drop_alias(before)
        return _changed(before)

    def resolve(self, name: str) -> Node | Obstacle:
        """The node that a map calls `name`: by its real name, else by its alias, which must be on one node only."""
        node = self._nodes.get(name)
        if node is not None:
            return node
        aliased = self._aliases.get(name, {})
        if len(aliased) == 1:
            return self._nodes[next(iter(aliased))]
        wakes = frozenset({NodeChanged(name)})
        if not aliased:
            return Obstacle(
                Reason.NODE_NOT_FOUND,
                f"cannot find node {quote(name)} of the map: "
                f"no node has that name, nor the label {names.NODE_ALIAS}={name}",
                f"name an existing node, or label one: kubectl label node NODE {names.NODE_ALIAS}={name}",
                wakes,
            )
        first, second, *others = sorted(aliased)
        also = f" and {len(others)} more" if others else ""
        return Obstacle(
            Reason.NODE_AMBIGUOUS,
            f"cannot tell which node {quote(name)} of the map is: "
            f"label {names.NODE_ALIAS}={name} is on {first}, {second}{also}",
            f"leave it on one node: kubectl label node {second} {names.NODE_ALIAS}-",
            wakes,
        )

    def _drop_alias(self, node: Node) -> None:
        if node.alias is not None:
            bearers = self._aliases[node.alias]
            del bearers[node.name]
            if not bearers:
                del self._aliases[node.alias]


def _changed(*views: Node | None) -> frozenset[Wake]:
    called = {name for view in views if view is not None for name in (view.name, view.alias)}
    return frozenset(NodeChanged(name) for name in called if name is not None)
