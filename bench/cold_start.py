"""W6: our process is started beside many nodes and pods that are bound already, and one pod waits for it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bench.audit import audit
from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods
from bench.contenders.limit import Limit
from bench.measurement import Run, measure_until_done

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.contenders.ours import Cold
    from bench.results import Cell, Measured


def measure(cell: Cell, contender: Cold, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure ours once, beside the cell's pods; what it costs is what the start costs, and its memory then."""
    objects = MappedPods(cell.nodes, cell.pods + 1)
    with start_cluster() as cluster:
        tell(f"making {objects.nodes} nodes and {cell.pods} bound pods")
        cluster.settle(objects)
        pods = objects.pod_requests(contender.scheduler)
        cluster.make(islice(pods, cell.pods))
        _bind(cluster, objects)
        cluster.make(pods)
        try:
            contender.prepare(cluster, objects)
            run = Run(cell, repetition, cluster, objects, contender, tell, waiting=1)
            measured, seen = measure_until_done(run, contender.go)
        finally:
            contender.stop()
        found = audit(cluster, objects, contender)
    measured.first_bind = min(seen.bound.values()) - contender.began if seen.bound else None
    measured.devices = found.devices
    measured.wrong.extend(found.wrong)
    return measured


def _bind(cluster: ClusterUnderTest, objects: MappedPods) -> None:
    """Bind what is there, and tell of it, as our scheduler would."""
    limit = Limit("curl", 32, events=True)
    try:
        limit.prepare(cluster, objects)
        limit.go()
        # It has sent everything by then.
        limit.cost()
    finally:
        limit.stop()
