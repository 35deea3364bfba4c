"""W1: a backlog of pods whose maps name a GPU each; the contender finds it there and places it as fast as it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measuring import Scene, observed
from bench.plant import plant
from bench.town import Town

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.contender import Contender
    from bench.results import Cell, Measured


def measure(cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure one cell once, on a control plane of its own; `tell` hears how far it is."""
    town = Town(cell.nodes, cell.pods)
    with plant() as ground:
        tell(f"making {town.nodes} nodes and {town.pods} pods")
        ground.settle(town)
        ground.make(town.pod_requests(contender.scheduler, pinned=contender.pinned))
        try:
            contender.prepare(ground, town)
            return observed(Scene(cell, repetition, ground, town, contender, tell), contender.go)[0]
        finally:
            contender.stop()
