"""How many devices the pods of each namespace hold.

LAW: counted as holders come and go: a question costs what one pod asks for, never what a namespace holds.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from gpu_scheduler.core.nodes.inventory import DevicePart


class NodeDevice(NamedTuple):
    """One device of a node: where its inventory has it or, unknown to it, by the name that a pod uses."""

    node: str
    device: DevicePart | str


class Held(NamedTuple):
    """What one pod holds of its node: devices by name, and how many of a device plugin's choice."""

    named: Collection[NodeDevice]
    unnamed: int = 0


NOTHING_HELD: Final = Held(())


class NamespaceUsage:
    """Devices by namespace; one that several pods of a namespace share counts once there."""

    __slots__ = ("_named", "_unnamed")

    def __init__(self) -> None:
        self._named: dict[str, dict[NodeDevice, int]] = {}
        """How many pods of the namespace hold each device."""
        self._unnamed: dict[str, int] = {}

    def put(self, namespace: str, held: Held) -> None:
        """One more pod of the namespace holds this."""
        for device in held.named:
            devices = self._named.setdefault(namespace, {})
            devices[device] = devices.get(device, 0) + 1
        if held.unnamed:
            self._unnamed[namespace] = self._unnamed.get(namespace, 0) + held.unnamed

    def drop(self, namespace: str, held: Held) -> None:
        """One pod of the namespace holds this no longer."""
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
        """How many devices its pods hold."""
        return len(self._named.get(namespace, ())) + self._unnamed.get(namespace, 0)

    def more(self, namespace: str, held: Held) -> int:
        """How many of these none of its pods holds yet."""
        devices = self._named.get(namespace, {})
        return sum(device not in devices for device in set(held.named)) + held.unnamed

    def cards(self, namespace: str) -> dict[str, set[int]]:
        """By node, the cards of its inventory that the namespace's pods hold, or a slice of them."""
        found: dict[str, set[int]] = {}
        for node, device in self._named.get(namespace, ()):
            if isinstance(device, DevicePart):
                found.setdefault(node, set()).add(device.card)
        return found

    def entries(self) -> Iterator[tuple[object, object]]:
        """Everything that is noted, as pairs of key and value, for who compares two of these."""
        for namespace, devices in self._named.items():
            for device, pods in devices.items():
                yield ("namespace", namespace, device), pods
        for namespace, count in self._unnamed.items():
            yield ("namespace", namespace), count
