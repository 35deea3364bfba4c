"""W8: what our webhook costs whoever creates pods, and what it costs itself.

Pods are created with our webhook as its role runs and registers it, with a handler in its place that does nothing but
allow, and without any: first as fast as a few clients at once have them made, then at a pace that leaves the API server
time, where the difference is what a user waits longer.
Then reviews are sent to the webhook alone, and to that handler; libcurl plays the part of wrk: kept connections over
TLS, many requests in flight.
"""

from __future__ import annotations

import signal
import tempfile
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench.contenders import sampled
from bench.contenders.limit import Blaster
from bench.contenders.orders import Header, Order, Request, write
from bench.contenders.ours import as_shipped
from bench.costs import Meter
from bench.finding import CLIENT, OURS
from bench.observer import PODS
from bench.plant import CREATED, plant
from bench.results import Cost, Measured, now
from bench.reviews import reviews
from bench.streaming import faults, stream
from bench.town import Town
from tests.integration import shapes
from tests.integration.served import Webhook
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.contenders.orders import Blasted
    from bench.plant import Plant
    from bench.results import Cell

_SCHEDULER: Final = "gpu-scheduler"
_CREATORS: Final = 16
"""Creations in flight: a few controllers at once."""
_REVIEWS: Final = 32
"""Reviews in flight."""
_PATIENCE: Final = 600.0
_TOLD: Final = 3
"""How many single pods are told of."""
_PATCHED: Final = 'gpu_scheduler_admission_reviews_total{outcome="patched",path="/mutate"}'
_GOOD: Final = "200"
_MISSING: Final = 404
"""How a webhook answers the greeting, which opens its connection."""
_ASKED: Final = ('path="/mutate"', 'path="/validate"')
"""What the metrics of a webhook tell once an API server asks it."""
_NONE: Final = "P"


def creations(cell: Cell, repetition: int, tell: Callable[[str], None], *, paced: int, rate: float) -> Measured:
    """Measure once how pods are created: the last `paced` of them at so many a second, all others at once."""
    town = Town(cell.nodes, cell.pods)
    pods = list(town.pod_requests(_SCHEDULER, admitted=False))
    with plant() as ground, _registered(ground, cell.contender) as webhook:
        ground.make_namespaces(town.namespaces)
        began = now()
        own = {} if webhook is None else {cell.contender: webhook.command.process.pid}
        meters = {name: Meter(pid) for name, pid in (own | ground.plane.pids).items()}
        tell(f"creating {len(pods) - paced} pods, {_CREATORS} at a time")
        blasted = ground.blast(pods[:-paced], _CREATORS)
        costs = {name: meter.read() for name, meter in meters.items()}
        tell(f"creating {paced} pods, {rate:g} a second")
        steady = stream(ground, pods[-paced:], rate)
        try:
            steady.wait_ready()
            steady.go()
            streamed = steady.wait(_PATIENCE)
        finally:
            steady.stop()
        measured = _measured(cell, repetition, began, blasted, CREATED)
        measured.wrong.extend((*faults(streamed, rate), *uncompleted(ground, town, completed=cell.contender == OURS)))
    measured.costs |= costs
    measured.creations = streamed.took
    return measured


def answers(cell: Cell, repetition: int, tell: Callable[[str], None], *, samples: Path | None = None) -> Measured:
    """Measure once how many reviews a second our webhook answers, or the bare handler, without an API server.

    Ours writes to the file `samples`, if there is one, where its processor time went.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        tell(f"preparing {cell.pods} reviews")
        with _alone(folder, cell.contender, samples) as webhook:
            blaster = _reviewer(folder, webhook, Town(cell.nodes, cell.pods))
            try:
                blaster.wait_ready()
                if samples is not None:
                    webhook.command.process.send(signal.SIGUSR1)
                meter, began = Meter(webhook.command.process.pid), now()
                tell(f"sending {cell.pods} reviews, {_REVIEWS} at a time")
                blaster.go()
                blasted = blaster.wait(_PATIENCE)
                cost = meter.read()
            finally:
                blaster.stop()
            metrics = webhook.command.get("/metrics")[1]
    measured = _measured(cell, repetition, began, blasted, _GOOD)
    measured.costs[cell.contender] = cost
    if cell.contender == OURS and f"{_PATCHED} {cell.pods}.0" not in metrics.splitlines():
        measured.wrong.append(f"not each of {cell.pods} reviews was answered with a patch")
    return measured


def _measured(cell: Cell, repetition: int, began: str, blasted: Blasted, good: str) -> Measured:
    return Measured(
        cell=cell,
        repetition=repetition,
        began=began,
        answered=blasted.statuses.get(good, 0),
        to_last_answer=blasted.seconds,
        costs={CLIENT: Cost(cpu=blasted.cpu, rss=0.0, pss=0.0)},
        wrong=[f"{times} answers were HTTP {code}" for code, times in blasted.statuses.items() if code != good],
    )


@contextmanager
def _alone(folder: Path, contender: str, samples: Path | None = None) -> Iterator[Webhook]:
    """Our webhook, or the bare handler in its place; ended afterwards."""
    if samples is not None:
        arguments, env = as_shipped("webhook")
        webhook = Webhook(folder, arguments, {**env, sampled.PATH: str(samples)}, sampled.MODULE)
    elif contender == OURS:
        webhook = Webhook(folder, *as_shipped("webhook"))
    else:
        webhook = Webhook(folder, [], {}, "bench.contenders.bare_webhook")
    try:
        yield webhook
    finally:
        webhook.command.process.stop()


@contextmanager
def _registered(ground: Plant, contender: str) -> Iterator[Webhook | None]:
    """The contender's webhook once the API server asks it at both paths, if it has one."""
    if contender == _NONE:
        yield None
        return
    kube, probe = ground.plane.kube, shapes.pod("probe-0", "0=node1:0")
    with _alone(ground.folder, contender) as webhook:
        for collection, body in webhook.registrations():
            kube.create(collection, body)

        def asked() -> bool:
            kube.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", probe)
            metrics = webhook.command.get("/metrics")[1]
            return all(path in metrics for path in _ASKED)

        eventually("the webhook is asked", asked, seconds=20)
        yield webhook


def uncompleted(ground: Plant, town: Town, *, completed: bool) -> Iterator[str]:
    """Pods that are missing, or whose containers do not see what they should; without a webhook they see nothing."""
    found = {pod["metadata"]["name"]: pod for pod in map(msgspec.json.decode, ground.items(PODS))}
    if len(found) != town.pods:
        yield f"{len(found)} of {town.pods} pods were created"
    odd = (
        f"{member.name} sees {_seen(found[member.name])} and not what its line says"
        for member in town.members()
        if member.name in found
        and _seen(found[member.name]) != (shapes.literal(str(town.place(member)[1])) if completed else [])
    )
    yield from islice(odd, _TOLD)


def _seen(pod: Any) -> list[Any]:
    return [entry for container in pod["spec"]["containers"] for entry in container.get("env", [])]


def _reviewer(folder: Path, webhook: Webhook, town: Town) -> Blaster:
    path, authority = folder / "reviews.jsonl", folder / "ca.crt"
    webhook.authority.cert_pem.write_to_path(str(authority))
    header = Header(f"https://127.0.0.1:{webhook.port}", str(authority), "", _REVIEWS, _MISSING)
    write(path, header, (Order(Request("/mutate", body), None) for body in reviews(town, _SCHEDULER)))
    return Blaster("curl", path, folder / "reviews.log")
