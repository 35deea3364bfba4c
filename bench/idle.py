"""Idle: measures our process while there is nothing to place, alone or beside background load."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods
from bench.contenders.ours import GpuScheduler
from bench.costs import Meter
from bench.results import Measured, now
from gpu_scheduler import names
from tests.integration.request_counts import requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.background import BackgroundLoad
    from bench.cluster import ClusterUnderTest
    from bench.results import Cell

_SETTLES: Final = 2.0
"""Seconds after the election until the work of the start is finished."""
_SILENT: Final = 2.0
"""Seconds. If the background's watch has received nothing for longer, the measurement is invalid."""


def measure(
    cell: Cell,
    repetition: int,
    log: Callable[[str], None],
    *,
    window: float,
    beside: Callable[[ClusterUnderTest, int, float], BackgroundLoad] | None = None,
) -> Measured:
    """Measure our leader once for `window` seconds, on the cell's nodes; `beside` starts the background load."""
    objects, contender = MappedPods(cell.nodes, 0), GpuScheduler()
    with start_cluster() as cluster:
        log(f"making {objects.nodes} nodes")
        cluster.settle(objects)
        background = None if beside is None else beside(cluster, objects.nodes, _SETTLES + window)
        try:
            contender.lead(cluster, objects)
            if background is not None:
                background.process.wait_ready()
                background.process.go()
                time.sleep(background.warm_up)
            time.sleep(_SETTLES)
            log(f"looking on for {window:.0f} s")
            measured = _measure_idle(cell, repetition, cluster, contender, window)
            measured.wrong.extend(_faults(contender, background))
        finally:
            if background is not None:
                background.process.stop()
            contender.stop()
    return measured


def _measure_idle(
    cell: Cell, repetition: int, cluster: ClusterUnderTest, contender: GpuScheduler, window: float
) -> Measured:
    began, pids = now(), {contender.name: contender.command.process.pid, **cluster.plane.pids}
    calls = requests(cluster.plane.kube)
    meters = {name: Meter(pid) for name, pid in pids.items()}
    time.sleep(window)
    costs = {name: meter.read() for name, meter in meters.items()}
    calls = requests(cluster.plane.kube) - calls
    return Measured(
        cell=cell,
        repetition=repetition,
        began=began,
        calls=dict(sorted(calls.items())),
        costs=costs,
        window=window,
    )


def _faults(contender: GpuScheduler, background: BackgroundLoad | None) -> list[str]:
    """Return the faults, one sentence each: it does not lead, or it has not received the background's events."""
    wrong = [] if contender.command.leads() else ["it does not lead"]
    if background is not None:
        silence = contender.command.metric(f'{names.METRIC_WATCH_SILENCE}{{resource="{background.watch}"}}')
        if silence > _SILENT:
            wrong.append(f"it has heard nothing of {background.watch} for {silence:.1f} s")
        wrong.extend(background.ended())
    return wrong
