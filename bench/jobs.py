"""Which cells there are, and how each is measured at its full size."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import admission, arrivals, background, churn, cold_start, failover, growth, idle, pending_pods
from bench.cluster_objects import GPUS_PER_NODE, MappedPods
from bench.comparison import cells, chosen
from bench.contenders.kube_scheduler import KubeScheduler
from bench.contenders.limit import Arriving, Limit
from bench.contenders.load_generator import CLIENTS, SWEEP
from bench.contenders.naive import Naive
from bench.contenders.ours import Cold, ColdFloor, Floor, Ours
from bench.counted_pods import CountedPods
from bench.figures import bind_rate, event_rate
from bench.results import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from bench.background import BackgroundLoad
    from bench.cluster import ClusterUnderTest
    from bench.contenders.contender import Contender
    from bench.results import Measured

NODES: Final = 500
PODS: Final = 5000
FEW: Final = 200
"""Pods for contenders that would take minutes for all."""
FEWEST: Final = 20
"""For one that would take minutes even for those."""
MANY_NODES: Final = 5000
FILLS: Final = (70, 95)
"""Percent of the GPUs that are given in the end."""
FLOOD: Final = 0.8
"""Of the limit, where 0.7 of it is to be sustained."""
UNSCHEDULABLE: Final = 10_000
"""Pods that fit nowhere."""
BOUND: Final = 10_000
"""Pods that are there before a cold start."""
CHURN: Final = 50.0
"""Pods that come and go in a second,"""
CHURN_SECONDS: Final = 600
"""for so long."""
STREAM: Final = 100.0
"""Pods that come in a second while the leader is ended, or the stack is sampled."""
CREATED: Final = 3000
"""Pods of which PACED are created at a steady pace, PACE a second, all others as fast as that goes."""
PACED: Final = 1000
PACE: Final = 50
REVIEWS: Final = 20_000
WINDOW: Final = 60.0
"""Seconds for which an idle scheduler is looked at."""
SWEPT: Final = "W1-limit"
"""The workload of the sweep: what is measured once takes no part in ratios."""


@dataclass(frozen=True, slots=True)
class Job:
    """One cell and how it is measured, given which repetition it is and who hears how far it is."""

    cell: Cell
    measure: Callable[[int, Callable[[str], None]], Measured]


def few_backlog_jobs() -> tuple[Job, ...]:
    """W1 with one client of the limit."""
    return _limit("curl", 32, events=True), placing(Ours), _limit("curl", 32, events=False), _kube_scheduler()


def backlog_jobs(limits: Iterable[tuple[str, int]], bare: Iterable[tuple[str, int]]) -> tuple[Job, ...]:
    """W1 with these clients and requests in flight for the limit, with events and without."""
    return (
        *(_limit(*variant, events=True) for variant in limits),
        placing(Ours),
        *(_limit(*variant, events=False) for variant in bare),
        _backlog("F", Floor),
        _kube_scheduler(),
        _backlog("K50", lambda: KubeScheduler(throttled=True), pods=FEW),
        _backlog("N", Naive, pods=FEW),
    )


def sweep_jobs() -> tuple[Job, ...]:
    """Every client of the limit with every number of requests in flight."""
    return tuple(
        _limit(client, in_flight, events=events, workload=SWEPT)
        for client in CLIENTS
        for in_flight in SWEEP
        for events in (True, False)
    )


def fastest(found: Sequence[Measured], name: str) -> tuple[tuple[str, int], ...]:
    """Of each client the requests in flight with which it was fastest in the sweep; without one those in the middle."""
    rate, of = (event_rate if name == "L" else bind_rate), cells(found, SWEPT, name)
    best = []
    for client in CLIENTS:
        swept = {cell: every for cell, every in of.items() if cell.variant.startswith(f"{client}/")}
        repetitions = chosen(swept, rate, most=True)
        in_flight = repetitions[0].cell.variant.rpartition("/")[2] if repetitions else SWEEP[len(SWEEP) // 2]
        best.append((client, int(in_flight)))
    return tuple(best)


def large_jobs() -> tuple[Job, ...]:
    """Ours and a naive scheduler on ten times as many nodes."""
    return (
        _backlog("O", Ours, workload="W1-5000", nodes=MANY_NODES),
        _backlog("N", Naive, workload="W1-5000", nodes=MANY_NODES, pods=FEWEST),
    )


def arrival_jobs(found: Sequence[Measured]) -> tuple[Job, ...]:
    """W2 at a half, at a quarter and above what may be sustained of the limit, and W4 at a half.

    None where the limit is not known, as when every measurement of it went wrong.
    """
    best = chosen(cells(found, "W1", "L"), event_rate, most=True)
    if not best:
        return ()
    limit = median(each.events / (each.to_last_event or 1) for each in best)
    return (
        arriving("W2", limit / 2),
        arriving("W4", limit / 2, UNSCHEDULABLE),
        arriving("W2-quarter", limit / 4),
        arriving("W2-sustained", limit * FLOOD, flood=True),
        _arriving_limit(best[0].cell.variant),
    )


def growth_jobs() -> tuple[Job, ...]:
    """Every size of a cluster."""
    return tuple(map(_growth, growth.cells()))


def _growth(cell: Cell) -> Job:
    return Job(cell, lambda repetition, tell: growth.measure(cell, repetition, tell))


def _backlog(  # noqa: PLR0913 - what a cell is, with its defaults
    name: str,
    make: Callable[[], Contender],
    variant: str = "",
    *,
    workload: str = "W1",
    nodes: int = NODES,
    pods: int = PODS,
) -> Job:
    cell = Cell(workload, name, variant, nodes, pods)
    return Job(cell, lambda repetition, tell: pending_pods.measure(cell, make(), repetition, tell))


def _limit(client: str, in_flight: int, *, events: bool, workload: str = "W1") -> Job:
    name, variant = "L" if events else "L0", f"{client}/{in_flight}"
    return _backlog(name, lambda: Limit(client, in_flight, events=events), variant, workload=workload)


def placing(make: Callable[[], Ours]) -> Job:
    """Ours, placing pods that wait already."""
    return _backlog("O", make)


def _arriving_limit(variant: str) -> Job:
    client, in_flight = variant.split("/")
    return _backlog(
        "A", lambda: Arriving(client, int(in_flight), MappedPods(NODES, PODS)), variant, workload="W2-sustained"
    )


def _kube_scheduler() -> Job:
    return _backlog("K", lambda: KubeScheduler(throttled=False))


def arriving(
    workload: str, rate: float, unschedulable: int = 0, *, flood: bool = False, make: Callable[[], Ours] = Ours
) -> Job:
    """One of ours that places pods as they arrive."""
    rate = round(rate)
    cell = Cell(workload, "O", f"{rate}/s", NODES, PODS)
    measure = partial(arrivals.measure, rate=rate, unschedulable=unschedulable, flood=flood, make=make)
    return Job(cell, lambda repetition, tell: measure(cell, repetition, tell))


def strategy_jobs() -> tuple[Job, ...]:
    """W3: the limit, ours and its floor, and kube-scheduler, at each fill."""
    makers: tuple[Callable[[], Contender], ...] = (
        lambda: Limit("curl", 32, events=True),
        Ours,
        Floor,
        lambda: KubeScheduler(throttled=False),
    )
    return tuple(filling(percent, make) for percent in FILLS for make in makers)


def filling(percent: int, make: Callable[[], Contender]) -> Job:
    """One contender that fills a cluster whose GPUs are counted."""
    counted = CountedPods(NODES, percent)
    cell = Cell("W3", make().name, f"{percent}%", counted.nodes, counted.pods)
    return Job(cell, lambda repetition, tell: pending_pods.fill(counted, cell, make(), repetition, tell))


def churn_jobs() -> tuple[Job, ...]:
    """W5."""
    cell = Cell("W5", "O", f"{CHURN:.0f}/s", NODES, round(CHURN * CHURN_SECONDS))
    return (Job(cell, lambda repetition, tell: churn.measure(cell, repetition, tell, rate=CHURN)),)


def start_jobs() -> tuple[Job, ...]:
    """W6."""
    return starting(Cold), starting(lambda: ColdFloor(MappedPods(MANY_NODES, BOUND + 1)))


def starting(make: Callable[[], Cold]) -> Job:
    """One start."""
    cell = Cell("W6", make().name, "", MANY_NODES, BOUND)
    return Job(cell, lambda repetition, tell: cold_start.measure(cell, make(), repetition, tell))


def failover_jobs() -> tuple[Job, ...]:
    """W7, with a leader that is killed and one that is told to stop."""
    return tuple(map(_failover, (signal.SIGKILL, signal.SIGTERM)))


def admission_jobs() -> tuple[Job, ...]:
    """W8: creations without a webhook, with the bare handler and with ours, then reviews by both of these."""
    return (*(_creations(name) for name in ("P", "H", "O")), *(reviewing(name) for name in ("H", "O")))


def _creations(name: str) -> Job:
    cell = Cell("W8", name, "creations", NODES, CREATED)
    return Job(cell, lambda repetition, tell: admission.creations(cell, repetition, tell, paced=PACED, rate=PACE))


def reviewing(name: str, samples: Path | None = None) -> Job:
    """One webhook that answers reviews; ours may write to the file `samples` where its processor time went."""
    cell = Cell("W8", name, "reviews", REVIEWS // GPUS_PER_NODE, REVIEWS)
    return Job(cell, lambda repetition, tell: admission.answers(cell, repetition, tell, samples=samples))


def idle_jobs() -> tuple[Job, ...]:
    """Idleness, alone and beside each background."""
    return (_idle("alone"), _idle("monitors", background.monitors), _idle("others", background.others))


def _failover(end: signal.Signals) -> Job:
    cell = Cell("W7", "O", end.name, NODES, PODS)
    return Job(cell, lambda repetition, tell: failover.measure(cell, repetition, tell, rate=STREAM, end=end))


def _idle(variant: str, beside: Callable[[ClusterUnderTest, int, float], BackgroundLoad] | None = None) -> Job:
    cell = Cell("idle", "O", variant, MANY_NODES)
    return Job(cell, lambda repetition, tell: idle.measure(cell, repetition, tell, window=WINDOW, beside=beside))
