"""W7: the leader ends in the middle of a stream of pods, and the standby takes over."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods
from bench.contenders.ours import Pair
from bench.measurement import Run, measure_and_audit
from bench.pod_stream import faults, stream

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from bench.results import Cell, Measured

_ENDED_AFTER_SHARE: Final = 0.3
"""The share of the stream after which the leader is ended. The rest takes longer than its Lease."""
_TIMEOUT: Final = 600.0


def measure(
    cell: Cell, repetition: int, log: Callable[[str], None], *, rate: float, end: signal.Signals, **env: str
) -> Measured:
    """Measure one failover, with `rate` new pods a second; `end` is the leader's signal, `env` overrides the role's.

    The standby must bind some pods, but not all: otherwise the leader did not end in the middle of the stream.
    """
    objects, contender = MappedPods(cell.nodes, cell.pods), Pair(end, **env)
    with start_cluster() as cluster:
        log(f"making {objects.nodes} nodes")
        cluster.settle(objects)
        arriving = stream(cluster, objects.pod_requests(contender.scheduler), rate)
        ending = threading.Timer(_ENDED_AFTER_SHARE * cell.pods / rate, contender.end_leader)

        def begin() -> None:
            arriving.go()
            ending.start()

        try:
            contender.lead(cluster, objects)
            arriving.wait_ready()
            measured, seen = measure_and_audit(Run(cell, repetition, cluster, objects, contender, log), begin)
            streamed = arriving.wait(_TIMEOUT)
            measured.wrong.extend(contender.faults())
            followed = contender.standby.attempts("scheduled")
        finally:
            ending.cancel()
            arriving.stop()
            contender.stop()
    measured.gap = max((later - one for one, later in pairwise(sorted(seen.bound.values()))), default=None)
    if not 0 < followed < objects.pods:
        measured.wrong.append(f"the standby bound {followed:.0f} of {objects.pods} pods")
    measured.wrong.extend(faults(streamed, rate))
    return measured
