"""Neighbour: pods of one tenant arrive one by one, and are deleted, while another tenant burdens the scheduler.

Each arriving pod has a free GPU by its map, so that it waits for nothing but the scheduler. Pods of the other tenant
hold all other GPUs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench import tenants
from bench.arrivals import add_delays
from bench.audit import given_to, misplaced
from bench.cluster import start_cluster
from bench.cluster_objects import MappedPods
from bench.cold_start import bind_all
from bench.contenders.ours import GpuScheduler, memory_limit
from bench.measurement import Run, measure_until_done
from bench.pod_stream import refusals, stream
from gpu_scheduler import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.results import Cell, Measured
    from bench.tenant_process import Answers
    from bench.tenants import TenantLoad
    from tests.integration.command import Command

LIVES: Final = 30.0
"""Seconds from the creation of an arriving pod to its deletion. One that waits for longer is a fault."""
_TIMEOUT: Final = 120.0


def measure(  # noqa: PLR0913 - the parameters of a cell, with their defaults
    cell: Cell,
    repetition: int,
    log: Callable[[str], None],
    *,
    load: TenantLoad | None = None,
    rate: float = 1.0,
    lives: float = LIVES,
    make: Callable[[], GpuScheduler] = GpuScheduler,
) -> Measured:
    """Measure our leader once: `rate` pods a second arrive, at most one for each node, beside another tenant's `load`.

    The load begins with the first arriving pod. Both share the API server: its part is in the time to a bind.
    """
    objects, contender = MappedPods(cell.nodes, cell.pods), make()
    (namespace,) = objects.namespaces
    with start_cluster() as cluster:
        log(f"making {objects.nodes} nodes and as many pods that hold their GPUs")
        cluster.settle(objects)
        tenants.prepare(cluster, objects.nodes, large=load is not None and load.placed)
        bind_all(cluster, objects)
        arriving = stream(cluster, objects.pod_requests(contender.scheduler), rate, lives)
        tenant = None if load is None else tenants.start(cluster, load)

        def begin() -> None:
            arriving.go()
            if tenant is not None:
                tenant.go()

        try:
            contender.lead(cluster, objects)
            arriving.wait_ready()
            if tenant is not None:
                tenant.wait_ready()
            run = Run(cell, repetition, cluster, objects, contender, log, namespace=namespace)
            measured, seen = measure_until_done(run, begin)
            streamed = arriving.wait(lives + _TIMEOUT)
            if tenant is not None and load is not None:
                answers = tenant.wait(_TIMEOUT)
                measured.answered, measured.to_last_answer = answers.created + answers.patched, answers.seconds
                measured.wrong.extend(_faults(cluster, load, answers))
            measured.queued = _queued(contender.command)
            measured.memory_share = 100 * _peak(contender) / memory_limit()
            if contender.command.count("Deciding") != 1 or not contender.command.leads():
                measured.wrong.append("it lost the Lease")
        finally:
            arriving.stop()
            if tenant is not None:
                tenant.stop()
            contender.stop()
    # The tenant's requests are counted too, so the counts say nothing of ours.
    measured.calls = {}
    measured.creations = streamed.took
    measured.appeared = [seen.appeared[key] - at for key, at in streamed.answered.items() if key in seen.appeared]
    add_delays(measured, seen, streamed)
    bound = {name: given_to(pod) for name, pod in streamed.left.items() if "nodeName" in pod["spec"]}
    if not len(bound) == len(seen.bound) == objects.pods:
        measured.wrong.append(f"{len(bound)} of {objects.pods} pods were bound before they were deleted")
    measured.wrong.extend(misplaced(bound, objects, devices=True))
    measured.wrong.extend(refusals(streamed))
    return measured


class _Spec(msgspec.Struct):
    node: str = msgspec.field(name="nodeName", default="")


class _Pod(msgspec.Struct):
    spec: _Spec


def _faults(cluster: ClusterUnderTest, load: TenantLoad, answers: Answers) -> list[str]:
    """Return the faults, one sentence each: the load was not as it should have been."""
    wrong = [f"{times} requests of the tenant were refused: {what}" for what, times in answers.refused.items()]
    pods = [msgspec.json.decode(item, type=_Pod) for item in cluster.items(tenants.PODS)]
    waiting, expected = sum(not pod.spec.node for pod in pods), 0 if load.placed else len(load.pods)
    if waiting != expected:
        wrong.append(f"{waiting} pods of the tenant wait, and {expected} should")
    if load.patched and not answers.patched:
        wrong.append("the tenant patched nothing")
    return wrong


def _queued(command: Command) -> float:
    """Return the mean time from the first sight of a pod to its attempt that bound it, in seconds."""
    attempts = f'{names.METRIC_ATTEMPT_DURATION}_sum{{profile="{names.SCHEDULER_NAME}",result="scheduled"}}'
    bound = command.metric(f"{names.METRIC_DURATION}_count")
    return (command.metric(f"{names.METRIC_DURATION}_sum") - command.metric(attempts)) / bound


def _peak(contender: GpuScheduler) -> float:
    """Return the most memory that was resident at a time, in MiB."""
    status = Path(f"/proc/{contender.command.process.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024
