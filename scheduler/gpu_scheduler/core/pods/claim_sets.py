"""Which ResourceClaims the lines of a map need: each line's devices, in the sets that lines have in common.

LAW: two pods of a workload have the same claim if and only if exactly the same lines name all of its devices. The names
follow from the pod's own text, so that webhook and scheduler find the same ones.
"""

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot, device_kind

MAX_CLAIM_DEVICES: Final = 32
"""Most devices that the claims of one pod may have: as many as the API lets one claim have."""

MAX_CLAIM_PODS: Final = 256
"""Most pods that may share a claim (`status.reservedFor`)."""

CLAIM_ENTRIES: Final = tuple(f"{names.CLAIM}{number}" for number in range(MAX_CLAIM_DEVICES))
"""The names of our entries in a pod's `spec.resourceClaims`, in order. Containers refer to them."""

_OWN_SET: Final = -1
"""Stands for the set of the devices that only one line names."""
_SHORT: Final = 4096
"""Most bytes of a map of which many are cached."""


@immutable
class ClaimSet:
    """A ResourceClaim that a pod carries, and the devices for which it stands, as the map names them."""

    name: str
    """Empty if it is not named yet: only admission can choose a random name."""
    devices: tuple[str, ...]
    """In order of name. Empty if they are decided when the pod is placed."""


@immutable
class MapDevices:
    """What the claims of a map's lines depend on, apart from the lines themselves."""

    sets: Mapping[tuple[str, str], int]
    """By node and device, for the devices that several lines name: the number of its set."""
    lines: tuple[int, ...]
    """By number of a set: how many lines name it."""
    most: int
    """The most devices of a line."""
    mig_device: str
    """The first MIG device that a line names; empty if no line names one."""


def devices_of_map(placement_map: PlacementMap) -> MapDevices:
    """Return what the claims of the map's lines depend on. All pods of a workload have one map: it is cached."""
    return (_of_short_map if placement_map.size <= _SHORT else _of_long_map)(placement_map)


def _devices_of(placement_map: PlacementMap) -> MapDevices:
    named: dict[tuple[str, str], list[int]] = {}
    most, mig_device = 0, ""
    for slot in placement_map.slots:
        most = max(most, len(slot.devices))
        # The devices of a line are of one kind.
        if not mig_device and slot.devices and device_kind(slot.devices[0]) == "MIG":
            mig_device = slot.devices[0]
        for device in slot.devices:
            named.setdefault((slot.node, device), []).append(slot.index)
    numbers: dict[tuple[int, ...], int] = {}
    # Only devices of several lines are kept: those of one line are in the set of that line.
    sets = {key: numbers.setdefault(tuple(at), len(numbers)) for key, at in named.items() if len(at) > 1}
    return MapDevices(sets, tuple(map(len, numbers)), most, mig_device)


_of_short_map: Final = lru_cache(maxsize=256)(_devices_of)
# The result for one of the longest maps may take 2 MB.
_of_long_map: Final = lru_cache(maxsize=8)(_devices_of)


def most_pods(placement_map: PlacementMap, slot: Slot) -> int:
    """Return how many pods have the claim of the line that most pods have."""
    found = devices_of_map(placement_map)
    numbers = {found.sets.get((slot.node, device), _OWN_SET) for device in slot.devices}
    return max((1 if number == _OWN_SET else found.lines[number] for number in numbers), default=0)


def claim_sets(placement_map: PlacementMap, slot: Slot, namespace: str, owner_uid: str) -> tuple[ClaimSet, ...]:
    """Return the claims of the pod that has the line, in the order in which the line names their first devices.

    `owner_uid` is the uid of the pod's controller; empty for a bare pod.
    """
    sets = devices_of_map(placement_map).sets
    parts: dict[int, list[str]] = {}
    for device in slot.devices:
        parts.setdefault(sets.get((slot.node, device), _OWN_SET), []).append(device)
    return tuple(
        ClaimSet(_name((namespace, placement_map.digest, slot.node, ",".join(devices), owner_uid)), devices)
        for devices in (tuple(sorted(part, key=_number_first)) for part in parts.values())
    )


def _number_first(device: str) -> tuple[int, str]:
    """Return the sort key of a device. Numbers have no leading zeroes, so the shorter one is the lower one."""
    return len(device), device


def _name(parts: tuple[str, ...]) -> str:
    """Return the name of a claim, a DNS label of 46 characters.

    Only the last part, the uid, may have a zero byte, so that different parts never give one text.
    """
    text = "\0".join(parts).encode(errors="replace")
    return names.CLAIM + blake2b(text, digest_size=16).hexdigest()
