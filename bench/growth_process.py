"""One cluster's costs, measured in a process of its own: `python -m bench.growth_process`, fed by bench.growth.

Nodes and then pods come in on standard input as lines of a watch, a blank line after each, and go the way that they go
in the scheduler: reflector, translation, loop's feed, ledger. What is decided afterwards is decided by that ledger.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count, islice
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.cluster_objects import GPUS_PER_NODE, node_name
from bench.contenders.recorded_requests import scheduler_of
from bench.costs import Meter
from bench.results import Growth
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.kube.http.client import ApiClient, ApiResponse
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pods import read_pod
from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.kube.resource import Resource
from gpu_scheduler.names import COUNT
from gpu_scheduler.process.logs import set_up_logging
from gpu_scheduler.process.reflectors import by_name, by_uid
from tests import objects as shapes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from bench.cluster_objects import Object
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.resource import EventHandler
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler

LINES: Final = 5000
"""Of the map whose pods take any line."""
LONGEST: Final = -(-LINES // GPUS_PER_NODE)
"""Nodes that it names at most."""
FREE: Final = 2
"""Nodes that are left free, for the pods that are measured."""
BATCH: Final = FREE * GPUS_PER_NODE
BATCHES: Final = 61
_LIVE: Final = 4000
"""How many of the pods that come and go are there at once."""
_LEFT: Final = 50
"""How many of them stay: of a workload without pods nothing is remembered."""
_FEW: Final = 1000
"""Below so many objects their memory is lost in what the process takes anyway."""


class Asked(msgspec.Struct, frozen=True):
    """The first line: what follows, and how many pods come and go before a line of the long map is measured."""

    nodes: int
    full: int
    """So many of them, from the first on, are full."""
    pods: int
    gone: int


class _Feed(ApiClient):
    """An API server that lists nothing and then tells what stands on standard input, up to a blank line."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    async def call(self, *_: Any, **__: Any) -> ApiResponse:
        """Give an empty list."""
        return ApiResponse(200, b'{"metadata":{"resourceVersion":"1"}}')

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Open the watch."""
        yield ApiResponse(200, b""), self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        for line in iter(sys.stdin.buffer.readline, b"\n"):
            yield line
        self.told.set()
        await asyncio.Event().wait()


async def _take_in(resource: Resource[Any], observer: EventHandler[Any]) -> Reflector[Any]:
    """Have a reflector take in all that comes; as long as it is kept, so is what it remembers."""
    feed = _Feed()
    reflector = Reflector(feed, resource, observer)
    running = asyncio.create_task(reflector.run())
    await feed.told.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return reflector


async def _grown(asked: Asked) -> Growth:
    scheduler, _ = scheduler_of(_Feed())
    # As the command does when it starts.
    gc.collect()
    gc.freeze()
    before = _memory()
    nodes = await _take_in(Resource("nodes", "/nodes", None, read_node, by_name), scheduler.world.nodes)
    between, began = _memory(), time.process_time()
    pods = await _take_in(Resource("pods", "/pods", None, read_pod, by_uid), scheduler.pods)
    taken_in, after = time.process_time() - began, _memory()
    assert len(scheduler.tracked) == asked.pods, (len(scheduler.tracked), asked)
    began = time.process_time()
    gc.collect()
    collected = time.process_time() - began
    decisions = _Decisions(scheduler)
    found = Growth(
        first=decisions.spent(_counting()[:1]) * 1e3,
        pinned=decisions.typical(_pinned(asked.nodes)),
        strategy=decisions.typical(_counting()),
        line=decisions.line(asked.gone, min(LONGEST, asked.nodes - asked.full)),
        event=taken_in / asked.pods * 1e6,
        collection=collected * 1e3,
        node_memory=(between - before) / asked.nodes if asked.nodes >= _FEW else None,
        pod_memory=(after - between) / asked.pods if asked.pods >= _FEW else None,
    )
    # Until here they remember what they read.
    del nodes, pods
    return found


class _Decisions:
    """What decisions cost on one cluster, with their booking; afterwards the pods are gone again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._cluster = scheduler.world.cluster

    def spent(self, pods: Sequence[Pod]) -> float:
        """Seconds of CPU for each pod."""
        began = time.process_time()
        for pod in pods:
            self._place(pod)
        seconds = time.process_time() - began
        for pod in pods:
            self._cluster.ledger.forget(pod.ref.uid)
        return seconds / len(pods)

    def typical(self, pods: Sequence[Pod]) -> float:
        """Microseconds of CPU: of many times the median, the first left out.

        The collector is held back, as what it costs depends on when it comes; that is told by itself.
        """
        gc.disable()
        times = [self.spent(pods) for _ in range(BATCHES)]
        gc.enable()
        return median(times[1:]) * 1e6

    def line(self, gone: int, nodes: int) -> float:
        """Microseconds for a pod that takes any line of the long map, after so many of its workload."""
        pods, live, chance = _replicas(nodes), [], random.Random(1)  # noqa: S311 - a lot, no secret
        for pod in islice(pods, gone):
            self._place(pod)
            live.append(pod.ref.uid)
            if len(live) > _LIVE:
                self._end(live, chance)
        while len(live) > _LEFT:
            self._end(live, chance)
        return self.typical(list(islice(pods, BATCH)))

    def _place(self, pod: Pod) -> None:
        decision = decide(pod, self._cluster)
        assert isinstance(decision, Bind), decision
        self._cluster.ledger.assume(pod, decision.placement)

    def _end(self, live: list[str], chance: random.Random) -> None:
        place = chance.randrange(len(live))
        live[place], live[-1] = live[-1], live[place]
        self._cluster.ledger.forget(live.pop())


