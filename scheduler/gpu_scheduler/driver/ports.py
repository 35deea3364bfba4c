"""How devices are described to the container runtime, as a Protocol of two methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpu_scheduler.driver.devices import OwnDevice


class CdiError(Exception):
    """A device cannot be named to the container runtime; the text says why, and what helps."""


class Cdi(Protocol):
    """The devices in the Container Device Interface (CDI), by which a runtime finds a device."""

    def declare(self, devices: Collection[OwnDevice]) -> None:
        """Let the runtime know these devices and no others. CdiError if that fails."""

    def name_of(self, device: OwnDevice) -> str:
        """Return the CDI name of the device. CdiError if the runtime does not know it."""
