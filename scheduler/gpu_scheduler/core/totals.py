"""How many cards there are in all, how many are to be had, and how busy they are.

LAW: each number is a sum that is kept level with what changed; asking costs no look at all nodes.
"""

from dataclasses import dataclass
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.inventory import UNREAD, Health
from gpu_scheduler.core.ledger import Ledger
from gpu_scheduler.core.model import Node
from gpu_scheduler.core.nodes import Nodes


@dataclass(frozen=True, slots=True)
class Count:
    """Of one node's cards, or of all."""

    total: int = 0
    available: int = 0
    """How many the next pod may have."""
    read: int = 0
    """How many a monitor reads."""
    utilization: int = 0
    """The sum over those, in percent."""

    @property
    def mean(self) -> float:
        """Of the cards that are read, in percent; 0 where there are none."""
        return self.utilization / self.read if self.read else 0.0


_NONE: Final = Count()


class Totals:
    """Sums over all cards."""

    __slots__ = ("_counts", "_ledger", "_number", "_sum")

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._number = 0
        self._counts: dict[str, Count] = {}
        self._sum = _NONE

    def take(self, nodes: Nodes, ledger: Ledger) -> Count:
        """All cards as they are now; costs what changed since the last time."""
        changed = ledger.touched.since(self._number) if ledger is self._ledger else None
        if changed is None:
            self._counts, self._sum = {}, _NONE
            changed = [node.name for node in nodes]
        for name in changed:
            self._count(name, nodes.resolve(name), ledger)
        self._ledger, self._number = ledger, ledger.touched.now
        return self._sum

    def _count(self, name: str, node: object, ledger: Ledger) -> None:
        before = self._counts.pop(name, _NONE)
        count = _count_of(node, ledger) if isinstance(node, Node) and node.name == name else _NONE
        if count != _NONE:
            self._counts[name] = count
        self._sum = Count(
            self._sum.total - before.total + count.total,
            self._sum.available - before.available + count.available,
            self._sum.read - before.read + count.read,
            self._sum.utilization - before.utilization + count.utilization,
        )


def _count_of(node: Node, ledger: Ledger) -> Count:
    """The same numbers as a Rack of cards.py gives, without telling who holds what."""
    cards = () if node.inventory is None else node.inventory.cards
    readings = [node.readings.get(card.index, UNREAD) for card in cards]
    monitored = any(card.memory is not None for card in cards)
    return Count(
        total=len(cards),
        available=_available(node, ledger) if node.ready and not node.unschedulable and not node.stale else 0,
        read=len(cards) if monitored else 0,
        utilization=sum(reading.utilization for reading in readings) if monitored else 0,
    )


def _available(node: Node, ledger: Ledger) -> int:
    held = ledger.devices.held(node.name)
    free = sum(
        str(card.index) not in held and node.readings.get(card.index, UNREAD).health is not Health.UNHEALTHY
        for card in (() if node.inventory is None else node.inventory.cards)
    )
    if node.advertised is None:
        return free
    unnamed = ledger.occupancy.used(node.name, names.GPU_RESOURCE)
    return max(0, min(free, node.allocatable.get(names.GPU_RESOURCE, 0)) - unnamed)
