"""Which devices the containers of a pod name themselves, and which of these the pod can hold.

LAW: webhook, bind gate and ledger read CUDA_VISIBLE_DEVICES with these functions. CUDA accepts more spellings than this
scheduler.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import MAX_VALUE
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, Environment, EnvVar
from gpu_scheduler.core.pods.placement_map import device_kind

FIELD_ENTRY: Final = EnvVar(names.VISIBLE_DEVICES, None, names.DEVICES_FIELD)

_NO_DEVICE: Final = frozenset({"", "-1"})
"""Values for which CUDA shows no device."""

_LONGEST: Final = 256
"""Longest value whose devices are cached."""


def kept_devices(value: str) -> tuple[str, ...] | None:
    """Return the devices that a container may keep with this value; None if it is unclear which devices these are.

    CUDA accepts more than this: shortened UUIDs, signs, spaces, text after a number. The pod must hold exactly the
    devices that CUDA finds. Therefore each device has only one spelling here, that of the map.
    """
    if value in _NO_DEVICE:
        return ()
    if len(value) > MAX_VALUE:
        return None
    devices = value.split(",")
    kinds = {device_kind(device) for device in devices}
    return None if None in kinds or len(kinds) > 1 else tuple(dict.fromkeys(devices))


def kept(containers: Iterable[Container]) -> tuple[str, ...]:
    """Return the devices that containers name themselves, as far as a pod that keeps its environment may name them."""
    values = (entry.value for entry in _visible(containers) if entry.value is not None)
    return tuple(dict.fromkeys(device for value in values for device in kept_devices(value) or ()))


def carried(containers: Iterable[Container]) -> EnvVar | None:
    """Return the first CUDA_VISIBLE_DEVICES entry of a pod's own containers whose devices the pod can hold, or None."""
    for container in containers:
        if container.kind is not ContainerKind.EPHEMERAL:
            # If two entries have one name, the last one is valid.
            seen = {entry.name: entry for entry in container.env or ()}.get(names.VISIBLE_DEVICES)
            if seen is not None and (seen == FIELD_ENTRY or keepable(seen)):
                return seen
    return None


def environment_of(containers: tuple[Container, ...]) -> Environment:
    """Return what the containers set for their devices."""
    entries = tuple(_visible(containers))
    values = [entry.value for entry in entries if entry.value is not None]
    own = tuple(dict.fromkeys(device for value in values for device in devices_in(value))) if values else None
    return Environment(containers, own, FIELD_ENTRY in entries)


def devices_in(value: str) -> tuple[str, ...]:
    """Return the devices that CUDA finds in a value of CUDA_VISIBLE_DEVICES, in the spelling of a map.

    As CUDA does, accept a plus sign, and stop at the first part that names no device. Thousands of pods have the same
    few values, so each value is parsed once, and its devices are in memory once.
    """
    return _read(value) if len(value) <= _LONGEST else _read.__wrapped__(value)


@lru_cache(maxsize=4096)
def _read(value: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for part in value.split(","):
        device = part.strip().removeprefix("+")
        if device.isascii() and device.isdigit():
            device = device.lstrip("0") or "0"
        device = device[:4] + device[4:].lower()
        if device_kind(device) is None:
            break
        found[device] = None
    return tuple(found)


def keepable(entry: EnvVar) -> bool:
    """Whether a container may keep this entry.

    Another CUDA_DEVICE_ORDER is never kept: each number would mean another device than the one that the pod holds.
    """
    return entry.name == names.VISIBLE_DEVICES and entry.value is not None and kept_devices(entry.value) is not None


def _visible(containers: Iterable[Container]) -> Iterator[EnvVar]:
    for container in containers:
        for entry in container.env or ():
            if entry.name == names.VISIBLE_DEVICES:
                yield entry
