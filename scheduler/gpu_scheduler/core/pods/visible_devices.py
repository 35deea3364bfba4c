"""Which devices the containers of a pod name themselves, and which of these can be booked.

LAW: one reading of CUDA_VISIBLE_DEVICES for webhook, bind gate and ledger. CUDA reads more spellings than are booked.
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
"""Values by which CUDA shows no device."""

_LONGEST: Final = 256
"""Longest value whose devices are remembered."""


def kept_devices(value: str) -> tuple[str, ...] | None:
    """The devices that a container may keep by this value; None where it does not say which are to be booked.

    CUDA reads more than this: UUIDs cut short, signs, spaces, text behind a number. What is booked must be what it
    finds, so each device has one spelling here, the map's.
    """
    if value in _NO_DEVICE:
        return ()
    if len(value) > MAX_VALUE:
        return None
    devices = value.split(",")
    kinds = {device_kind(device) for device in devices}
    return None if None in kinds or len(kinds) > 1 else tuple(dict.fromkeys(devices))


def kept(containers: Iterable[Container]) -> tuple[str, ...]:
    """The devices that containers name themselves, as far as a pod that keeps its environment may name them."""
    values = (entry.value for entry in _visible(containers) if entry.value is not None)
    return tuple(dict.fromkeys(device for value in values for device in kept_devices(value) or ()))


def carried(containers: Iterable[Container]) -> EnvVar | None:
    """How a pod's own containers see their devices: the first that says so in a way that is booked."""
    for container in containers:
        if container.kind is not ContainerKind.EPHEMERAL:
            # Of two entries with one name the last wins.
            seen = {entry.name: entry for entry in container.env or ()}.get(names.VISIBLE_DEVICES)
            if seen is not None and (seen == FIELD_ENTRY or keepable(seen)):
                return seen
    return None


def environment_of(containers: tuple[Container, ...]) -> Environment:
    """Read what the containers say of their devices."""
    entries = tuple(_visible(containers))
    values = [entry.value for entry in entries if entry.value is not None]
    own = tuple(dict.fromkeys(device for value in values for device in devices_in(value))) if values else None
    return Environment(containers, own, FIELD_ENTRY in entries)


def devices_in(value: str) -> tuple[str, ...]:
    """The devices that CUDA finds in a value of CUDA_VISIBLE_DEVICES, spelled as a map spells them.

    Like CUDA, it takes a plus sign, and stops at the first part that names none. Thousands of pods say the same few
    values, so each is read once, and its devices are in memory once.
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
    """Another order is never kept: it would make each number mean another device than the one that is booked."""
    return entry.name == names.VISIBLE_DEVICES and entry.value is not None and kept_devices(entry.value) is not None


def _visible(containers: Iterable[Container]) -> Iterator[EnvVar]:
    for container in containers:
        for entry in container.env or ():
            if entry.name == names.VISIBLE_DEVICES:
                yield entry
