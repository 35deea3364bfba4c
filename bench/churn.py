"""W5: pods come and go at one pace, each bound in between; nothing of them may stay behind.

Every GPU is given many times, always to the pod of another workload with a map of its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bench.audit import given_to, misplaced
from bench.cluster import start_cluster
from bench.cluster_objects import GPUS_PER_NODE, MappedPods
from bench.contenders.ours import Ours
from bench.costs import Samples
from bench.measurement import Run, measure_until_done
from bench.pod_stream import faults, stream
from bench.watcher import PODS
from gpu_scheduler import names
from tests.integration.faults.gauge import GAUGING, Gauge
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.results import Cell, Measured
    from tests.integration.command import Command
    from tests.integration.faults.gauge import Gauged

LIVES: Final = 5.0
"""Seconds that each pod is there."""
WARM_UP: Final = 0.25
"""The share of the time after which memory is looked at."""
_EVERY: Final = 3.0
"""Seconds between two looks, or less where the whole is short."""
_LOOKS: Final = 40
_PATIENCE: Final = 60.0


def measure(cell: Cell, repetition: int, tell: Callable[[str], None], *, rate: float, lives: float = LIVES) -> Measured:
    """Measure ours once, with so many pods coming and as many going in a second, until all of the cell's have gone."""
    objects = MappedPods(cell.nodes, cell.pods, turns=-(-cell.pods // (cell.nodes * GPUS_PER_NODE)))
    seconds = cell.pods / rate
    contender = Ours(GAUGING, DEBUG_ENDPOINTS="true")
    with start_cluster() as cluster:
        tell(f"making {objects.nodes} nodes")
        cluster.settle(objects)
        passing = stream(cluster, objects.pod_requests(contender.scheduler), rate, lives)
        try:
            contender.lead(cluster, objects)
            gauge = Gauge(contender.command)
            before = gauge.read()
            passing.wait_ready()
            samples = Samples(contender.command.process.pid, min(_EVERY, seconds / _LOOKS))
            measured, seen = measure_until_done(Run(cell, repetition, cluster, objects, contender, tell), passing.go)
            taken = samples.end()
            streamed = passing.wait(seconds + _PATIENCE)
            tell("looking for what has stayed behind")
            try:
                _forgotten(cluster, contender.command, gauge, before)
            except AssertionError as error:
                measured.wrong.append(str(error))
        finally:
            passing.stop()
            contender.stop()
    measured.resident = [(at, size) for at, size in taken if at >= WARM_UP * seconds]
    bound = {name: given_to(pod) for name, pod in streamed.left.items() if "nodeName" in pod["spec"]}
    if not len(bound) == len(seen.bound) == objects.pods:
        measured.wrong.append(f"{len(bound)} of {objects.pods} pods were bound before they were deleted")
    if len(seen.events) != objects.pods:
        measured.wrong.append(f"{len(seen.events)} of {objects.pods} pods have an event")
    measured.wrong.extend(misplaced(bound, objects, devices=True))
    measured.wrong.extend(faults(streamed, rate))
    return measured


def _forgotten(cluster: ClusterUnderTest, command: Command, gauge: Gauge, before: Gauged) -> None:
    """Wait until it has what it had before there was any pod; AssertionError with what it has instead."""
    there = len(cluster.items(PODS))
    assert not there, f"{there} pods were not deleted"
    counts = (names.METRIC_PENDING, names.METRIC_RUNNING)
    eventually("its ledger is empty", lambda: json.loads(command.get("/debug/ledger")[1])["holders"] == [])
    eventually("it counts no pods", lambda: [command.metric(name) for name in counts] == [0, 0])
    gauge.calms_down(before)
