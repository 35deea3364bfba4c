"""W1: the contender places pending pods, whose maps name a GPU each, as fast as it can.

W3 places pending pods too, but a strategy chooses their GPUs.
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
    from bench.watcher import Seen


def measure(cell: Cell, contender: Contender, repetition: int, log: Callable[[str], None]) -> Measured:
    """Measure one cell once, on a control plane of its own; `log` receives the progress."""
    objects = MappedPods(cell.nodes, cell.pods)
    return measure_and_see(cell, contender, repetition, log, objects)[0]


def measure_and_see(
    cell: Cell, contender: Contender, repetition: int, log: Callable[[str], None], objects: MappedPods
) -> tuple[Measured, Seen]:
    """Measure pending pods as `measure` does; return what the observer saw of each, too."""
    what = objects, contender.scheduler, contender.pinned
    pods = objects.pod_requests(contender.scheduler, pinned=contender.pinned)
    return _found_there(cell, contender, repetition, log, _PendingPods(what, objects, pods))


def fill(
    counted: CountedPods, cell: Cell, contender: Contender, repetition: int, log: Callable[[str], None]
) -> Measured:
    """Measure W3. Pods for a contender that assigns no devices request GPUs by their resource limits."""
    what = counted, contender.scheduler, contender.devices
    pods = counted.pod_requests(contender.scheduler, limits=not contender.devices)
    return _found_there(cell, contender, repetition, log, _PendingPods(what, counted, pods))[0]


@dataclass(frozen=True, slots=True)
class _PendingPods:
    """The objects of a cell when the clock starts. An equal `what` means equal objects, which a snapshot can share."""

    what: Hashable
    objects: ClusterObjects
    pods: Iterable[tuple[str, Object]]

    def make(self, cluster: ClusterUnderTest) -> None:
        cluster.settle(self.objects)
        cluster.make(self.pods)


def _found_there(
    cell: Cell, contender: Contender, repetition: int, log: Callable[[str], None], found: _PendingPods
) -> tuple[Measured, Seen]:
    log(f"making {cell.nodes} nodes and {cell.pods} pods")
    with from_snapshot(found.what, found.make) as cluster:
        try:
            contender.prepare(cluster, found.objects)
            return measure_and_audit(Run(cell, repetition, cluster, found.objects, contender, log), contender.go)
        finally:
            contender.stop()
