"""What the driver watches: its node, the node's cordons, and the ResourceSlices of all drivers of the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_scheduler import names
from gpu_scheduler.driver.devices import PublishedDevices, published
from gpu_scheduler.kube.resource import EventHandler

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from gpu_scheduler.core.nodes.cordons import Cordon
    from gpu_scheduler.driver.devices import OwnNode
    from gpu_scheduler.driver.resource_slice import ObservedSlice

T = TypeVar("T")


class NotifyingHandler(EventHandler[T], Generic[T]):
    """Passes events on to another handler, and sets an event for the loop that reads what that handler stores."""

    def __init__(self, handler: EventHandler[T], changed: asyncio.Event) -> None:
        """Set `changed` after each event."""
        self._handler = handler
        self._changed = changed

    def applied(self, value: T) -> None:
        """Handle an object that exists."""
        self._handler.applied(value)
        self._changed.set()

    def forgotten(self, value: T) -> None:
        """Handle a deletion."""
        self._handler.forgotten(value)
        self._changed.set()


class WatchedNode(EventHandler["OwnNode"]):
    """The driver's node."""

    def __init__(self, cordons: Callable[[], tuple[Cordon, ...]]) -> None:
        """`cordons` returns the cordons of the node that are in force."""
        self._cordons = cordons
        self.node: OwnNode | None = None

    def applied(self, value: OwnNode) -> None:
        """Store the node."""
        self.node = value

    def forgotten(self, value: OwnNode) -> None:  # noqa: ARG002 - there is one node
        """Forget a node that is gone."""
        self.node = None

    def published(self) -> PublishedDevices | None:
        """Return what is published of the node's devices; None while they are not known."""
        if self.node is None or self.node.inventory is None:
            return None
        return published(self.node.inventory, dict(self.node.buses), self._cordons())


class WatchedPools(EventHandler["ObservedSlice"]):
    """The ResourceSlices of the node."""

    def __init__(self) -> None:
        """Start without any."""
        self._observed: dict[str, ObservedSlice] = {}

    def applied(self, value: ObservedSlice) -> None:
        """Store a ResourceSlice. An event that is older than our own last write says nothing new."""
        known = self._observed.get(value.name)
        if known is None or known.uid != value.uid or known.version <= value.version:
            self._observed[value.name] = value

    def forgotten(self, value: ObservedSlice) -> None:
        """Forget a ResourceSlice that is gone, but not one that was created later under its name."""
        known = self._observed.get(value.name)
        if known is not None and known.uid == value.uid:
            del self._observed[value.name]

    def own(self) -> dict[str, ObservedSlice]:
        """Return those of our driver, by name."""
        return {name: each for name, each in self._observed.items() if each.driver == names.DRA_DRIVER}

    def has_driver(self, name: str) -> bool:
        """Return whether another driver publishes devices of the node."""
        return any(each.driver == name for each in self._observed.values())
