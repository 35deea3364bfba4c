"""How many devices the pods of each namespace hold.

LAW: the counts are updated when a hold begins or ends. A check costs what one pod asks for, never what a namespace
holds.
"""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Final, NamedTuple

from gpu_scheduler.core.nodes.inventory import DevicePart


class NodeDevice(NamedTuple):
    """One device of a node: its part in the inventory. If the inventory does not know it, the name that a pod uses."""

    node: str
    device: DevicePart | str


class Held(NamedTuple):
    """What one pod holds of its node: devices by name, and the number of devices that a device plugin chose."""

    named: Collection[NodeDevice]
    unnamed: int = 0


NOTHING_HELD: Final = Held(())


class NamespaceUsage:
    """Devices by namespace. A device that several pods of a namespace share counts once for the namespace."""

    __slots__ = ("_named", "_unnamed")

    def __init__(self) -> None:
        self._named: dict[str, dict[NodeDevice, int]] = {}
        """How many pods of the namespace hold each device."""
        self._unnamed: dict[str, int] = {}

    def put(self, namespace: str, held: Held) -> None:
        """Add what one more pod of the namespace holds."""
        for device in held.named:
            devices = self._named.setdefault(namespace, {})
            devices[device] = devices.get(device, 0) + 1
        if held.unnamed:
            self._unnamed[namespace] = self._unnamed.get(namespace, 0) + held.unnamed

    def drop(self, namespace: str, held: Held) -> None:
        """Remove what one pod of the namespace no longer holds."""
        for device in held.named:
            devices = self._named[namespace]
            devices[device] -= 1
            if not devices[device]:
                del devices[device]
            if not devices:
                del self._named[namespace]
        if held.unnamed:
            self._unnamed[namespace] -= held.unnamed
            if not self._unnamed[namespace]:
                del self._unnamed[namespace]

    def used(self, namespace: str) -> int:
        """Return how many devices the namespace's pods hold."""
        return len(self._named.get(namespace, ())) + self._unnamed.get(namespace, 0)

    def more(self, namespace: str, held: Held) -> int:
        """Return how many of these devices no pod of the namespace holds yet."""
        devices = self._named.get(namespace, {})
        return sum(device not in devices for device in set(held.named)) + held.unnamed

    def devices_of(self, namespace: str) -> dict[str, set[int]]:
        """Return by node the indices of the devices that the namespace's pods hold, whole or in part."""
        found: dict[str, set[int]] = {}
        for node, device in self._named.get(namespace, ()):
            if isinstance(device, DevicePart):
                found.setdefault(node, set()).add(device.index)
        return found

    def entries(self) -> Iterator[tuple[object, object]]:
        """List the entries of this moment as pairs of key and value, also if they are read after later changes."""
        named = [(namespace, {**devices}) for namespace, devices in self._named.items()]
        return chain(
            (
                (("namespace", namespace, device), pods)
                for namespace, devices in named
                for device, pods in devices.items()
            ),
            ((("namespace", namespace), count) for namespace, count in tuple(self._unnamed.items())),
        )
