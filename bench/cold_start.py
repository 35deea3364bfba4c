"""W6: a cold start of our scheduler on a cluster with many nodes and bound pods, and one pod that waits."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods
from bench.contenders.limit import Limit
from bench.measurement import Run, measure_and_audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.contenders.ours import ColdStart
    from bench.results import Cell, Measured


def measure(cell: Cell, contender: ColdStart, repetition: int, log: Callable[[str], None]) -> Measured:
    """Measure one start on a cluster with the cell's bound pods: costs of the start, and memory after it."""
    objects = MappedPods(cell.nodes, cell.pods + 1)
    with start_cluster() as cluster:
        log(f"making {objects.nodes} nodes and {cell.pods} bound pods")
        cluster.settle(objects)
        pods = objects.pod_requests(contender.scheduler)
        cluster.make(islice(pods, cell.pods))
        bind_all(cluster, objects)
        cluster.make(pods)
        try:
            contender.prepare(cluster, objects)
            run = Run(cell, repetition, cluster, objects, contender, log, waiting=1)
            measured, seen = measure_and_audit(run, contender.go)
        finally:
            contender.stop()
    measured.first_bind = min(seen.bound.values()) - contender.began if seen.bound else None
    return measured


def bind_all(cluster: ClusterUnderTest, objects: MappedPods) -> None:
    """Bind all pods of the cluster and write their events, as our scheduler would."""
    limit = Limit("curl", 32, events=True)
    try:
        limit.prepare(cluster, objects)
        limit.go()
        # The limit returns its cost after its last request.
        limit.cost()
    finally:
        limit.stop()