def _pinned(nodes: int) -> list[Pod]:
    """A workload whose map names the GPUs of the free nodes."""
    places = [(node_name(nodes - 1 - number // GPUS_PER_NODE), number % GPUS_PER_NODE) for number in range(BATCH)]
    text = "".join(f"{number}={node}:{card}\n" for number, (node, card) in enumerate(places))
    return [
        _read(shapes.pod(f"pinned-{number}", text, shapes.literal(str(card)), owner=("StatefulSet", "pinned")))
        for number, (_, card) in enumerate(places)
    ]


def _counting() -> list[Pod]:
    """Pods that leave node and GPU to the strategy."""
    asked = {COUNT: "1"}
    return [_read(shapes.pod(f"any-{number}", None, shapes.reading(), annotations=asked)) for number in range(BATCH)]


def _replicas(nodes: int) -> Iterator[Pod]:
    """Without end: pods of one workload, each of which takes any line of a map of LINES, which names so many nodes."""
    lines = (f"{number}={alias(number // GPUS_PER_NODE % nodes)}:{number % GPUS_PER_NODE}\n" for number in range(LINES))
    one = _read(shapes.replica("line", "5d9f7c", "bcdfg", "".join(lines)))
    for number in count():
        yield replace(one, ref=replace(one.ref, uid=f"line-{number}"))


def _read(body: Object) -> Pod:
    body["metadata"] |= {"namespace": "measured", "uid": body["metadata"]["name"]}
    return read_pod(msgspec.json.encode(body))[1]


def _memory() -> float:
    """Bytes that are resident."""
    gc.collect()
    return Meter(os.getpid()).read().rss * 2**20


def alias(number: int) -> str:
    """What the map calls the last node, the one before it, and so on: with whole names it would be too long."""
    return f"n{number}"


def main() -> None:
    """Measure what is asked for."""
    set_up_logging("WARNING")
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=Asked)
    sys.stdout.write(msgspec.json.encode(asyncio.run(_grown(asked))).decode() + "\n")


if __name__ == "__main__":
    main()
