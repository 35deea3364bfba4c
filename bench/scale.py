"""Scale: pods wait, or arrive, beside 50,000 bound pods in a real API server."""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.arrivals import add_delays
from bench.cluster_objects import MappedPods
from bench.cold_start import bind_all
from bench.contenders.ours import ColdStart, GpuScheduler
from bench.measurement import Run, measure_and_audit
from bench.pod_stream import faults, stream
from bench.snapshots import from_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.results import Cell, Measured

BOUND: Final = 50_000
"""Pods that are bound before the measurement."""
_TIMEOUT: Final = 600.0


class Apart(GpuScheduler):
    """Ours alone on the last processor; API server and etcd have the others."""

    def prepare(self, cluster: ClusterUnderTest, objects: ClusterObjects) -> None:
        """See Contender."""
        super().prepare(cluster, objects)
        *others, last = sorted(os.sched_getaffinity(0))
        _pin(self.command.process.pid, {last})
        for pid in cluster.plane.pids.values():
            _pin(pid, set(others) or {last})


def pending(cell: Cell, make: Callable[[], GpuScheduler], repetition: int, log: Callable[[str], None]) -> Measured:
    """Measure waiting pods, of a synced standby that begins to lead or of a cold start."""
    objects, contender = MappedPods(cell.nodes, BOUND + cell.pods), make()
    with _cluster(objects, log) as cluster:
        cluster.make(islice(objects.pod_requests(contender.scheduler), BOUND, None))
        run = Run(cell, repetition, cluster, objects, contender, log, waiting=cell.pods)
        try:
            contender.prepare(cluster, objects)
            measured, seen = measure_and_audit(run, contender.go)
        finally:
            contender.stop()
    if isinstance(contender, ColdStart) and seen.bound:
        measured.first_bind = min(seen.bound.values()) - contender.began
    return measured


def arrivals(cell: Cell, repetition: int, log: Callable[[str], None], *, rate: float) -> Measured:
    """Measure pods that arrive, `rate` of them a second."""
    objects, contender = MappedPods(cell.nodes, BOUND + cell.pods), GpuScheduler()
    with _cluster(objects, log) as cluster:
        arriving = stream(cluster, islice(objects.pod_requests(contender.scheduler), BOUND, None), rate)
        run = Run(cell, repetition, cluster, objects, contender, log, waiting=cell.pods)
        try:
            contender.lead(cluster, objects)
            arriving.wait_ready()
            measured, seen = measure_and_audit(run, arriving.go)
            streamed = arriving.wait(_TIMEOUT)
        finally:
            arriving.stop()
            contender.stop()
    add_delays(measured, seen, streamed)
    measured.wrong.extend(faults(streamed, rate))
    return measured


@contextmanager
def _cluster(objects: MappedPods, log: Callable[[str], None]) -> Iterator[ClusterUnderTest]:
    """Start a control plane with the nodes of `objects`, and its first pods bound."""

    def make(cluster: ClusterUnderTest) -> None:
        log(f"making {objects.nodes} nodes and {BOUND} bound pods")
        cluster.settle(objects)
        cluster.make(islice(objects.pod_requests(GpuScheduler.scheduler), BOUND))
        bind_all(cluster, objects)

    with from_snapshot(("bound", objects), make) as cluster:
        yield cluster


def _pin(pid: int, processors: set[int]) -> None:
    """Allow all threads of a process, and those that they start, these processors alone."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), processors)
