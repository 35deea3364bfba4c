"""W1: a backlog of pods whose maps name a GPU each; the contender finds it there and places it as fast as it can.

W3 is a backlog too, of pods that leave their GPUs to a strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measuring import Scene, observed
from bench.plant import plant
from bench.town import Town

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bench.contenders.contender import Contender
    from bench.fleet import Fleet
    from bench.results import Cell, Measured
    from bench.town import Object


def measure(cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure one cell once, on a control plane of its own; `tell` hears how far it is."""
    town = Town(cell.nodes, cell.pods)
    with plant() as ground:
        scene = Scene(cell, repetition, ground, town, contender, tell)
        return _found_there(scene, town.pod_requests(contender.scheduler, pinned=contender.pinned))


def fill(fleet: Fleet, cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure likewise how a fleet is filled; who tells no devices counts limits, and is asked by these."""
    with plant() as ground:
        scene = Scene(cell, repetition, ground, fleet, contender, tell)
        return _found_there(scene, fleet.pod_requests(contender.scheduler, limits=not contender.devices))


def _found_there(scene: Scene, pods: Iterable[tuple[str, Object]]) -> Measured:
    ground, town, contender = scene.ground, scene.town, scene.contender
    scene.tell(f"making {town.nodes} nodes and {town.pods} pods")
    ground.settle(town)
    ground.make(pods)
    try:
        contender.prepare(ground, town)
        return observed(scene, contender.go)[0]
    finally:
        contender.stop()
