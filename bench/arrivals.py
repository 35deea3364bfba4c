"""W2 and W4: pods arrive one by one, at a pace that does not wait for anybody; in W4 many that fit nowhere are there.

They come at a share of the limit, so that nobody is measured where the API server has nothing left to give.
"""

from __future__ import annotations

import http.client
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from bench.contenders.orders import Request
from bench.contenders.ours import Ours
from bench.measuring import Scene, observed
from bench.observer import EVENTS
from bench.plant import plant
from bench.prompted import Prompted
from bench.streamer import Arrival, Pace, Streamed
from bench.town import NAMESPACE_PODS, Town
from tests.integration import shapes
from tests.integration.plant import ADMIN_TOKEN
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.plant import Plant
    from bench.results import Cell, Measured
    from bench.town import Object

_PATIENCE: Final = 600.0
_LATE: Final = 0.1
"""Seconds by which the stream may be late before what it measured is that of another pace."""


def measure(cell: Cell, repetition: int, tell: Callable[[str], None], *, rate: float, crowd: int = 0) -> Measured:
    """Measure ours once at so many pods a second, beside so many that fit nowhere."""
    town, contender = Town(cell.nodes, cell.pods), Ours()
    with plant() as ground:
        tell(f"making {town.nodes} nodes and {crowd} pods that fit nowhere")
        ground.settle(town)
        spaces = tuple(f"crowd-{number}" for number in range(-(-crowd // NAMESPACE_PODS)))
        ground.make(("/api/v1/namespaces", {"metadata": {"name": name}}) for name in spaces)
        ground.make(_crowd(crowd, spaces))
        stream = _streamer(ground, town, contender.scheduler, rate)
        try:
            contender.prepare(ground, town)
            contender.go()
            eventually("it leads", contender.command.leads, seconds=30)
            tell(f"waiting until {crowd} pods were told why they wait")
            eventually("everybody was told", lambda: _told(ground) >= crowd, seconds=_PATIENCE, pause=1)
            stream.wait_ready()
            measured, seen = observed(Scene(cell, repetition, ground, town, contender, tell), stream.go)
            streamed = stream.wait(_PATIENCE)
        finally:
            stream.stop()
            contender.stop()
    measured.latencies = [seen.bound[key] - at for key, at in streamed.answered.items() if key in seen.bound]
    measured.event_delays = [at - seen.bound[key] for key, at in seen.events.items() if key in seen.bound]
    if streamed.late > _LATE:
        measured.wrong.append(f"the stream was late by {streamed.late:.2f} s: it was not {rate:.0f} pods a second")
    measured.wrong.extend(f"{times} pods were refused with HTTP {code}" for code, times in streamed.refused.items())
    return measured


def _streamer(ground: Plant, town: Town, scheduler: str, rate: float) -> Prompted[Streamed]:
    path: Path = ground.folder / "arrivals.jsonl"
    pace = Pace(ground.header(ADMIN_TOKEN, 1), rate)
    arrivals = (
        Arrival(f"{town.namespace(member)}/{member.name}", Request(path, msgspec.json.encode(body).decode()))
        for member, (path, body) in zip(town.members(), town.pod_requests(scheduler), strict=True)
    )
    path.write_bytes(msgspec.json.Encoder().encode_lines([pace, *arrivals]))
    return Prompted(Streamed, [sys.executable, "-m", "bench.streamer", str(path)], ground.folder / "streamer.log")


def _crowd(count: int, spaces: tuple[str, ...]) -> Iterator[tuple[str, Object]]:
    """Pods whose maps name a node that is not there."""
    for number in range(count):
        body = shapes.pod(f"crowd-{number}", f"{number}=nowhere:0\n", shapes.literal("0"))
        yield f"/api/v1/namespaces/{spaces[number % len(spaces)]}/pods", body


def _told(ground: Plant) -> int:
    """How many events there are: each of the crowd gets one."""
    status, listed = ground.plane.kube.call("GET", f"{EVENTS}?limit=1")
    assert status == http.client.OK, listed
    return int(listed["metadata"].get("remainingItemCount", 0)) + len(listed["items"])
