"""What all workloads have in common: somebody begins, the observer looks on, and the outcome is audited."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.audit import audit
from bench.costs import Meter
from bench.observing import Observation
from bench.results import Measured, now
from tests.integration.counting import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.contender import Contender
    from bench.observer import Progress, Seen
    from bench.plant import Plant
    from bench.results import Cell
    from bench.town import Settlement

_QUIET: Final = 20.0
"""Seconds without any news after which no more is to be expected."""
_STEP: Final = 0.1


@dataclass(frozen=True, slots=True)
class Scene:
    """What is measured, where, and by whom; `tell` hears how far it is."""

    cell: Cell
    repetition: int
    ground: Plant
    town: Settlement
    contender: Contender
    tell: Callable[[str], None]
    waiting: int | None = None
    """How many of the town's pods are still to be bound, where that is not all of them."""


def observed(scene: Scene, begin: Callable[[], None]) -> tuple[Measured, Seen]:
    """Measure from `begin` on, as `watched` does, and audit what is there afterwards."""
    measured, seen = watched(scene, begin)
    found = audit(scene.ground, scene.town, scene.contender)
    measured.bound, measured.events, measured.devices = found.bound, found.events, found.devices
    measured.wrong[:0] = found.wrong
    return measured, seen


def watched(scene: Scene, begin: Callable[[], None]) -> tuple[Measured, Seen]:
    """Measure from `begin` on, until all pods that wait are bound and told of, or nothing happens any more."""
    ground, contender = scene.ground, scene.contender
    waiting = scene.town.pods if scene.waiting is None else scene.waiting
    news, known = time.monotonic(), None

    def heard(progress: Progress) -> None:
        nonlocal news, known
        if progress != known:
            news, known = time.monotonic(), progress
        scene.tell(f"{progress.binds} of {waiting} bound, {progress.events} events")

    observation = Observation(ground.plane, binds=waiting, events=waiting if contender.events else 0, tell=heard)
    try:
        began = now()
        calls = requests(ground.plane.kube)
        meters = {name: Meter(pid) for name, pid in ground.plane.pids.items()}
        begin()
        while not observation.wait(1.0) and time.monotonic() - news < _QUIET:
            pass
        costs = {contender.name: contender.cost()} | {name: meter.read() for name, meter in meters.items()}
        calls = requests(ground.plane.kube) - calls
        seen = observation.end()
    finally:
        observation.stop()
    first, last = min(seen.bound.values(), default=0.0), max(seen.bound.values(), default=0.0)
    measured = Measured(
        cell=scene.cell,
        repetition=scene.repetition,
        began=began,
        to_last_bind=last - first,
        to_last_event=max(seen.events.values()) - first if contender.events and seen.events else None,
        bound=len(seen.bound),
        events=len(seen.events),
        each_tenth=_by_tenths(seen, first),
        calls=dict(sorted(calls.items())),
        costs=costs,
        wrong=[f"{seen.repeated} events were told twice"] if seen.repeated else [],
    )
    return measured, seen


def _by_tenths(seen: Seen, first: float) -> list[int]:
    """Binds in each tenth of a second from the first on."""
    tenths = [int((at - first) / _STEP) for at in seen.bound.values()]
    counts = [0] * (max(tenths, default=-1) + 1)
    for tenth in tenths:
        counts[tenth] += 1
    return counts
