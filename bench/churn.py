"""W5: pods are created, bound and deleted at one rate; memory, tasks and files of the scheduler must not grow.

Each GPU is assigned many times, each time to a pod of another workload with its own map.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from bench.audit import given_to, misplaced
from bench.cluster import start_cluster
from bench.cluster_objects import GPUS_PER_NODE, MappedPods
from bench.contenders.ours import GpuScheduler
from bench.costs import Samples
from bench.measurement import Run, measure_until_done
from bench.pod_stream import faults, stream
from bench.watcher import PODS
from gpu_scheduler import names
from tests.integration.faults.process_usage import WITH_TASK_COUNT, UsageReader
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.results import Cell, Measured
    from tests.integration.command import Command
    from tests.integration.faults.process_usage import Usage

LIVES: Final = 5.0
"""Seconds from the creation of a pod to its deletion."""
WARM_UP: Final = 0.25
"""The share of the time after which memory is sampled."""
_EVERY: Final = 3.0
"""Seconds between two samples, or less in a short run."""
_FEWEST_SAMPLES: Final = 40
_TIMEOUT: Final = 60.0


def measure(cell: Cell, repetition: int, log: Callable[[str], None], *, rate: float, lives: float = LIVES) -> Measured:
    """Measure our scheduler once: create and delete `rate` pods a second, until all pods of the cell are deleted."""
    objects = MappedPods(cell.nodes, cell.pods, rounds=-(-cell.pods // (cell.nodes * GPUS_PER_NODE)))
    seconds = cell.pods / rate
    contender = GpuScheduler(WITH_TASK_COUNT, DEBUG_ENDPOINTS="true")
    with start_cluster() as cluster:
        log(f"making {objects.nodes} nodes")
        cluster.settle(objects)
        passing = stream(cluster, objects.pod_requests(contender.scheduler), rate, lives)
        try:
            contender.lead(cluster, objects)
            usage_reader = UsageReader(contender.command)
            before = usage_reader.read()
            passing.wait_ready()
            samples = Samples(contender.command.process.pid, min(_EVERY, seconds / _FEWEST_SAMPLES))
            measured, seen = measure_until_done(Run(cell, repetition, cluster, objects, contender, log), passing.go)
            taken = samples.end()
            streamed = passing.wait(seconds + _TIMEOUT)
            log("looking for what has stayed behind")
            try:
                _wait_usage_as_before(cluster, contender.command, usage_reader, before)
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


def _wait_usage_as_before(
    cluster: ClusterUnderTest, command: Command, usage_reader: UsageReader, before: Usage
) -> None:
    """Wait until the scheduler's usage is as before the first pod; AssertionError with its usage otherwise."""
    there = len(cluster.items(PODS))
    assert not there, f"{there} pods were not deleted"
    counts = (names.METRIC_PENDING, names.METRIC_RUNNING)
    eventually("its ledger is empty", lambda: json.loads(command.get("/debug/ledger")[1])["holders"] == [])
    eventually("it counts no pods", lambda: [command.metric(name) for name in counts] == [0, 0])
    usage_reader.wait_not_grown(before)
