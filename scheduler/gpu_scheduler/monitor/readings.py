"""What a monitor reads of its node's GPUs, and which changes of it are worth a write.

LAW: a reading comes every few seconds on every node, so what only flickers is never written.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpu_scheduler.core.nodes.inventory import Health

MEMORY_STEP: Final = 5
"""Percent of a GPU's memory by which its use must differ from what was written."""
UTILIZATION_STEP: Final = 10
"""Points by which a GPU's utilization must differ from what was written."""


class Tier(StrEnum):
    """How busy a node's GPUs are, taken together."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG device of a GPU."""

    uuid: str
    memory: int | None = None
    """MiB."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as it was read; what could not be read is None."""

    index: int
    """As CUDA numbers it by PCI bus."""
    uuid: str | None = None
    bus: str | None = None
    """PCI bus id."""
    model: str | None = None
    total: int | None = None
    """MiB in all."""
    used: int | None = None
    """MiB, whoever uses it."""
    utilization: int | None = None
    """Percent."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: int | None = None
    """Watts."""
    health: Health = Health.HEALTHY
    why: str = ""
    """What is wrong with it, unless it is healthy."""
    slices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """A reading that is to be written, and when it was made (RFC 3339)."""

    gpus: tuple[GpuReading, ...]
    at: str


def reason_to_write(told: Sequence[GpuReading], now: Sequence[GpuReading], goal: int) -> str | None:
    """Why `now` is worth writing where `told` stands written; None when it is not."""
    if [_identity(gpu) for gpu in told] != [_identity(gpu) for gpu in now]:
        return "membership"
    if [(gpu.health, gpu.why) for gpu in told] != [(gpu.health, gpu.why) for gpu in now]:
        return "health"
    if tier_of(told, goal) != tier_of(now, goal):
        return "tier"
    pairs = list(zip(told, now, strict=True))
    if any(_other_memory(before, after) for before, after in pairs):
        return "memory"
    if any(_other_utilization(before.utilization, after.utilization, goal) for before, after in pairs):
        return "utilization"
    return None


def tier_of(gpus: Iterable[GpuReading], goal: int) -> Tier:
    """High above the goal, low below half of it; what tells no utilization does not count."""
    mean = mean_utilization(gpus)
    if mean is None or mean * 2 < goal:
        return Tier.LOW
    return Tier.HIGH if mean > goal else Tier.MEDIUM


def mean_utilization(gpus: Iterable[GpuReading]) -> float | None:
    """Percent, of those that tell it; None when none does."""
    known = [gpu.utilization for gpu in gpus if gpu.utilization is not None]
    return sum(known) / len(known) if known else None


def schedulable(gpus: Iterable[GpuReading]) -> bool:
    """Whether any of them can take work."""
    return any(gpu.health is not Health.UNHEALTHY for gpu in gpus)


def health_of(gpus: Sequence[GpuReading]) -> Health:
    """A node's health in one word: unhealthy when none of its GPUs can take work."""
    if all(gpu.health is Health.HEALTHY for gpu in gpus):
        return Health.HEALTHY
    return Health.DEGRADED if schedulable(gpus) else Health.UNHEALTHY


def status_of(gpus: Sequence[GpuReading]) -> str:
    """A node's state in one line for people: health, how busy, how full, and what is wrong with which GPU."""
    mean = mean_utilization(gpus)
    total = sum(gpu.total or 0 for gpu in gpus)
    told = [f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"]
    if mean is not None:
        told.append(f"utilization {mean:.0f} %")
    if total:
        told.append(f"memory {sum(gpu.used or 0 for gpu in gpus)} of {total} MiB")
    wrong = [f"; GPU {gpu.index} is {gpu.health}: {gpu.why}" for gpu in gpus if gpu.health is not Health.HEALTHY]
    return f"{health_of(gpus)}: {', '.join(told)}{''.join(wrong)}"


def _identity(gpu: GpuReading) -> tuple[object, ...]:
    return (gpu.index, gpu.uuid, gpu.bus, gpu.model, gpu.total, gpu.slices)


def _other_memory(told: GpuReading, now: GpuReading) -> bool:
    if told.used is None or now.used is None:
        return told.used != now.used
    whole = now.total or told.used
    return told.used != now.used and abs(now.used - told.used) * 100 >= MEMORY_STEP * whole


def _other_utilization(told: int | None, now: int | None, goal: int) -> bool:
    if told is None or now is None:
        return told != now
    return abs(now - told) >= UTILIZATION_STEP or (told > goal) != (now > goal)
