"""W1: a backlog of pods whose maps name a GPU each; the contender finds it there and places it as fast as it can.

W3 is a backlog too, of pods that leave their GPUs to a strategy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.measuring import Scene, observed
from bench.stock import stocked
from bench.town import Town

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from bench.contenders.contender import Contender
    from bench.fleet import Fleet
    from bench.plant import Plant
    from bench.results import Cell, Measured
    from bench.town import Object, Settlement


def measure(cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure one cell once, on a control plane of its own; `tell` hears how far it is."""
    town = Town(cell.nodes, cell.pods)
    what = town, contender.scheduler, contender.pinned
    pods = town.pod_requests(contender.scheduler, pinned=contender.pinned)
    return _found_there(cell, contender, repetition, tell, _Backlog(what, town, pods))


def fill(fleet: Fleet, cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure likewise how a fleet is filled; who tells no devices counts limits, and is asked by these."""
    what = fleet, contender.scheduler, contender.devices
    pods = fleet.pod_requests(contender.scheduler, limits=not contender.devices)
    return _found_there(cell, contender, repetition, tell, _Backlog(what, fleet, pods))


@dataclass(frozen=True, slots=True)
class _Backlog:
    """What is there when the clock starts; two that are equal in `what` are the same."""

    what: Hashable
    town: Settlement
    pods: Iterable[tuple[str, Object]]

    def make(self, ground: Plant) -> None:
        ground.settle(self.town)
        ground.make(self.pods)


def _found_there(
    cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None], found: _Backlog
) -> Measured:
    tell(f"making {cell.nodes} nodes and {cell.pods} pods")
    with stocked(found.what, found.make) as ground:
        try:
            contender.prepare(ground, found.town)
            return observed(Scene(cell, repetition, ground, found.town, contender, tell), contender.go)[0]
        finally:
            contender.stop()
