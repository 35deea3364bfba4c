"""A pod's cost in the whole scheduling loop: the same, however many nodes, pods and waiting pods there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import Owner
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from unit_tests.core.asking import asking, having
from unit_tests.core.build import bound, pod
from unit_tests.fakes import FakeAllocator, FakeBinder, FakeClaims, FakeEventRecorder, FakeRecorder
from unit_tests.steps import Cost, Name, counted, repeated, same
from unit_tests.virtual import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpu_scheduler.core.pods.pod import Pod

DEVICES = 16
TURNS = 20
NEVER = 1e9
"""Seconds."""
OLDEST = Owner("StatefulSet", "old0")


def named(given: Pod) -> Pod:
    """Return the pod with a uid whose comparisons count as lines."""
    return replace(given, ref=replace(given.ref, uid=Name(given.ref.uid)))


def known(number: int) -> Pod:
    """Return a running pod with one device; DEVICES such pods fill a node."""
    node, device = f"node{number // DEVICES}", number % DEVICES
    given = pod(f"old{number}-0", f"0={node}:{device}\n", owner=Owner("StatefulSet", f"old{number}"))
    return named(replace(given, node=node, phase="Running"))


def mapped(number: int, last: str) -> Pod:
    """Return a pod with a map that names the first GPU of the last node, which is free in every cluster."""
    return pod(f"new{number}-0", f"0={last}:0\n", owner=Owner("StatefulSet", f"new{number}"))


def counting(number: int, _last: str) -> Pod:
    """Return a pod with a count in place of a map."""
    return asking(1, f"new{number}")


WAITING: dict[str, Callable[[int], Pod]] = {
    "NodeNotFound": lambda number: pod(f"lost{number}-0", "0=nowhere:0\n"),
    "GpuHeld": lambda number: pod(f"late{number}-0", "0=node0:0\n", owner=Owner("StatefulSet", f"late{number}")),
    "GpuNotFound": lambda number: asking(DEVICES + 1, f"wide{number}"),
    "NoFreeIndex": lambda number: pod(f"old0-x{number}", "0=node0:0\n", generate_name="old0-", owner=OLDEST),
}
"""Pods that cannot be placed, by the reason that the scheduler reports."""


class Cluster:
    """A scheduling loop with so many nodes, and with pods that leave at least the last node free."""

    def __init__(self, nodes: int) -> None:
        self.loop = VirtualLoop()
        self.binder, self.event_recorder, recorder = FakeBinder(), FakeEventRecorder(), FakeRecorder()
        ports = Ports(self.binder, FakeClaims(), FakeAllocator(), self.event_recorder, recorder, recorder, recorder)
        # Without periodic work: it is no part of a pod's cost.
        timings = Timings(interval=NEVER, audit=NEVER, resync=NEVER)
        self.scheduler = Scheduler(Policy(), ports, timings=timings, clock=self.loop.time)
        self.nodes = nodes
        self.last = f"node{nodes - 1}"
        self.running = self.loop.create_task(self.scheduler.run())

    def begin(self, pods: Iterable[Pod]) -> None:
        for number in range(self.nodes):
            self.scheduler.cache.nodes.applied(having(Name(f"node{number}"), *(40960,) * DEVICES))
        for each in pods:
            self.scheduler.pods.applied(named(each))
        self.settle()

    def settle(self) -> None:
        self.loop.pass_by(0.001)

    def run_pod(self, given: Pod) -> None:
        """Apply a pod, its bind and its deletion, as the watch shows them."""
        self.scheduler.pods.applied(given)
        self.settle()
        (bind,) = self.binder.sent
        self.binder.sent.clear()
        placed = bound(given, bind.placement)
        self.scheduler.pods.applied(placed)
        self.settle()
        self.scheduler.pods.forgotten(placed)
        self.settle()

    def close(self) -> None:
        self.running.cancel()
        self.loop.run_until_complete(asyncio.gather(self.running, return_exceptions=True))
        self.loop.close()


@contextmanager
def cluster(nodes: int, pods: int, waiting: int = 0) -> Iterator[Cluster]:
    """Yield a cluster with so many running pods, and so many waiting pods for each reason of WAITING."""
    given = chain(map(known, range(pods)), (wait(number) for number in range(waiting) for wait in WAITING.values()))
    made = Cluster(nodes)
    try:
        repeated(lambda: made.begin(given))
        reported = Counter(notice.note.partition(":")[0] for _, notice in made.event_recorder.recorded)
        assert reported == dict.fromkeys(WAITING, waiting) if waiting else not reported
        yield made
    finally:
        made.close()


def costs(made: Cluster, kind: Callable[[int, str], Pod]) -> list[Cost]:
    """Return the costs of TURNS pods, one after the other, without the first, which may filter every node."""
    made.run_pod(named(kind(TURNS, made.last)))
    given = [named(kind(number, made.last)) for number in range(TURNS)]
    return [counted(partial(made.run_pod, each)) for each in given]


GROWING = {
    "nodes": ((10, 100), (5_000, 100)),
    "running pods": ((1_000, 100), (1_000, 10_000)),
    "waiting pods": ((10, 100, 25), (10, 100, 2_500)),
}


@pytest.mark.parametrize(("small", "large"), GROWING.values(), ids=GROWING)
def test_a_pod_costs_the_same(small: tuple[int, ...], large: tuple[int, ...]) -> None:
    """From its first watch event to its last, with decision, bind and confirmation."""
    with cluster(*small) as few:
        little = [costs(few, kind) for kind in (mapped, counting)]
    with cluster(*large) as many:
        assert same(costs(many, mapped), little[0])
        assert same(costs(many, counting), little[1])
