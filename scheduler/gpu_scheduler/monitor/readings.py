"""The readings of a node's GPUs, and which changes of them are written.

LAW: every node is read every few seconds, so a small fluctuation must not cause a write.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.cordons import Cordon, cordon_of
from gpu_scheduler.core.nodes.inventory import Device, Health, Inventory

MEMORY_STEP: Final = 5
"""Percent of a GPU's memory. A smaller difference from the written value is not written."""
UTILIZATION_STEP: Final = 10
"""Percentage points. A smaller difference from the written value is written only if it crosses the goal."""

_FAULT: Final = re.compile(r"; GPU ([0-9]{1,9}) is (?:degraded|unhealthy): ")


class Tier(StrEnum):
    """The mean utilization of a node's GPUs, as one of three levels."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@immutable
class MigDevice:
    """A MIG device of a GPU."""

    uuid: str
    memory: int | None = None
    """MiB."""


@immutable
class GpuReading:
    """One GPU as it was read; a value that could not be read is None."""

    index: int
    """CUDA's number of it, in order of PCI bus id."""
    uuid: str | None = None
    bus: str | None = None
    """PCI bus id."""
    model: str | None = None
    total: int | None = None
    """Total memory in MiB."""
    used: int | None = None
    """Used memory in MiB, of all processes together."""
    utilization: int | None = None
    """Percent."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: int | None = None
    """Watts."""
    health: Health = Health.HEALTHY
    why: str = ""
    """What is wrong with it; empty if it is healthy."""
    mig_devices: tuple[MigDevice, ...] = ()
    released: bool = False
    """Whether the monitor has let go of it, because it is cordoned. Its identity and health are the last known ones."""


@immutable
class Report:
    """A reading to write, and when it was made (RFC 3339)."""

    gpus: tuple[GpuReading, ...]
    at: str


def reason_to_write(published: Sequence[GpuReading], now: Sequence[GpuReading], goal: int) -> str | None:
    """Return which change from `published` to `now` requires a write, in one word; None if no change does.

    `goal` is in percent.
    """
    for reason, part in _PARTS.items():
        if [part(gpu) for gpu in published] != [part(gpu) for gpu in now]:
            return reason
    if tier_of(published, goal) != tier_of(now, goal):
        return "tier"
    pairs = list(zip(published, now, strict=True))
    if any(_other_memory(before, after) for before, after in pairs):
        return "memory"
    if any(_other_utilization(before.utilization, after.utilization, goal) for before, after in pairs):
        return "utilization"
    return None


def covered(gpus: Sequence[GpuReading], cordons: tuple[Cordon, ...]) -> frozenset[int]:
    """Return the indices of the GPUs that are cordoned, as a whole or in part (a MIG device)."""
    if not cordons:
        return frozenset()
    inventory = inventory_of(gpus)
    names = {gpu.index: gpu.uuid or str(gpu.index) for gpu in gpus}
    return frozenset(index for index, name in names.items() if cordon_of(cordons, name, inventory) is not None)


def let_go(gpu: GpuReading) -> GpuReading:
    """Return the reading of a GPU that the monitor has let go of."""
    return replace(gpu, used=None, utilization=None, temperature=None, power=None, released=True)


def inventory_of(gpus: Iterable[GpuReading]) -> Inventory:
    """Return the inventory that names of devices are compared by."""
    return Inventory(tuple(Device(gpu.index, gpu.uuid, tuple(each.uuid for each in gpu.mig_devices)) for gpu in gpus))


def tier_of(gpus: Iterable[GpuReading], goal: int) -> Tier:
    """Return HIGH for a mean utilization above `goal` percent, LOW below half of it or if unknown, else MEDIUM."""
    mean = mean_utilization(gpus)
    if mean is None or mean * 2 < goal:
        return Tier.LOW
    return Tier.HIGH if mean > goal else Tier.MEDIUM


def mean_utilization(gpus: Iterable[GpuReading]) -> float | None:
    """Return the mean utilization in percent of the GPUs that have one; None if no GPU has one."""
    known = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return sum(known) / len(known) if known else None


def schedulable(gpus: Iterable[GpuReading]) -> bool:
    """Return whether at least one GPU is not unhealthy."""
    return any(gpu.health is not Health.UNHEALTHY for gpu in gpus)


def health_of(gpus: Sequence[GpuReading]) -> Health:
    """Return a node's health: healthy if all GPUs are, unhealthy if all GPUs are unhealthy, else degraded."""
    if all(gpu.health is Health.HEALTHY for gpu in gpus):
        return Health.HEALTHY
    return Health.DEGRADED if schedulable(gpus) else Health.UNHEALTHY


def status_of(gpus: Sequence[GpuReading]) -> str:
    """Return a node's state in one line for people: health, utilization, memory, and the faults of each GPU."""
    mean = mean_utilization(gpus)
    total = sum(gpu.total or 0 for gpu in gpus)
    parts = [f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"]
    if mean is not None:
        parts.append(f"utilization {mean:.0f} %")
    if total:
        parts.append(f"memory {sum(gpu.used or 0 for gpu in gpus)} of {total} MiB")
    wrong = [f"; GPU {gpu.index} is {gpu.health}: {gpu.why}" for gpu in gpus if gpu.health is not Health.HEALTHY]
    return f"{health_of(gpus)}: {', '.join(parts)}{''.join(wrong)}"


def faults_of(status: str) -> dict[int, str]:
    """Return what `status_of` says is wrong with each GPU, by its index."""
    # At the odd places of the parts are the indices, and after each of them what is wrong with that GPU.
    parts = _FAULT.split(status)
    return {int(index): why for index, why in zip(parts[1::2], parts[2::2], strict=True)}


def _identity(gpu: GpuReading) -> tuple[object, ...]:
    return (gpu.index, gpu.uuid, gpu.bus, gpu.model, gpu.total, gpu.mig_devices)


_PARTS: Final[dict[str, Callable[[GpuReading], object]]] = {
    "membership": _identity,
    "health": lambda gpu: (gpu.health, gpu.why),
    "release": lambda gpu: gpu.released,
}
"""What of a GPU is written at any change, by the reason, in order."""


def _other_memory(published: GpuReading, now: GpuReading) -> bool:
    if published.used is None or now.used is None:
        return published.used != now.used
    whole = now.total or published.used
    return published.used != now.used and abs(now.used - published.used) * 100 >= MEMORY_STEP * whole


def _other_utilization(published: int | None, now: int | None, goal: int) -> bool:
    if published is None or now is None:
        return published != now
    return abs(now - published) >= UTILIZATION_STEP or (published > goal) != (now > goal)
