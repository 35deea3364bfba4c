"""Devices that operators have taken out of service, by GPUNode.

LAW: a cordon ends only by the wall clock or because an operator removes it. A node that is made anew has the cordons
that it had before.
"""

from collections.abc import Iterator
from datetime import datetime
from math import inf
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.inventory import Inventory
from gpu_scheduler.core.pods.placement_map import NUMBER, device_kind
from gpu_scheduler.core.text import quote

ALL_DEVICES: Final = "*"
"""The name of all devices of a node in a cordon, those that come later included."""


@immutable
class Cordon:
    """A device that is out of service, or all devices of a node."""

    device: str
    """As a map names it: its UUID where that is known, otherwise its index. Or ALL_DEVICES."""
    index: int | None = None
    """The device's index when it was cordoned, for a node whose inventory has no UUIDs."""
    reason: str = ""
    by: str = ""
    """Who cordoned it."""
    since: str = ""
    """RFC 3339, as `until`."""
    until: str = ""
    """When it ends by itself; empty if it does not."""

    @property
    def by_whom(self) -> str:
        """Return who cordoned it, since when, until when, and why, as text for people."""
        until = f" until {self.until}" if self.until else ""
        return f"by {self.by or 'an unknown user'} since {self.since or 'an unknown time'}{until}: {quote(self.reason)}"

    def covers(self, device: str, inventory: Inventory | None) -> bool:
        """Whether `device`, as a map names it, is out of service.

        If nothing says whether two names mean one device, they count as the same.
        """
        if self.device in {ALL_DEVICES, device}:
            return True
        own, asked = (None if inventory is None else inventory.find(each) for each in (self.device, device))
        if own is not None and asked is not None:
            return own.overlaps(asked)
        if inventory is not None and inventory.has_uuids:
            # The cordoned card is not there, or the asked one does not exist.
            return False
        if device_kind(device) == NUMBER and self.index is not None:
            return device == str(self.index)
        return device_kind(device) != device_kind(self.device)


def cordon_of(cordons: tuple[Cordon, ...], device: str, inventory: Inventory | None) -> Cordon | None:
    """Return the first cordon that covers the device; None if it is in service."""
    return next((cordon for cordon in cordons if cordon.covers(device, inventory)), None)


@immutable
class NodeCordons:
    """What a GPUNode says about cordons. `node` is its name, and the name of its node."""

    node: str
    cordons: tuple[Cordon, ...]
    generation: int = 0
    """The generation of the GPUNode's spec."""
    confirmed: int = 0
    """The last generation that a scheduler has confirmed: no bind against it can come any more."""
    stated_since: str = ""
    """Since when (RFC 3339) its status says that there are cordons; empty if it does not say so."""

    @property
    def unconfirmed(self) -> bool:
        """Whether operators may wait for the confirmation. A GPUNode that never had a cordon needs none.

        A later generation than its own was confirmed of an earlier GPUNode of its name, by a write that came late: the
        status of a custom resource takes every uid.
        """
        return self.generation != self.confirmed and bool(self.cordons or self.confirmed)


class Cordons:
    """The cordons of all nodes. Times are wall-clock seconds since the epoch."""

    __slots__ = ("_ends", "_next", "_nodes")

    def __init__(self) -> None:
        self._nodes: dict[str, tuple[Cordon, ...]] = {}
        self._ends: dict[str, float] = {}
        """By node: when its next cordon ends."""
        self._next = inf

    def put(self, node: str, cordons: tuple[Cordon, ...], wall: float) -> None:
        """Store the cordons of a node; an empty tuple removes them."""
        if cordons:
            self._nodes[node] = cordons
        else:
            self._nodes.pop(node, None)
        self._note_end(node, wall)

    def in_force(self, node: str, wall: float) -> tuple[Cordon, ...]:
        """Return the cordons of the node that have not ended."""
        cordons = self._nodes.get(node)
        return cordons_in_force(cordons, wall) if cordons else ()

    @property
    def any_end(self) -> bool:
        """Whether one of them has an end."""
        return bool(self._ends)

    def ended(self, wall: float) -> Iterator[str]:
        """Yield the nodes with a cordon that has ended since the last call. Usually this is one comparison."""
        if wall < self._next:
            return
        for node in [node for node, end in self._ends.items() if end <= wall]:
            self._note_end(node, wall)
            yield node

    def _note_end(self, node: str, wall: float) -> None:
        end = min([moment for cordon in self._nodes.get(node, ()) if (moment := end_of(cordon)) > wall], default=inf)
        if end == inf:
            self._ends.pop(node, None)
        else:
            self._ends[node] = end
        self._next = min(self._ends.values(), default=inf)


def cordons_in_force(cordons: tuple[Cordon, ...], wall: float) -> tuple[Cordon, ...]:
    """Return the cordons that have not ended."""
    return tuple([cordon for cordon in cordons if end_of(cordon) > wall])


def end_of(cordon: Cordon) -> float:
    """Return when the cordon ends, as wall-clock seconds. A time that cannot be read never comes."""
    try:
        end = datetime.fromisoformat(cordon.until)
    except ValueError:
        return inf
    return end.timestamp() if end.tzinfo else inf
