"""Which cards a node has, and which card a device of a map is.

LAW: an index, a GPU's UUID and a MIG slice's UUID may all mean one card; whoever compares devices does it by card.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from gpu_scheduler.core.pods.count_request import MAX_DEVICES


class Health(StrEnum):
    """What a monitor says of a card."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It works, but something wears: others are taken first."""
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: its index as CUDA numbers it by PCI bus, and where they are known its UUID and its MIG slices' UUIDs."""

    index: int
    uuid: str | None = None
    slices: tuple[str, ...] = ()
    model: str = ""
    memory: int | None = None
    """MiB in all, where it is known."""


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """What a monitor last read of one card: changes by the minute, so no part of the inventory."""

    used: int = 0
    """MiB, whoever uses it."""
    utilization: int = 0
    """Percent."""
    health: Health = Health.HEALTHY


UNREAD: Final = DeviceReading()
"""Of a card that nobody reads."""


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A device found: on which card, and which slice of it; `slice` None is the whole card."""

    card: int
    slice: str | None = None

    def overlaps(self, other: "DevicePart") -> bool:
        """Whether two devices have silicon in common."""
        return self.card == other.card and (self.slice == other.slice or None in {self.slice, other.slice})


@dataclass(frozen=True, slots=True)
class Inventory:
    """The cards of a node."""

    cards: tuple[Device, ...]
    _spots: dict[str, DevicePart] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        spots = {str(card.index): DevicePart(card.index) for card in self.cards}
        for card in self.cards:
            if card.uuid is not None:
                spots[card.uuid] = DevicePart(card.index)
            spots.update({uuid: DevicePart(card.index, uuid) for uuid in card.slices})
        object.__setattr__(self, "_spots", spots)

    @property
    def has_uuids(self) -> bool:
        """Whether a UUID that is not here does not exist; a bare count of cards tells nothing of UUIDs."""
        return any(card.uuid is not None for card in self.cards)

    def find(self, device: str) -> DevicePart | None:
        """Where a device of a map is; None when the inventory does not know it."""
        return self._spots.get(device)

    def uuids(self, devices: tuple[str, ...]) -> tuple[str, ...] | None:
        """The UUIDs of `devices`, in their order; None unless all are known."""
        known = {card.index: card.uuid for card in self.cards}
        spots = [self._spots.get(device) for device in devices]
        found = [None if part is None else part.slice or known[part.card] for part in spots]
        return None if None in found else tuple(uuid for uuid in found if uuid is not None)


@lru_cache(maxsize=16)
def counted(number: int) -> Inventory:
    """An inventory of which only the number of cards is known: one value for all nodes with so many."""
    return Inventory(tuple(Device(index) for index in range(min(number, MAX_DEVICES))))
