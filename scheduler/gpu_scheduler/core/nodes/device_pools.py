"""The GPUs that the drivers of ResourceClaims publish in ResourceSlices.

LAW: of a pool, only the slices of the highest generation of which all slices are there count.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import MAX_DEVICES
from gpu_scheduler.core.pods.device_selector import DeviceSelector
from gpu_scheduler.core.pods.placement_map import device_kind

UUIDS_KNOWN: Final = (
    f"start the monitor on the node (label {names.ENABLED}=true) or a DRA driver that publishes its GPUs with UUIDs"
)
"""The remedy for a node whose devices cannot be in a ResourceClaim."""


@immutable
class DeviceId:
    """The name by which a claim is allocated a device."""

    driver: str
    pool: str
    device: str


@immutable
class PublishedDevice:
    """A GPU, or a MIG device of one, as its driver publishes it."""

    id: DeviceId
    uuid: str
    """As a map names it: `GPU-…` or `MIG-…`."""
    index: int | None = None
    bus: str = ""
    """PCI bus id; empty if it is not published."""
    parent: str = ""
    """The UUID of the GPU that a MIG device is a part of."""
    model: str = ""
    memory: int | None = None
    """MiB."""

    def selected(self, selector: DeviceSelector) -> bool:
        """Whether the device is what a ResourceClaim selects."""
        return (
            selector.driver in {"", self.id.driver}
            and selector.uuid in {"", self.uuid}
            and selector.index in {None, self.index}
            and selector.product_name in {"", self.model}
        )


@immutable
class DeviceSlice:
    """One ResourceSlice of a node's GPUs."""

    name: str
    node: str
    driver: str
    pool: str
    generation: int
    slices: int
    """How many slices its pool has in this generation."""
    devices: tuple[PublishedDevice, ...]


_Pool = tuple[str, str]
"""Driver and name of a pool."""
_NO_DEVICES: Final[tuple[PublishedDevice, ...]] = ()


class DevicePools:
    """The devices of all pools, by node and by id."""

    __slots__ = ("_by_id", "_by_node", "_devices", "_slices")

    def __init__(self) -> None:
        self._slices: dict[_Pool, dict[str, DeviceSlice]] = {}
        self._devices: dict[_Pool, tuple[str, tuple[PublishedDevice, ...]]] = {}
        """Node and devices of each complete pool."""
        self._by_node: dict[str, dict[_Pool, None]] = {}
        self._by_id: dict[DeviceId, tuple[str, str]] = {}

    def apply(self, found: DeviceSlice) -> frozenset[str]:
        """Store a slice. Return the nodes whose devices have changed."""
        self._slices.setdefault((found.driver, found.pool), {})[found.name] = found
        return self._read_pool((found.driver, found.pool))

    def forget(self, found: DeviceSlice) -> frozenset[str]:
        """Remove a slice. Return the nodes whose devices have changed."""
        pool = found.driver, found.pool
        left = self._slices.get(pool, {})
        left.pop(found.name, None)
        changed = self._read_pool(pool)
        if not left:
            self._slices.pop(pool, None)
        return changed

    def find(self, node: str, uuid: str) -> PublishedDevice | None:
        """Return the device of this node with this UUID; None if no driver publishes it."""
        return next((each for each in self._devices_of(node) if each.uuid == uuid), None)

    def where(self, device: DeviceId) -> tuple[str, str] | None:
        """Return node and UUID of a device; None if no driver publishes it now."""
        return self._by_id.get(device)

    def inventory(self, node: str) -> Inventory | None:
        """Return the node's devices as an inventory; None if no driver publishes any, or too many.

        A driver that publishes no index for each of its GPUs has them numbered by PCI bus id, as CUDA numbers them.
        """
        found = self._devices_of(node)
        gpus = [each for each in found if device_kind(each.uuid) == "GPU"]
        if not gpus or len(gpus) > MAX_DEVICES or len({each.uuid for each in found}) < len(found):
            return None
        indices = {each.uuid: each.index for each in gpus}
        if None in indices.values() or len(set(indices.values())) < len(indices):
            gpus.sort(key=lambda each: (each.bus, each.uuid))
            indices = {each.uuid: position for position, each in enumerate(gpus)}
        parts: dict[str, list[str]] = {}
        for each in found:
            if each.parent:
                parts.setdefault(each.parent, []).append(each.uuid)
        devices = (
            Device(indices[each.uuid] or 0, each.uuid, tuple(parts.get(each.uuid, ())), each.model, each.memory)
            for each in gpus
        )
        return Inventory(tuple(sorted(devices, key=lambda device: device.index)))

    def published_for(self, node: Node) -> Inventory | None:
        """Return the inventory that replaces the node's own; None if a monitor lists its devices, or no driver does."""
        return None if node.monitored else self.inventory(node.name)

    def publish_all(self, node: Node) -> bool:
        """Whether drivers publish each GPU that the node's monitor lists, except those that our driver cannot.

        It needs a UUID, and publishes no GPU that is divided into MIG devices.
        """
        if not node.monitored or node.inventory is None:
            return True
        published = {each.uuid for each in self._devices_of(node.name)}
        return all(gpu.uuid in published for gpu in node.inventory.devices if gpu.uuid and not gpu.mig_devices)

    def _devices_of(self, node: str) -> tuple[PublishedDevice, ...]:
        pools = self._by_node.get(node, ())
        return tuple(chain.from_iterable(self._devices[pool][1] for pool in pools)) if pools else _NO_DEVICES

    def _read_pool(self, pool: _Pool) -> frozenset[str]:
        """Read a pool again after one of its slices has changed. Return the nodes whose devices have changed."""
        before = self._devices.pop(pool, None)
        found = _complete(self._slices[pool].values()) if pool in self._slices else None
        if found is not None:
            self._devices[pool] = found
        if before == found:
            return frozenset()
        if before is not None:
            self._by_node[before[0]].pop(pool)
            for each in before[1]:
                del self._by_id[each.id]
        if found is not None:
            node, devices = found
            self._by_node.setdefault(node, {})[pool] = None
            self._by_id.update((each.id, (node, each.uuid)) for each in devices)
        return frozenset(each[0] for each in (before, found) if each is not None)


def _complete(slices: Iterable[DeviceSlice]) -> tuple[str, tuple[PublishedDevice, ...]] | None:
    """Return node and devices of the highest generation of which all slices are there; None if there is none.

    A generation that names a device twice, or whose slices are of several nodes, does not count.
    """
    for together in _generations(slices):
        devices = tuple(chain.from_iterable(each.devices for each in together))
        nodes, ids = {each.node for each in together}, {each.id for each in devices}
        whole = all(each.slices == len(together) for each in together)
        if whole and len(nodes) == 1 and len(ids) == len(devices):
            return nodes.pop(), devices
    return None


def _generations(slices: Iterable[DeviceSlice]) -> Iterator[list[DeviceSlice]]:
    """Yield the slices of each generation, the highest first."""
    ordered = sorted(slices, key=lambda each: (-each.generation, each.name))
    for _, together in groupby(ordered, key=lambda each: each.generation):
        yield list(together)
