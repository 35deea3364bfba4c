"""The state of each device (holders, reading, availability), and sums over all devices."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold, in_order, without_claims_of_pods
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import Cordon, cordon_of
from gpu_scheduler.core.nodes.inventory import UNREAD, Device, DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.text import natural


@immutable
class DeviceState:
    """A device of a node. `device` is None if it is held, but no inventory knows it."""

    name: str
    device: Device | None
    reading: DeviceReading
    holders: tuple[Hold, ...]
    """In order of their names; of a pod and its ResourceClaim, the pod alone."""
    cordon: Cordon | None
    """Why it is out of service, if it is."""
    available: bool
    """Whether the next pod that names its devices may have it."""


@immutable
class NodeDevices:
    """A node's devices."""

    node: Node
    devices: tuple[DeviceState, ...]
    unnamed: int
    """How many devices its device plugin has handed out. Which ones is unknown."""

    @property
    def total(self) -> int | None:
        """Return the number of devices; None if the node has no inventory."""
        return None if self.node.inventory is None else len(self.node.inventory.devices)

    @property
    def held(self) -> int:
        """Return how many devices are held."""
        return sum(bool(state.holders) for state in self.devices) + self.unnamed

    @property
    def available(self) -> int:
        """Return how many devices the next pod may have.

        They are free, in service and not unhealthy. The node is ready, schedulable and not stale.
        """
        free = sum(state.available for state in self.devices)
        if self.node.advertised is None:
            return free
        if self.node.cordons:
            # The plugin may choose a cordoned device, so it is asked for none.
            return 0
        return max(0, min(free, self.node.allocatable.get(names.GPU_RESOURCE, 0)) - self.unnamed)

    @property
    def monitored(self) -> bool:
        """Whether a monitor reads its devices. A bare count of devices says nothing about their health."""
        return any(state.device is not None and state.device.memory is not None for state in self.devices)

    @property
    def utilization(self) -> int | None:
        """Return the mean utilization of its devices, in percent; None if no monitor reads them."""
        read = [state.reading.utilization for state in self.devices if state.device is not None]
        return round(sum(read) / len(read)) if self.monitored else None

    @property
    def health(self) -> Health | None:
        """Return the health of its worst device; None if no monitor reads them."""
        healths = {state.reading.health for state in self.devices}
        worst = (each for each in (Health.UNHEALTHY, Health.DEGRADED) if each in healths)
        return next(worst, Health.HEALTHY) if self.monitored else None


def node_devices(nodes: Iterable[Node], ledger: Ledger) -> Iterator[NodeDevices]:
    """Yield the devices of each node, node2 before node10. This reads all nodes and holds: too slow for decisions."""
    held: dict[str, list[Hold]] = {}
    for holder in chain(ledger, ledger.kept_lines, ledger.of_claims):
        held.setdefault(holder.node, []).append(holder)
    for node in sorted(nodes, key=lambda node: (natural(node.name), node.name)):
        unnamed = 0 if node.advertised is None else ledger.used_resources.used(node.name, names.GPU_RESOURCE)
        known = _known(node, ledger)
        yield NodeDevices(node, (*known, *_unknown(node, held.get(node.name, ()), ledger)), unnamed)


def _known(node: Node, ledger: Ledger) -> Iterator[DeviceState]:
    takes_pods = node.ready and not node.unschedulable and not node.stale
    for device in () if node.inventory is None else node.inventory.devices:
        reading = node.readings.get(device.index, UNREAD)
        holders = in_order(without_claims_of_pods(ledger.devices.holders_of(node.name, device.index).values()))
        cordon = cordon_of(node.cordons, str(device.index), node.inventory)
        available = takes_pods and not holders and cordon is None and reading.health is not Health.UNHEALTHY
        yield DeviceState(str(device.index), device, reading, holders, cordon, available)


def _unknown(node: Node, held: Iterable[Hold], ledger: Ledger) -> Iterator[DeviceState]:
    """Yield devices that are held by a name that no inventory knows."""
    found: dict[str, dict[str, Hold]] = {}
    for holder in held:
        for device in () if ledger.devices.unnamed(holder) else holder.devices:
            if node.inventory is None or node.inventory.find(device) is None:
                found.setdefault(device, {})[holder.ref.uid] = holder
    for device in sorted(found, key=lambda device: (natural(device), device)):
        cordon = cordon_of(node.cordons, device, node.inventory)
        yield DeviceState(
            device, None, UNREAD, in_order(without_claims_of_pods(found[device].values())), cordon, available=False
        )


