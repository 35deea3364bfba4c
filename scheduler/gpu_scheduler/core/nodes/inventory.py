"""The devices of a node, and which of them a name in a placement map means.

LAW: an index, a GPU's UUID and a MIG device's UUID may all mean one GPU, so names are compared by what they mean.
"""

from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.count_request import MAX_DEVICES


class Health(StrEnum):
    """A device's health, as its monitor reads it."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """It works but shows wear. Strategies take other devices first."""
    UNHEALTHY = "unhealthy"


@immutable
class Device:
    """One GPU: its index as CUDA numbers it by PCI bus and, if known, its UUID and the UUIDs of its MIG devices."""

    index: int
    uuid: str | None = None
    mig_devices: tuple[str, ...] = ()
    model: str = ""
    memory: int | None = None
    """Total MiB; None if unknown."""


@immutable
class DeviceReading:
    """What a monitor last read of one device. This changes every minute, so it is not part of the inventory."""

    used: int = 0
    """MiB, used by any process."""
    utilization: int = 0
    """Percent."""
    health: Health = Health.HEALTHY


_SHOWN: Final = 8
"""Most devices that a message lists."""

UNREAD: Final = DeviceReading()
"""The reading of a device that no monitor reads."""


@immutable
class DevicePart:
    """What a name means: the device of this index, or one MIG device of it."""

    index: int
    mig_device: str | None = None
    uuid: str | None = field(default=None, compare=False)
    """The UUID of the device or of the MIG device, if known."""

    def overlaps(self, other: "DevicePart") -> bool:
        """Whether the two share hardware."""
        one, another = self.mig_device, other.mig_device
        return self.index == other.index and (one == another or None in {one, another})


@immutable
class Inventory:
    """The devices of a node."""

    devices: tuple[Device, ...]
    _parts: dict[str, DevicePart] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = {str(device.index): DevicePart(device.index, uuid=device.uuid) for device in self.devices}
        for device in self.devices:
            if device.uuid is not None:
                parts[device.uuid] = parts[str(device.index)]
            parts.update({uuid: DevicePart(device.index, uuid, uuid) for uuid in device.mig_devices})
        object.__setattr__(self, "_parts", parts)

    @property
    def has_uuids(self) -> bool:
        """Whether the inventory lists UUIDs: then a UUID that it does not list does not exist.

        A bare count of devices lists none.
        """
        return any(device.uuid is not None for device in self.devices)

    def __str__(self) -> str:
        """Return the indices of the devices as text for people: `0, 1, 2`, at most the first eight."""
        shown = ", ".join(str(device.index) for device in self.devices[:_SHOWN]) or "none"
        return f"{shown}, …" if len(self.devices) > _SHOWN else shown

    def find(self, device: str) -> DevicePart | None:
        """Return the part that a map's name of a device means; None if the inventory does not know it."""
        return self._parts.get(device)

    def uuids(self, devices: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the UUIDs of `devices`, in their order; None unless all are known."""
        parts = [self._parts.get(device) for device in devices]
        found = tuple([part.uuid for part in parts if part is not None and part.uuid is not None])
        return found if len(found) == len(devices) else None


@lru_cache(maxsize=16)
def counted(number: int) -> Inventory:
    """Return an inventory of which only the number of devices is known. All nodes with this number share one value."""
    return Inventory(tuple(Device(index) for index in range(min(number, MAX_DEVICES))))
