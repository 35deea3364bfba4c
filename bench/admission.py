"""W8: measures how much our webhook slows the creation of pods, and what a review costs it.

Pods are created in three ways: with our webhook as its role runs and registers it, with a handler in its place that
gives each pod the same patch, and without a webhook. First a few clients create pods at the same time, as fast as they
can. Then pods are created at a rate that leaves the API server idle time: there the difference is the additional time
that a user waits.

Then reviews are sent to our webhook, and to that handler, without an API server. libcurl sends them as wrk would: over
kept TLS connections, with many requests in flight.
"""

from __future__ import annotations

import signal
import tempfile
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.cluster import CREATED, start_cluster
from bench.cluster_objects import MappedPod, MappedPods
from bench.comparison import CLIENT, OURS
from bench.contenders import bare_webhook, sampler
from bench.contenders.load_generator import LoadGenerator
from bench.contenders.ours import as_shipped
from bench.contenders.prepared_requests import Header, PreparedPod, Request, write
from bench.costs import Meter
from bench.pod_stream import faults, stream
from bench.results import Cost, Measured, now
from bench.reviews import reviews
from bench.watcher import PODS
from tests import objects as shapes
from tests.integration.webhook_process import Webhook
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cluster import ClusterUnderTest
    from bench.contenders.prepared_requests import LoadReport
    from bench.results import Cell

_SCHEDULER: Final = "gpu-scheduler"
_CREATORS: Final = 16
"""Creations in flight: as if a few controllers create pods at the same time."""
_REVIEWS: Final = 32
"""Reviews in flight."""
_TIMEOUT: Final = 600.0
_REPORTED: Final = 3
"""The maximum number of pods whose faults are reported."""
_PATCHED: Final = 'gpu_scheduler_admission_reviews_total{outcome="patched",path="/mutate"}'
_OK: Final = "200"
_MISSING: Final = 404
"""The HTTP status of a webhook's answer to the request that opens a connection."""
_CALLED: Final = 'path="/mutate"'
"""The label in the metrics of a webhook after an API server called it."""
_NO_WEBHOOK: Final = "P"


def creations(cell: Cell, repetition: int, log: Callable[[str], None], *, paced: int, rate: float) -> Measured:
    """Measure once how pods are created: the last `paced` pods at `rate` a second, all others as fast as possible."""
    objects = MappedPods(cell.nodes, cell.pods)
    pods = list(objects.pod_requests(_SCHEDULER, admitted=False))
    with start_cluster() as cluster, _registered(cluster, cell.contender) as webhook:
        cluster.make_namespaces(objects.namespaces)
        began = now()
        own = {} if webhook is None else {cell.contender: webhook.command.process.pid}
        meters = {name: Meter(pid) for name, pid in (own | cluster.plane.pids).items()}
        log(f"creating {len(pods) - paced} pods, {_CREATORS} at a time")
        load_report = cluster.send(pods[:-paced], _CREATORS)
        costs = {name: meter.read() for name, meter in meters.items()}
        log(f"creating {paced} pods, {rate:g} a second")
        steady = stream(cluster, pods[-paced:], rate)
        try:
            steady.wait_ready()
            steady.go()
            streamed = steady.wait(_TIMEOUT)
        finally:
            steady.stop()
        measured = _measured(cell, repetition, began, load_report, CREATED)
        measured.wrong.extend((*faults(streamed, rate), *uncompleted(cluster, objects, cell.contender)))
    measured.costs |= costs
    measured.creations = streamed.took
    return measured


