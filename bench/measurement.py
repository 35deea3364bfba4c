"""Measures a run: starts the contender, waits for the observer, and audits the result."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.audit import audit
from bench.costs import Meter
from bench.results import Measured, now
from bench.watcher import WatchRequest
from bench.watcher_process import WatcherProcess
from tests.integration.control_plane import ADMIN_TOKEN
from tests.integration.request_counts import requests
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.cluster import ClusterUnderTest
    from bench.cluster_objects import ClusterObjects
    from bench.contenders.contender import Contender
    from bench.results import Cell
    from bench.watcher import Progress, Seen

_QUIET: Final = 20.0
"""Seconds without a new bind or event after which the measurement ends; more on a busy machine."""
_STEP: Final = 0.1


@dataclass(frozen=True, slots=True)
class Run:
    """What is measured, where, and with which contender; `log` receives the progress."""

    cell: Cell
    repetition: int
    cluster: ClusterUnderTest
    objects: ClusterObjects
    contender: Contender
    log: Callable[[str], None]
    waiting: int | None = None
    """How many of the cluster's pods are not yet bound, if not all of them."""
    claims: bool = False
    """Whether the clocks begin with the first change of a ResourceClaim, which comes before the first bind."""
    namespace: str = ""
    """The only namespace that is observed, if not all."""


def measure_and_audit(run: Run, begin: Callable[[], None]) -> tuple[Measured, Seen]:
    """Measure from `begin` on as `measure_until_done` does, then audit the cluster.

    The audit counts binds and events of all pods, so it replaces what was seen only where all of them waited.
    """
    measured, seen = measure_until_done(run, begin)
    found = audit(run.cluster, run.objects, run.contender)
    measured.devices = found.devices
    if run.waiting is None:
        measured.bound, measured.events = found.bound, found.events
    measured.wrong[:0] = found.wrong
    return measured, seen


def measure_until_done(run: Run, begin: Callable[[], None]) -> tuple[Measured, Seen]:
    """Measure from `begin` until all waiting pods have their bind and event, or nothing changes for a while."""
    cluster, contender = run.cluster, run.contender
    waiting = run.objects.pods if run.waiting is None else run.waiting
    news, known = time.monotonic(), None

    def received(progress: Progress) -> None:
        nonlocal news, known
        if progress != known:
            news, known = time.monotonic(), progress
        run.log(f"{progress.binds} of {waiting} bound, {progress.events} events")

    events = waiting if contender.events else 0
    at = cluster.plane.port, str(cluster.plane.ca), ADMIN_TOKEN
    observation = WatcherProcess(WatchRequest(*at, waiting, events, run.claims, run.namespace), received)
    try:
        began = now()
        calls = requests(cluster.plane.kube)
        meters = {name: Meter(pid) for name, pid in cluster.plane.pids.items()}
        begin()
        while not observation.wait(1.0) and time.monotonic() - news < limit(_QUIET):
            pass
        costs = {contender.name: contender.cost()} | {name: meter.read() for name, meter in meters.items()}
        calls = requests(cluster.plane.kube) - calls
        seen = observation.end()
        # Writes of Leases are not counted either.
        calls -= Counter({"POST events": seen.elections})
    finally:
        observation.stop()
    first, last = min(seen.bound.values(), default=0.0), max(seen.bound.values(), default=0.0)
    first = first if seen.first_claim is None else min(first, seen.first_claim)
    measured = Measured(
        cell=run.cell,
        repetition=run.repetition,
        began=began,
        to_last_bind=last - first,
        to_last_event=max(seen.events.values()) - first if contender.events and seen.events else None,
        bound=len(seen.bound),
        events=len(seen.events),
        each_tenth=_by_tenths(seen, first),
        calls=dict(sorted(calls.items())),
        costs=costs,
        wrong=[f"{seen.repeated} events were told twice"] if seen.repeated else [],
    )
    return measured, seen


def _by_tenths(seen: Seen, first: float) -> list[int]:
    """Return the number of binds in each tenth of a second since the first bind."""
    tenths = [int((at - first) / _STEP) for at in seen.bound.values()]
    counts = [0] * (max(tenths, default=-1) + 1)
    for tenth in tenths:
        counts[tenth] += 1
    return counts
