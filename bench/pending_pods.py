"""W1: a backlog of pods whose maps name a GPU each; the contender finds it there and places it as fast as it can.

W3 is a backlog too, of pods that leave their GPUs to a strategy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.cluster_objects import MappedPods
from bench.measurement import Run, measure_and_audit
from bench.snapshots import from_snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects, Object
    from bench.contenders.contender import Contender
    from bench.counted_pods import CountedPods
    from bench.results import Cell, Measured


def measure(cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]) -> Measured:
    """Measure one cell once, on a control plane of its own; `tell` hears how far it is."""
    objects = MappedPods(cell.nodes, cell.pods)
    what = objects, contender.scheduler, contender.pinned
    pods = objects.pod_requests(contender.scheduler, pinned=contender.pinned)
    return _found_there(cell, contender, repetition, tell, _PendingPods(what, objects, pods))


def fill(
    counted: CountedPods, cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None]
) -> Measured:
    """Measure how a cluster of counted GPUs is filled; a contender that names no devices is audited by its limits."""
    what = counted, contender.scheduler, contender.devices
    pods = counted.pod_requests(contender.scheduler, limits=not contender.devices)
    return _found_there(cell, contender, repetition, tell, _PendingPods(what, counted, pods))


@dataclass(frozen=True, slots=True)
class _PendingPods:
    """What is there when the clock starts; two that are equal in `what` are the same."""

    what: Hashable
    objects: ClusterObjects
    pods: Iterable[tuple[str, Object]]

    def make(self, cluster: ClusterUnderTest) -> None:
        cluster.settle(self.objects)
        cluster.make(self.pods)


def _found_there(
    cell: Cell, contender: Contender, repetition: int, tell: Callable[[str], None], found: _PendingPods
) -> Measured:
    tell(f"making {cell.nodes} nodes and {cell.pods} pods")
    with from_snapshot(found.what, found.make) as cluster:
        try:
            contender.prepare(cluster, found.objects)
            return measure_and_audit(Run(cell, repetition, cluster, found.objects, contender, tell), contender.go)[0]
        finally:
            contender.stop()