def answers(cell: Cell, repetition: int, log: Callable[[str], None], *, samples: Path | None = None) -> Measured:
    """Measure once how many reviews a second our webhook, or the bare handler, answers without an API server.

    With `samples`, our webhook writes a CPU profile to that file.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        log(f"preparing {cell.pods} reviews")
        with _alone(folder, cell.contender, samples) as webhook:
            generator = _reviewer(folder, webhook, MappedPods(cell.nodes, cell.pods))
            try:
                generator.wait_ready()
                if samples is not None:
                    webhook.command.process.send(signal.SIGUSR1)
                meter, began = Meter(webhook.command.process.pid), now()
                log(f"sending {cell.pods} reviews, {_REVIEWS} at a time")
                generator.go()
                load_report = generator.wait(_TIMEOUT)
                cost = meter.read()
            finally:
                generator.stop()
            metrics = webhook.command.get("/metrics")[1]
    measured = _measured(cell, repetition, began, load_report, _OK)
    measured.costs[cell.contender] = cost
    if cell.contender == OURS and f"{_PATCHED} {cell.pods}.0" not in metrics.splitlines():
        measured.wrong.append(f"not each of {cell.pods} reviews was answered with a patch")
    return measured


def _measured(cell: Cell, repetition: int, began: str, load_report: LoadReport, good: str) -> Measured:
    return Measured(
        cell=cell,
        repetition=repetition,
        began=began,
        answered=load_report.statuses.get(good, 0),
        to_last_answer=load_report.seconds,
        costs={CLIENT: Cost(cpu=load_report.cpu, rss=0.0, pss=0.0)},
        wrong=[f"{times} answers were HTTP {code}" for code, times in load_report.statuses.items() if code != good],
    )


@contextmanager
def _alone(folder: Path, contender: str, samples: Path | None = None) -> Iterator[Webhook]:
    """Run our webhook, or the bare handler in its place. Stop it at the end."""
    if samples is not None:
        arguments, env = as_shipped("webhook")
        webhook = Webhook(folder, arguments, {**env, sampler.PATH: str(samples)}, sampler.MODULE)
    elif contender == OURS:
        webhook = Webhook(folder, *as_shipped("webhook"))
    else:
        webhook = Webhook(folder, [], {}, "bench.contenders.bare_webhook")
    try:
        yield webhook
    finally:
        webhook.command.process.stop()


@contextmanager
def _registered(cluster: ClusterUnderTest, contender: str) -> Iterator[Webhook | None]:
    """Run the contender's webhook, if it has one, and yield it when the API server calls it.

    The bare handler has no path that validates: none is called for a pod that our webhook completed either.
    """
    if contender == _NO_WEBHOOK:
        yield None
        return
    kube, probe = cluster.plane.kube, shapes.pod("probe-0", "0=node1:0")
    with _alone(cluster.folder, contender) as webhook:
        for collection, body in webhook.registrations():
            if contender == OURS or body["kind"] == "MutatingWebhookConfiguration":
                kube.create(collection, body)

        def asked() -> bool:
            kube.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", probe)
            return _CALLED in webhook.command.get("/metrics")[1]

        eventually("the webhook is asked", asked, seconds=20)
        yield webhook


def uncompleted(cluster: ClusterUnderTest, objects: MappedPods, contender: str) -> Iterator[str]:
    """Yield a sentence for each missing pod and each pod whose containers have other variables than expected.

    Our webhook writes the variables of the pod's line, the bare handler those of GPU 0.
    """

    def expected(member: MappedPod) -> list[Any]:
        if contender == _NO_WEBHOOK:
            return []
        return shapes.literal(str(objects.place(member)[1]) if contender == OURS else bare_webhook.DEVICES)

    found = {pod["metadata"]["name"]: pod for pod in map(msgspec.json.decode, cluster.items(PODS))}
    if len(found) != objects.pods:
        yield f"{len(found)} of {objects.pods} pods were created"
    odd = (
        f"{member.name} sees {_seen(found[member.name])} and not what its line says"
        for member in objects.members()
        if member.name in found and _seen(found[member.name]) != expected(member)
    )
    yield from islice(odd, _REPORTED)


def _seen(pod: Any) -> list[Any]:
    return [entry for container in pod["spec"]["containers"] for entry in container.get("env", [])]


def _reviewer(folder: Path, webhook: Webhook, objects: MappedPods) -> LoadGenerator:
    path, authority = folder / "reviews.jsonl", folder / "ca.crt"
    webhook.authority.cert_pem.write_to_path(str(authority))
    header = Header(f"https://127.0.0.1:{webhook.port}", str(authority), "", _REVIEWS, _MISSING)
    write(path, header, (PreparedPod(Request("/mutate", body), None) for body in reviews(objects, _SCHEDULER)))
    return LoadGenerator("curl", path, folder / "reviews.log")
