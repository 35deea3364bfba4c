"""W2 and W4: pods arrive one by one, at a pace that does not wait for anybody; in W4 many that fit nowhere are there.

They come at a share of the limit, so that nobody is measured where the API server has nothing left to give.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Final

from bench.contenders.ours import Ours
from bench.measuring import Scene, observed
from bench.observer import EVENTS
from bench.plant import plant
from bench.streaming import faults, refusals, stream
from bench.town import Town, spaces
from tests.integration import shapes
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.plant import Plant
    from bench.results import Cell, Measured
    from bench.town import Object

_PATIENCE: Final = 600.0


def measure(  # noqa: PLR0913 - what a stream is, with its defaults
    cell: Cell,
    repetition: int,
    tell: Callable[[str], None],
    *,
    rate: float,
    crowd: int = 0,
    flood: bool = False,
    make: Callable[[], Ours] = Ours,
) -> Measured:
    """Measure one of ours once at so many pods a second, beside so many that fit nowhere.

    A `flood` is more than may be sustained: it may come as late as it likes, which only makes our rate less.
    """
    town, contender = Town(cell.nodes, cell.pods), make()
    with plant() as ground:
        tell(f"making {town.nodes} nodes and {crowd} pods that fit nowhere")
        ground.settle(town)
        names = spaces("crowd", crowd)
        ground.make_namespaces(names)
        ground.make(_crowd(crowd, names))
        arriving = stream(ground, town.pod_requests(contender.scheduler), rate)
        try:
            contender.lead(ground, town)
            tell(f"waiting until {crowd} pods were told why they wait")
            eventually("everybody was told", lambda: _told(ground) >= crowd, seconds=_PATIENCE, pause=1)
            arriving.wait_ready()
            measured, seen = observed(Scene(cell, repetition, ground, town, contender, tell), arriving.go)
            streamed = arriving.wait(_PATIENCE)
        finally:
            arriving.stop()
            contender.stop()
    measured.latencies = [seen.bound[key] - at for key, at in streamed.answered.items() if key in seen.bound]
    measured.event_delays = [at - seen.bound[key] for key, at in seen.events.items() if key in seen.bound]
    measured.wrong.extend(refusals(streamed) if flood else faults(streamed, rate))
    return measured


def _crowd(count: int, names: tuple[str, ...]) -> Iterator[tuple[str, Object]]:
    """Pods whose maps name a node that is not there."""
    for number in range(count):
        body = shapes.pod(f"crowd-{number}", f"{number}=nowhere:0\n", shapes.literal("0"))
        yield f"/api/v1/namespaces/{names[number % len(names)]}/pods", body


def _told(ground: Plant) -> int:
    """How many events there are: each of the crowd gets one."""
    status, listed = ground.plane.kube.call("GET", f"{EVENTS}?limit=1")
    assert status == http.client.OK, listed
    return int(listed["metadata"].get("remainingItemCount", 0)) + len(listed["items"])
