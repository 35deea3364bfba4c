"""The devices of the driver's node: which of them are published, and why the others are not. A pure module."""

from dataclasses import replace
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES, Cordon, cordon_of
from gpu_scheduler.core.nodes.inventory import Device, Inventory

_KIND: Final = "GPU-"
"""How the UUID of a GPU begins. A MIG device's begins with `MIG-`."""


@immutable
class OwnDevice:
    """A GPU that is published."""

    index: int
    uuid: str
    model: str = ""
    memory: int | None = None
    """Total MiB; None if unknown."""
    bus: str = ""
    """Its PCI address as Linux writes it; empty if unknown."""
    cordon: str = ""
    """What the cordon that covers it names: `device` or `node`; empty if the device is in service."""

    @property
    def name(self) -> str:
        """Return its name in ResourceSlices and allocations. It does not change with the index."""
        return f"gpu-{self.uuid.removeprefix(_KIND)}"


@immutable
class OwnNode:
    """The driver's node, and the devices that its monitor lists."""

    name: str
    uid: str
    inventory: Inventory | None
    """None if the monitor has listed none, or if the list cannot be read."""
    buses: tuple[tuple[int, str], ...] = ()
    """Index and PCI address of each device whose address is known."""


@immutable
class PublishedDevices:
    """The devices to publish, and a sentence for each one that cannot be."""

    devices: tuple[OwnDevice, ...]
    withheld: tuple[str, ...] = ()

    def find(self, name: str) -> OwnDevice | None:
        """Return the device with this name; None if there is none."""
        return next((device for device in self.devices if device.name == name), None)


def published(inventory: Inventory, buses: dict[int, str], cordons: tuple[Cordon, ...]) -> PublishedDevices:
    """Return what is published of these devices. `buses` maps an index to a PCI address."""
    devices, withheld = [], []
    for device in sorted(inventory.devices, key=lambda each: each.index):
        if device.uuid is None:
            withheld.append(f"GPU {device.index} has no UUID, by which containers would see it")
        elif device.mig_devices:
            withheld.append(f"GPU {device.index} is divided into MIG devices, which claims cannot name")
        else:
            own = _own(device, device.uuid, buses.get(device.index, ""))
            cordon = cordon_of(cordons, own.uuid, inventory)
            devices.append(own if cordon is None else replace(own, cordon=_cordoned(cordon)))
    return PublishedDevices(tuple(devices), tuple(withheld))


def _own(device: Device, uuid: str, bus: str) -> OwnDevice:
    return OwnDevice(device.index, uuid, device.model, device.memory, bus)


def _cordoned(cordon: Cordon) -> str:
    return "node" if cordon.device == ALL_DEVICES else "device"
