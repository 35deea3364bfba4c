"""Each device of a node and the sums: who holds it, how it is, and whether the next pod may have it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import UNREAD, Device, DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.text import natural


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A card of a node, or a device that somebody holds though no inventory knows it (then `card` is None)."""

    name: str
    card: Device | None
    reading: DeviceReading
    holders: tuple[Hold, ...]
    """In order of name."""
    available: bool
    """Whether the next pod may have it, where cards are taken by name."""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """A node's cards."""

    node: Node
    seats: tuple[DeviceState, ...]
    unnamed: int
    """How many its device plugin has handed out; nobody can tell which."""

    @property
    def total(self) -> int | None:
        """How many there are; None where no inventory tells."""
        return None if self.node.inventory is None else len(self.node.inventory.cards)

    @property
    def held(self) -> int:
        """How many somebody holds."""
        return sum(bool(state.holders) for state in self.seats) + self.unnamed

    @property
    def available(self) -> int:
        """How many the next pod may have: free, not unhealthy, on a node that takes pods and whose monitor speaks."""
        free = sum(state.available for state in self.seats)
        if self.node.advertised is None:
            return free
        return max(0, min(free, self.node.allocatable.get(names.GPU_RESOURCE, 0)) - self.unnamed)

    @property
    def monitored(self) -> bool:
        """Whether somebody reads its cards: a number of cards alone says nothing of how they are."""
        return any(state.card is not None and state.card.memory is not None for state in self.seats)

    @property
    def utilization(self) -> int | None:
        """Mean of its cards, in percent; None where nobody reads them."""
        read = [state.reading.utilization for state in self.seats if state.card is not None]
        return round(sum(read) / len(read)) if self.monitored else None

    @property
    def health(self) -> Health | None:
        """That of its worst card; None where nobody reads them."""
        said = {state.reading.health for state in self.seats}
        worst = (each for each in (Health.UNHEALTHY, Health.DEGRADED) if each in said)
        return next(worst, Health.HEALTHY) if self.monitored else None


def node_devices(nodes: Iterable[Node], ledger: Ledger) -> Iterator[NodeDevices]:
    """Every node's, node2 before node10. Costs what there is, so not for decisions."""
    held: dict[str, list[Hold]] = {}
    for holder in ledger:
        held.setdefault(holder.node, []).append(holder)
    for node in sorted(nodes, key=lambda node: (natural(node.name), node.name)):
        unnamed = 0 if node.advertised is None else ledger.occupancy.used(node.name, names.GPU_RESOURCE)
        known = _known(node, ledger)
        yield NodeDevices(node, (*known, *_strange(node, held.get(node.name, ()), ledger)), unnamed)


def _known(node: Node, ledger: Ledger) -> Iterator[DeviceState]:
    takes_pods = node.ready and not node.unschedulable and not node.stale
    for card in () if node.inventory is None else node.inventory.cards:
        reading = node.readings.get(card.index, UNREAD)
        holders = _ordered(ledger.devices.holders_of(node.name, card.index))
        available = takes_pods and not holders and reading.health is not Health.UNHEALTHY
        yield DeviceState(str(card.index), card, reading, holders, available)


def _strange(node: Node, held: Iterable[Hold], ledger: Ledger) -> Iterator[DeviceState]:
    """Devices that somebody holds by a name that no inventory knows."""
    found: dict[str, dict[str, Hold]] = {}
    for holder in held:
        for device in () if ledger.devices.unnamed(holder) else holder.devices:
            if node.inventory is None or node.inventory.find(device) is None:
                found.setdefault(device, {})[holder.ref.uid] = holder
    for device in sorted(found, key=lambda device: (natural(device), device)):
        yield DeviceState(device, None, UNREAD, _ordered(found[device]), available=False)


def _ordered(holders: Mapping[str, Hold]) -> tuple[Hold, ...]:
    return tuple(sorted(holders.values(), key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid)))


@dataclass(frozen=True, slots=True)
class GpuCount:
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


_NONE: Final = GpuCount()


class GpuTotals:
    """Sums over all cards."""

    __slots__ = ("_counts", "_ledger", "_number", "_sum")

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._number = 0
        self._counts: dict[str, GpuCount] = {}
        self._sum = _NONE

    def take(self, nodes: Nodes, ledger: Ledger) -> GpuCount:
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
        self._sum = GpuCount(
            self._sum.total - before.total + count.total,
            self._sum.available - before.available + count.available,
            self._sum.read - before.read + count.read,
            self._sum.utilization - before.utilization + count.utilization,
        )


def _count_of(node: Node, ledger: Ledger) -> GpuCount:
    """The same numbers as a Rack of cards.py gives, without telling who holds what."""
    cards = () if node.inventory is None else node.inventory.cards
    readings = [node.readings.get(card.index, UNREAD) for card in cards]
    monitored = any(card.memory is not None for card in cards)
    return GpuCount(
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
