"""What there is to say of each card: who holds it, how it is, and whether the next pod may have it.

LAW: tells and decides nothing; metrics and command line show the same numbers, because both take them from here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpu_scheduler import names
from gpu_scheduler.core.holding import Holder
from gpu_scheduler.core.inventory import UNREAD, Card, Health, Reading
from gpu_scheduler.core.ledger import Ledger
from gpu_scheduler.core.model import Node
from gpu_scheduler.core.text import natural


@dataclass(frozen=True, slots=True)
class Seat:
    """A card of a node, or a device that somebody holds though no inventory knows it (then `card` is None)."""

    name: str
    card: Card | None
    reading: Reading
    holders: tuple[Holder, ...]
    """In order of name."""
    available: bool
    """Whether the next pod may have it, where cards are taken by name."""


@dataclass(frozen=True, slots=True)
class Rack:
    """A node's cards."""

    node: Node
    seats: tuple[Seat, ...]
    unnamed: int
    """How many its device plugin has handed out; nobody can tell which."""

    @property
    def total(self) -> int | None:
        """How many there are; None where no inventory tells."""
        return None if self.node.inventory is None else len(self.node.inventory.cards)

    @property
    def held(self) -> int:
        """How many somebody holds."""
        return sum(bool(seat.holders) for seat in self.seats) + self.unnamed

    @property
    def available(self) -> int:
        """How many the next pod may have: free, not unhealthy, on a node that takes pods and whose monitor speaks."""
        free = sum(seat.available for seat in self.seats)
        if self.node.advertised is None:
            return free
        return max(0, min(free, self.node.allocatable.get(names.GPU_RESOURCE, 0)) - self.unnamed)

    @property
    def monitored(self) -> bool:
        """Whether somebody reads its cards: a number of cards alone says nothing of how they are."""
        return any(seat.card is not None and seat.card.memory is not None for seat in self.seats)

    @property
    def utilization(self) -> int | None:
        """Mean of its cards, in percent; None where nobody reads them."""
        read = [seat.reading.utilization for seat in self.seats if seat.card is not None]
        return round(sum(read) / len(read)) if self.monitored else None

    @property
    def health(self) -> Health | None:
        """That of its worst card; None where nobody reads them."""
        said = {seat.reading.health for seat in self.seats}
        worst = (each for each in (Health.UNHEALTHY, Health.DEGRADED) if each in said)
        return next(worst, Health.HEALTHY) if self.monitored else None


def racks(nodes: Iterable[Node], ledger: Ledger) -> Iterator[Rack]:
    """Every node's, node2 before node10. Costs what there is, so not for decisions."""
    held: dict[str, list[Holder]] = {}
    for holder in ledger:
        held.setdefault(holder.node, []).append(holder)
    for node in sorted(nodes, key=lambda node: (natural(node.name), node.name)):
        unnamed = 0 if node.advertised is None else ledger.occupancy.used(node.name, names.GPU_RESOURCE)
        known = _known(node, ledger)
        yield Rack(node, (*known, *_strange(node, held.get(node.name, ()), ledger)), unnamed)


def _known(node: Node, ledger: Ledger) -> Iterator[Seat]:
    takes_pods = node.ready and not node.unschedulable and not node.stale
    for card in () if node.inventory is None else node.inventory.cards:
        reading = node.readings.get(card.index, UNREAD)
        holders = _ordered(ledger.devices.holders_of(node.name, card.index))
        available = takes_pods and not holders and reading.health is not Health.UNHEALTHY
        yield Seat(str(card.index), card, reading, holders, available)


def _strange(node: Node, held: Iterable[Holder], ledger: Ledger) -> Iterator[Seat]:
    """Devices that somebody holds by a name that no inventory knows."""
    found: dict[str, dict[str, Holder]] = {}
    for holder in held:
        for device in () if ledger.devices.unnamed(holder) else holder.devices:
            if node.inventory is None or node.inventory.find(device) is None:
                found.setdefault(device, {})[holder.ref.uid] = holder
    for device in sorted(found, key=lambda device: (natural(device), device)):
        yield Seat(device, None, UNREAD, _ordered(found[device]), available=False)


def _ordered(holders: Mapping[str, Holder]) -> tuple[Holder, ...]:
    return tuple(sorted(holders.values(), key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid)))
