"""W6: our process is started beside many nodes and pods that are bound already, and one pod waits for it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bench.audit import audit
from bench.contenders.blasting import Limit
from bench.measuring import Scene, watched
from bench.plant import plant
from bench.town import Town

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.ours import Cold
    from bench.plant import Plant
    from bench.results import Cell, Measured


def measure(cell: Cell, contender: Cold, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure ours once, beside the cell's pods; what it costs is what the start costs, and its memory then."""
    town = Town(cell.nodes, cell.pods + 1)
    with plant() as ground:
        tell(f"making {town.nodes} nodes and {cell.pods} bound pods")
        ground.settle(town)
        pods = town.pod_requests(contender.scheduler)
        ground.make(islice(pods, cell.pods))
        _bind(ground, town)
        ground.make(pods)
        try:
            contender.prepare(ground, town)
            scene = Scene(cell, repetition, ground, town, contender, tell, waiting=1)
            measured, seen = watched(scene, contender.go)
        finally:
            contender.stop()
        found = audit(ground, town, contender)
    measured.first_bind = min(seen.bound.values()) - contender.began if seen.bound else None
    measured.devices = found.devices
    measured.wrong.extend(found.wrong)
    return measured


def _bind(ground: Plant, town: Town) -> None:
    """Bind what is there, and tell of it, as our scheduler would."""
    limit = Limit("curl", 32, events=True)
    try:
        limit.prepare(ground, town)
        limit.go()
        # It has sent everything by then.
        limit.cost()
    finally:
        limit.stop()
