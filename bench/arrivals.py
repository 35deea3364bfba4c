"""W2 and W4: pods arrive one by one at a fixed rate; in W4 many unschedulable pods wait beside them.

The rate is a share of what A sustains, so that no contender is measured while the API server is fully loaded.
"""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING, Final

from bench import pending_pods
from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods, namespace_names
from bench.contenders.limit import ArrivingAtPace
from bench.contenders.ours import GpuScheduler
from bench.measurement import Run, measure_and_audit
from bench.pod_stream import faults, refusals, stream
from bench.watcher import EVENTS
from tests import objects as shapes
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import Object
    from bench.pod_stream_process import Streamed
    from bench.results import Cell, Measured
    from bench.watcher import Seen

_TIMEOUT: Final = 600.0


def measure(  # noqa: PLR0913 - the parameters of a stream, with their defaults
    cell: Cell,
    repetition: int,
    log: Callable[[str], None],
    *,
    rate: float,
    unschedulable: int = 0,
    flood: bool = False,
    make: Callable[[], GpuScheduler] = GpuScheduler,
) -> Measured:
    """Measure our scheduler once, with `rate` new pods a second, beside `unschedulable` pods that fit nowhere.

    A `flood` is a rate above the sustainable one. It may come late: that only lowers our measured rate.
    """
    objects, contender = MappedPods(cell.nodes, cell.pods), make()
    with start_cluster() as cluster:
        log(f"making {objects.nodes} nodes and {unschedulable} pods that fit nowhere")
        cluster.settle(objects)
        names = namespace_names("unschedulable", unschedulable)
        cluster.make_namespaces(names)
        cluster.make(_unschedulable(unschedulable, names))
        arriving = stream(cluster, objects.pod_requests(contender.scheduler), rate)
        try:
            contender.lead(cluster, objects)
            log(f"waiting until {unschedulable} pods were told why they wait")
            eventually("everybody was told", lambda: _reported(cluster) >= unschedulable, seconds=_TIMEOUT, pause=1)
            arriving.wait_ready()
            measured, seen = measure_and_audit(Run(cell, repetition, cluster, objects, contender, log), arriving.go)
            streamed = arriving.wait(_TIMEOUT)
        finally:
            arriving.stop()
            contender.stop()
    add_delays(measured, seen, streamed)
    measured.wrong.extend(refusals(streamed) if flood else faults(streamed, rate))
    return measured


def measure_limit(cell: Cell, repetition: int, log: Callable[[str], None], *, rate: float) -> Measured:
    """Measure A once at this pace, see ArrivingAtPace."""
    objects = MappedPods(cell.nodes, cell.pods)
    contender = ArrivingAtPace(rate, objects)
    measured, seen = pending_pods.measure_and_see(cell, contender, repetition, log, objects)
    add_delays(measured, seen, contender.streamed)
    measured.wrong.extend(faults(contender.streamed, rate))
    return measured


def add_delays(measured: Measured, seen: Seen, streamed: Streamed) -> None:
    """Add how long each pod waited for its bind after its creation, and each event after its bind."""
    measured.latencies = [seen.bound[key] - at for key, at in streamed.answered.items() if key in seen.bound]
    measured.event_delays = [at - seen.bound[key] for key, at in seen.events.items() if key in seen.bound]


def _unschedulable(count: int, names: tuple[str, ...]) -> Iterator[tuple[str, Object]]:
    """Yield pods whose maps name a node that does not exist."""
    for number in range(count):
        body = shapes.pod(f"unschedulable-{number}", f"{number}=nowhere:0\n", shapes.literal("0"))
        yield f"/api/v1/namespaces/{names[number % len(names)]}/pods", body


def _reported(cluster: ClusterUnderTest) -> int:
    """Return the number of events: each unschedulable pod gets one."""
    status, listed = cluster.plane.kube.call("GET", f"{EVENTS}?limit=1")
    assert status == http.client.OK, listed
    return int(listed["metadata"].get("remainingItemCount", 0)) + len(listed["items"])
