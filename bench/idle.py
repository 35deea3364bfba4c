"""Idleness: what our process costs while there is nothing to place, alone or beside what others do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench.contenders.ours import Ours
from bench.costs import Meter
from bench.plant import plant
from bench.results import Measured, now
from bench.town import Town
from gpu_scheduler import names
from tests.integration.counting import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.company import Company
    from bench.plant import Plant
    from bench.results import Cell

_SETTLES: Final = 2.0
"""Seconds after the election in which what it did for the start comes to an end."""
_SILENT: Final = 2.0
"""Seconds without any word of what goes on, after which it is not what was measured."""


def measure(
    cell: Cell,
    repetition: int,
    tell: Callable[[str], None],
    *,
    window: float,
    beside: Callable[[Plant, int, float], Company] | None = None,
) -> Measured:
    """Measure our leader once for so many seconds, on the cell's nodes; `beside` makes what goes on meanwhile."""
    town, contender = Town(cell.nodes, 0), Ours()
    with plant() as ground:
        tell(f"making {town.nodes} nodes")
        ground.settle(town)
        company = None if beside is None else beside(ground, town.nodes, _SETTLES + window)
        try:
            contender.lead(ground, town)
            if company is not None:
                company.process.wait_ready()
                company.process.go()
                time.sleep(company.warm_up)
            time.sleep(_SETTLES)
            tell(f"looking on for {window:.0f} s")
            measured = _looked_on(cell, repetition, ground, contender, window)
            measured.wrong.extend(_faults(contender, company))
        finally:
            if company is not None:
                company.process.stop()
            contender.stop()
    return measured


def _looked_on(cell: Cell, repetition: int, ground: Plant, contender: Ours, window: float) -> Measured:
    began, pids = now(), {contender.name: contender.command.process.pid, **ground.plane.pids}
    calls = requests(ground.plane.kube)
    meters = {name: Meter(pid) for name, pid in pids.items()}
    time.sleep(window)
    costs = {name: meter.read() for name, meter in meters.items()}
    calls = requests(ground.plane.kube) - calls
    return Measured(
        cell=cell,
        repetition=repetition,
        began=began,
        calls=dict(sorted(calls.items())),
        costs=costs,
        window=window,
    )


def _faults(contender: Ours, company: Company | None) -> list[str]:
    """What was not as it must be, a sentence each: it leads, and has heard of what went on."""
    wrong = [] if contender.command.leads() else ["it does not lead"]
    if company is not None:
        silence = contender.command.metric(f'{names.METRIC_WATCH_SILENCE}{{resource="{company.watch}"}}')
        if silence > _SILENT:
            wrong.append(f"it has heard nothing of {company.watch} for {silence:.1f} s")
        wrong.extend(company.ended())
    return wrong