@immutable
class GpuCount:
    """Numbers of the devices of one node, or of all nodes."""

    total: int = 0
    available: int = 0
    """How many devices the next pod may have."""
    read: int = 0
    """How many devices a monitor reads."""
    utilization: int = 0
    """The sum of their utilization, in percent."""
    held: int = 0
    """How many of them are held: by pods, by ResourceClaims, or for pods that start together. No inventory has a device
    that is held by a wrong name, so it does not count."""
    cordoned: int = 0
    """Of the others, how many are out of service."""
    unhealthy: int = 0
    """Of the others, how many are reported unhealthy."""

    @property
    def mean(self) -> float:
        """Return the mean utilization of the devices that a monitor reads, in percent; 0 if there are none."""
        return self.utilization / self.read if self.read else 0.0

    @property
    def by_state(self) -> dict[str, int]:
        """Return how many devices are in each state. Each device counts once, by the first state that applies."""
        closed = max(0, self.total - self.held - self.cordoned - self.unhealthy - self.available)
        return {
            "held": self.held,
            "cordoned": self.cordoned,
            "unhealthy": self.unhealthy,
            "unavailable": closed,
            "free": self.available,
        }


_NONE: Final = GpuCount()


class GpuTotals:
    """Sums over the devices of all nodes, updated for the nodes that changed."""

    __slots__ = ("_counts", "_ledger", "_number", "_sum")

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._number = 0
        self._counts: dict[str, GpuCount] = {}
        self._sum = _NONE

    def take(self, nodes: Nodes, ledger: Ledger) -> GpuCount:
        """Return the current sums. The cost depends on the number of nodes that changed since the last call."""
        changed = ledger.generations.since(self._number) if ledger is self._ledger else None
        if changed is None:
            self._counts, self._sum = {}, _NONE
            changed = [node.name for node in nodes]
        for name in changed:
            self._count(name, nodes.resolve(name), ledger)
        self._ledger, self._number = ledger, ledger.generations.now
        return self._sum

    @property
    def by_node(self) -> Mapping[str, GpuCount]:
        """Return the numbers of each node that has GPUs, as of the last `take`."""
        return self._counts

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
            self._sum.held - before.held + count.held,
            self._sum.cordoned - before.cordoned + count.cordoned,
            self._sum.unhealthy - before.unhealthy + count.unhealthy,
        )


def _count_of(node: Node, ledger: Ledger) -> GpuCount:
    """Return the same numbers as NodeDevices, without the holders."""
    devices = () if node.inventory is None else node.inventory.devices
    readings = [node.readings.get(device.index, UNREAD) for device in devices]
    monitored = any(device.memory is not None for device in devices)
    held = ledger.devices.held(node.name)
    unnamed = 0 if node.advertised is None else ledger.used_resources.used(node.name, names.GPU_RESOURCE)
    named = cordoned = unhealthy = free = 0
    for device, reading in zip(devices, readings, strict=True):
        if str(device.index) in held:
            named += 1
        elif cordon_of(node.cordons, str(device.index), node.inventory) is not None:
            cordoned += 1
        elif reading.health is Health.UNHEALTHY:
            unhealthy += 1
        else:
            free += 1
    return GpuCount(
        total=len(devices),
        available=_available(node, free, unnamed),
        read=len(devices) if monitored else 0,
        utilization=sum(reading.utilization for reading in readings) if monitored else 0,
        held=named + unnamed,
        cordoned=cordoned,
        unhealthy=unhealthy,
    )


def _available(node: Node, free: int, unnamed: int) -> int:
    """Return how many devices the next pod may have. `unnamed` are those that the device plugin has handed out."""
    if not node.ready or node.unschedulable or node.stale:
        return 0
    if node.advertised is None:
        return free
    if node.cordons:
        # The plugin may choose a cordoned device, so it is asked for none.
        return 0
    return max(0, min(free, node.allocatable.get(names.GPU_RESOURCE, 0)) - unnamed)
