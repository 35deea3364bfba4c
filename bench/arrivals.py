"""W2 and W4: pods arrive one by one, at a pace that does not wait for anybody; in W4 many that fit nowhere are there.

They come at a share of the limit, so that nobody is measured where the API server has nothing left to give.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Final

from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods, namespace_names
from bench.contenders.ours import Ours
from bench.measurement import Run, measure_and_audit
from bench.pod_stream import faults, refusals, stream
from bench.watcher import EVENTS
from tests import objects as shapes
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import Object
    from bench.results import Cell, Measured

_PATIENCE: Final = 600.0


def measure(  # noqa: PLR0913 - what a stream is, with its defaults
    cell: Cell,
    repetition: int,
    tell: Callable[[str], None],
    *,
    rate: float,
    unschedulable: int = 0,
    flood: bool = False,
    make: Callable[[], Ours] = Ours,
) -> Measured:
    """Measure one of ours once at so many pods a second, beside so many that fit nowhere.

    A `flood` is more than may be sustained: it may come as late as it likes, which only makes our rate less.
    """
    objects, contender = MappedPods(cell.nodes, cell.pods), make()
    with start_cluster() as cluster:
        tell(f"making {objects.nodes} nodes and {unschedulable} pods that fit nowhere")
        cluster.settle(objects)
        names = namespace_names("unschedulable", unschedulable)
        cluster.make_namespaces(names)
        cluster.make(_unschedulable(unschedulable, names))
        arriving = stream(cluster, objects.pod_requests(contender.scheduler), rate)
        try:
            contender.lead(cluster, objects)
            tell(f"waiting until {unschedulable} pods were told why they wait")
            eventually("everybody was told", lambda: _told(cluster) >= unschedulable, seconds=_PATIENCE, pause=1)
            arriving.wait_ready()
            measured, seen = measure_and_audit(Run(cell, repetition, cluster, objects, contender, tell), arriving.go)
            streamed = arriving.wait(_PATIENCE)
        finally:
            arriving.stop()
            contender.stop()
    measured.latencies = [seen.bound[key] - at for key, at in streamed.answered.items() if key in seen.bound]
    measured.event_delays = [at - seen.bound[key] for key, at in seen.events.items() if key in seen.bound]
    measured.wrong.extend(refusals(streamed) if flood else faults(streamed, rate))
    return measured


def _unschedulable(count: int, names: tuple[str, ...]) -> Iterator[tuple[str, Object]]:
    """Pods whose maps name a node that is not there."""
    for number in range(count):
        body = shapes.pod(f"unschedulable-{number}", f"{number}=nowhere:0\n", shapes.literal("0"))
        yield f"/api/v1/namespaces/{names[number % len(names)]}/pods", body


def _told(cluster: ClusterUnderTest) -> int:
    """How many events there are: each of the unschedulable gets one."""
    status, listed = cluster.plane.kube.call("GET", f"{EVENTS}?limit=1")
    assert status == http.client.OK, listed
    return int(listed["metadata"].get("remainingItemCount", 0)) + len(listed["items"])
