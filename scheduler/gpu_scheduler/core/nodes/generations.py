"""Which nodes changed since somebody looked last.

LAW: a change is noted in constant time, and who looks pays for what changed since, never for all nodes; no more names
are kept than twice the nodes that there are.
"""

from collections import OrderedDict
from typing import Final

from gpu_scheduler.core.nodes.nodes import Node

_SLACK: Final = 64
"""How many names there may be beyond that, of nodes that are gone."""


class NodeGenerations:
    """The nodes in the order in which they changed last; each change has a number."""

    __slots__ = ("_forgotten", "_last", "_nodes", "now")

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._last: OrderedDict[str, int] = OrderedDict()
        self._forgotten = 0
        """Changes up to this one are not kept any more."""
        self.now = 0
        """The number of the newest change."""

    def mark(self, name: str) -> None:
        """Something on the node, or who holds something there, is no longer as it was."""
        self.now += 1
        self._last[name] = self.now
        self._last.move_to_end(name)
        while self.crowded(len(self._last)):
            _, self._forgotten = self._last.popitem(last=False)

    def apply_node(self, node: Node) -> None:
        """The node as it is now; seen again as it was, it has not changed."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self.mark(node.name)

    def forget_node(self, name: str) -> None:
        """The node is gone."""
        if self._nodes.pop(name, None) is not None:
            self.mark(name)

    def since(self, number: int) -> list[str] | None:
        """Who changed after that change, newest first; None when that is so long ago that it may be anybody."""
        if number < self._forgotten:
            return None
        found = []
        for name, last in reversed(self._last.items()):
            if last <= number:
                break
            found.append(name)
        return found

    def last(self, name: str) -> int:
        """The number of the node's last change, or a later one."""
        return self._last.get(name, self._forgotten)

    def crowded(self, names: int) -> bool:
        """Whether so many names are too many for the nodes that there are."""
        return names > 2 * len(self._nodes) + _SLACK
