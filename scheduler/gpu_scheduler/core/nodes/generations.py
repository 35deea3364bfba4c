"""Which nodes changed since a given generation.

LAW: a change is recorded in constant time. The cost of a query depends on the nodes that changed, never on all nodes.
The number of stored names, of nodes and of aliases, is at most twice the number of nodes, plus a constant.
"""

from collections import OrderedDict
from typing import Final

from gpu_scheduler.core.nodes.nodes import Node

_SLACK: Final = 64
"""That constant: it leaves room for names of nodes that are gone."""


class NodeGenerations:
    """The nodes in the order of their last change. Each change has a number."""

    __slots__ = ("_forgotten", "_last", "_nodes", "now")

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._last: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """Changes up to this number are no longer stored."""
        self.now = 0
        """The number of the newest change."""

    def mark(self, name: str) -> None:
        """Record a change of the node, or of what pods hold there."""
        self.now += 1
        self._last[name] = self.now
        self._last.move_to_end(name)
        while self.too_many(len(self._last)):
            _, self._forgotten = self._last.popitem(last=False)

    def apply_node(self, node: Node) -> None:
        """Store the node. Record a change only if the node differs from the stored one.

        An alias that has another meaning now is recorded like a node: a map may call a node by it.
        """
        before = self._nodes.get(node.name)
        if before == node:
            return
        self._nodes[node.name] = node
        self.mark(node.name)
        if before is None or before.alias != node.alias:
            self._mark_aliases(before, node)

    def forget_node(self, name: str) -> None:
        """Remove the node."""
        before = self._nodes.pop(name, None)
        if before is not None:
            self.mark(name)
            self._mark_aliases(before)

    def _mark_aliases(self, *views: Node | None) -> None:
        for view in views:
            if view is not None and view.alias is not None:
                self.mark(view.alias)

    def since(self, number: int) -> list[str] | None:
        """Return the nodes that changed after change `number`, newest first.

        Return None if these changes are no longer stored: then any node may have changed.
        """
        if number < self._forgotten:
            return None
        found = []
        for name, last in reversed(self._last.items()):
            if last <= number:
                break
            found.append(name)
        return found

    def last(self, name: str) -> int:
        """Return the number of the node's last change, or a higher one if that change is no longer stored."""
        return self._last.get(name, self._forgotten)

    def too_many(self, names: int) -> bool:
        """Whether `names` is more than the number of names that may be stored."""
        return names > 2 * len(self._nodes) + _SLACK
