"""Measures one cluster size in a process of its own: `python -m bench.growth_process`, started by bench.growth.

Standard input holds nodes, ResourceSlices, pods and then ResourceClaims as lines of a watch, with an empty line after
each kind. They take the same way as in the scheduler: reflector, translation, the loop's event handler, ledger. The
measured decisions use that ledger.
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
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.objects.pods import read_pod
from gpu_scheduler.kube.objects.resource_slices import read_slice
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
"""Lines of the map whose pods take any line."""
LONGEST: Final = -(-LINES // GPUS_PER_NODE)
"""The greatest number of nodes in that map."""
FREE: Final = 2
"""Nodes that stay free for the measured pods."""
BATCH: Final = FREE * GPUS_PER_NODE
BATCHES: Final = 61
_CHURN_PODS: Final = 4000
"""How many of the pods of the churn exist at the same time."""
_REMAINING_PODS: Final = 50
"""How many of them remain: the ledger keeps nothing of a workload without pods."""
_FEW: Final = 1000
"""With fewer objects their memory is too small beside that of the process to be measured."""


class SizeRequest(msgspec.Struct, frozen=True):
    """The first line of the input: the size, and how many pods are placed and removed before the measurement."""

    nodes: int
    full: int
    """The number of full nodes, from the first one on."""
    pods: int
    gone: int


class _StaticList(ApiClient):
    """A fake API server: the list is empty, and the watch returns standard input up to an empty line."""

    def __init__(self) -> None:
        self.reported = asyncio.Event()

    async def call(self, *_: Any, **__: Any) -> ApiResponse:
        """Return an empty list."""
        return ApiResponse(200, b'{"metadata":{"resourceVersion":"1"}}')

    @asynccontextmanager
    async def stream(self, *_: Any, **__: Any) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Open the watch."""
        yield ApiResponse(200, b""), self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        for line in iter(sys.stdin.buffer.readline, b"\n"):
            yield line
        self.reported.set()
        await asyncio.Event().wait()


async def _apply_watch(resource: Resource[Any], observer: EventHandler[Any]) -> Reflector[Any]:
    """Let a reflector apply the input. The returned reflector keeps its objects in memory."""
    list_client = _StaticList()
    reflector = Reflector(list_client, resource, observer)
    running = asyncio.create_task(reflector.run())
    await list_client.reported.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return reflector


async def _grown(asked: SizeRequest) -> Growth:
    scheduler, _ = scheduler_of(_StaticList())
    # The scheduler does this at its start.
    gc.collect()
    gc.freeze()
    before = _memory()
    nodes = await _apply_watch(Resource("nodes", "/nodes", None, read_node, by_name), scheduler.cache.nodes)
    slices = await _apply_watch(Resource("slices", "/slices", None, read_slice, by_name), scheduler.cache.device_slices)
    between, began = _memory(), time.process_time()
    pods = await _apply_watch(Resource("pods", "/pods", None, read_pod, by_uid), scheduler.pods)
    taken_in, after = time.process_time() - began, _memory()
    assert len(scheduler.pod_states) == asked.pods, (len(scheduler.pod_states), asked)
    resource = Resource("device_claims", "/claims", None, read_allocated_claim, by_uid)
    claims = await _apply_watch(resource, scheduler.cache.device_claims)
    held, with_claims = sum(1 for _ in scheduler.ledger.of_claims), _memory()
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
        claim_memory=(with_claims - after) / held if held >= _FEW else None,
    )
    # The reflectors keep their objects until here, for the measurement of memory.
    del nodes, slices, pods, claims
    return found


class _Decisions:
    """Measures decisions on one cluster, including the ledger's update. Removes the measured pods afterwards."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._cluster = scheduler.cache.cluster

    def spent(self, pods: Sequence[Pod]) -> float:
        """Return the CPU seconds for each pod."""
        began = time.process_time()
        for pod in pods:
            self._place(pod)
        seconds = time.process_time() - began
        for pod in pods:
            self._cluster.ledger.forget(pod.ref.uid)
        return seconds / len(pods)

    def typical(self, pods: Sequence[Pod]) -> float:
        """Return the median microseconds of CPU of many batches, without the first one.

        The garbage collector is off: its cost depends on when it runs, and is measured separately.
        """
        gc.disable()
        times = [self.spent(pods) for _ in range(BATCHES)]
        gc.enable()
        return median(times[1:]) * 1e6

    def line(self, gone: int, nodes: int) -> float:
        """Return the microseconds for a pod that takes any line of the long map, after `gone` pods of its workload."""
        pods, live, chance = _replicas(nodes), [], random.Random(1)  # noqa: S311 - a random choice, no secret
        for pod in islice(pods, gone):
            self._place(pod)
            live.append(pod.ref.uid)
            if len(live) > _CHURN_PODS:
                self._end(live, chance)
        while len(live) > _REMAINING_PODS:
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
    """Return the pods of a workload whose map names the GPUs of the free nodes."""
    places = [(node_name(nodes - 1 - number // GPUS_PER_NODE), number % GPUS_PER_NODE) for number in range(BATCH)]
    text = "".join(f"{number}={node}:{device}\n" for number, (node, device) in enumerate(places))
    return [
        _read(shapes.pod(f"pinned-{number}", text, shapes.literal(str(device)), owner=("StatefulSet", "pinned")))
        for number, (_, device) in enumerate(places)
    ]


def _counting() -> list[Pod]:
    """Return pods that leave node and GPU to the strategy."""
    asked = {COUNT: "1"}
    return [_read(shapes.pod(f"any-{number}", None, shapes.reading(), annotations=asked)) for number in range(BATCH)]


def _replicas(nodes: int) -> Iterator[Pod]:
    """Yield pods of one workload without end. Each takes any line of a map of LINES lines on `nodes` nodes."""
    lines = (f"{number}={alias(number // GPUS_PER_NODE % nodes)}:{number % GPUS_PER_NODE}\n" for number in range(LINES))
    one = _read(shapes.replica("line", "5d9f7c", "bcdfg", "".join(lines)))
    for number in count():
        yield replace(one, ref=replace(one.ref, uid=f"line-{number}"))


def _read(body: Object) -> Pod:
    body["metadata"] |= {"namespace": "measured", "uid": body["metadata"]["name"]}
    return read_pod(msgspec.json.encode(body))[1]


def _memory() -> float:
    """Return the resident memory of this process, in bytes."""
    gc.collect()
    return Meter(os.getpid()).read().rss * 2**20


def alias(number: int) -> str:
    """Return the name of a node in the map, from the last node backwards: with full names the map would be too long."""
    return f"n{number}"


def main() -> None:
    """Measure the size that standard input describes, and print the result as JSON."""
    set_up_logging("WARNING")
    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=SizeRequest)
    sys.stdout.write(msgspec.json.encode(asyncio.run(_grown(asked))).decode() + "\n")


if __name__ == "__main__":
    main()
