"""The jobs of the benchmark: each cell and the function that measures it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Final

from bench import (
    admission,
    arrivals,
    background,
    churn,
    claims,
    cold_start,
    failover,
    growth,
    idle,
    neighbours,
    pending_pods,
    scale,
    tenants,
)
from bench.claimed_pods import ClaimedPods
from bench.cluster_objects import GPUS_PER_NODE, MappedPods
from bench.comparison import cells, chosen
from bench.contenders.kube_scheduler import KubeScheduler, KubeSchedulerWithClaims
from bench.contenders.limit import Arriving, Limit
from bench.contenders.load_generator import CLIENTS, SWEEP
from bench.contenders.naive import Naive
from bench.contenders.ours import ColdStart, GpuScheduler, MinimalColdStart, Predecided
from bench.counted_pods import CountedPods
from bench.figures import bind_rate, event_rate
from bench.results import Cell
from bench.targets import WITH_CLAIMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from bench.background import BackgroundLoad
    from bench.cluster import ClusterUnderTest
    from bench.contenders.contender import Contender
    from bench.figures import Figure
    from bench.results import Measured
    from bench.tenants import TenantLoad

NODES: Final = 500
PODS: Final = 5000
FEW: Final = 200
"""Pods for contenders that would take minutes for all PODS."""
CLAIM_PODS: Final = 1000
"""Pods with a ResourceClaim each: kube-scheduler takes many times as long for one of them."""
FEWEST: Final = 20
"""Pods for a contender that would take minutes even for FEW."""
MANY_NODES: Final = 5000
FILLS: Final = (70, 95)
"""Percent of the GPUs that are assigned at the end."""
FLOOD: Final = 0.8
"""Share of the limit. A sustains less of it: the pods must arrive faster than that."""
UNSCHEDULABLE: Final = 10_000
"""Pods that fit nowhere."""
BOUND: Final = 10_000
"""Pods that are bound before a cold start."""
CHURN: Final = 50.0
"""Pods that are created and deleted in a second."""
CHURN_SECONDS: Final = 600
"""Duration of the churn."""
STREAM: Final = 100.0
"""Pods created in a second while the leader is ended, or the stack is sampled."""
CREATED: Final = 3000
"""Pods in all. PACED of them are created at PACE a second, the others as fast as possible."""
PACED: Final = 1000
PACE: Final = 50
REVIEWS: Final = 20_000
NEIGHBOUR_PODS: Final = 120
"""Pods of a tenant, one a second. Of so many, the 99th percentile lies between the two slowest."""
TENANTS: Final[Mapping[str, Callable[[int], TenantLoad]]] = {
    "replicas": tenants.replicas,
    "requests": tenants.requests,
    "patches": tenants.patches,
    "large lines": tenants.large_lines,
}
"""What the other tenant does, by variant."""
WINDOW: Final = 60.0
"""Seconds for which an idle scheduler is measured."""
SWEPT: Final = "W1-limit"
"""The workload of the sweep. It has a name of its own, because cells that are measured once take no part in ratios."""


@dataclass(frozen=True, slots=True)
class Job:
    """One cell and the function that measures it. Parameters: the repetition, and a function that logs progress."""

    cell: Cell
    measure: Callable[[int, Callable[[str], None]], Measured]


def few_pending_pods_jobs() -> tuple[Job, ...]:
    """W1 with one client of the limit."""
    return _limit("curl", 32, events=True), placing(GpuScheduler), _limit("curl", 32, events=False), _kube_scheduler()


def pending_pods_jobs(limits: Iterable[tuple[str, int]], bare: Iterable[tuple[str, int]]) -> tuple[Job, ...]:
    """W1 with these clients and requests in flight for the limit: `limits` with events, `bare` without."""
    return (
        *(_limit(*variant, events=True) for variant in limits),
        placing(GpuScheduler),
        *(_limit(*variant, events=False) for variant in bare),
        _pending_pods_job("F", Predecided),
        _kube_scheduler(),
        _pending_pods_job("K50", lambda: KubeScheduler(throttled=True), pods=FEW),
        _pending_pods_job("N", Naive, pods=FEW),
    )


def sweep_jobs() -> tuple[Job, ...]:
    """Each client of the limit with each number of requests in flight."""
    return tuple(
        _limit(client, in_flight, events=events, workload=SWEPT)
        for client in CLIENTS
        for in_flight in SWEEP
        for events in (True, False)
    )


def fastest(found: Sequence[Measured], name: str) -> tuple[tuple[str, int], ...]:
    """Return for each client the requests in flight with the best rate in the sweep.

    Without a sweep it is the middle of SWEEP.
    """
    rate, of = (event_rate if name == "L" else bind_rate), cells(found, SWEPT, name)
    best = []
    for client in CLIENTS:
        swept = {cell: every for cell, every in of.items() if cell.variant.startswith(f"{client}/")}
        repetitions = chosen(swept, rate, most=True)
        in_flight = repetitions[0].cell.variant.rpartition("/")[2] if repetitions else SWEEP[len(SWEEP) // 2]
        best.append((client, int(in_flight)))
    return tuple(best)


def large_jobs() -> tuple[Job, ...]:
    """W1 with ours and a naive scheduler on ten times as many nodes."""
    return (
        _pending_pods_job("O", GpuScheduler, workload="W1-5000", nodes=MANY_NODES),
        _pending_pods_job("N", Naive, workload="W1-5000", nodes=MANY_NODES, pods=FEWEST),
    )


def flood_jobs(found: Sequence[Measured]) -> tuple[Job, ...]:
    """W2-sustained: ours at FLOOD of the limit, and A, as its client was fastest as the limit.

    Empty when the limit is unknown, for example because each of its repetitions went wrong.
    """
    best = chosen(cells(found, "W1", "L"), event_rate, most=True)
    if not best:
        return ()
    limit = _median(event_rate, best)
    return arriving("W2-sustained", limit * FLOOD, flood=True), _arriving_limit(best[0].cell.variant)


def arrival_jobs(found: Sequence[Measured]) -> tuple[Job, ...]:
    """W2 at half of what A sustains, of ours and of A; empty when that is unknown."""
    rate = _arrival_rate(found)
    return () if rate is None else (arriving("W2", rate), _limit_at_pace(rate))


def unschedulable_jobs(found: Sequence[Measured]) -> tuple[Job, ...]:
    """W4 at the rate of W2; empty when that is unknown."""
    rate = _arrival_rate(found)
    return () if rate is None else (arriving("W4", rate, UNSCHEDULABLE),)


def _arrival_rate(found: Sequence[Measured]) -> float | None:
    sustained = chosen(cells(found, "W2-sustained", "A"), bind_rate, most=True)
    return _median(bind_rate, sustained) / 2 if sustained else None


def _median(rate: Figure, repetitions: Sequence[Measured]) -> float:
    return median(value for each in repetitions if (value := rate(each)) is not None)


def growth_jobs() -> tuple[Job, ...]:
    """Growth at each size of a cluster."""
    return tuple(map(_growth, growth.cells()))


def claims_growth_jobs() -> tuple[Job, ...]:
    """The size at which the memory of claims is measured."""
    return tuple(_growth(cell) for cell in growth.cells() if cell.variant == WITH_CLAIMS)


def _growth(cell: Cell) -> Job:
    return Job(cell, lambda repetition, log: growth.measure(cell, repetition, log))


def _pending_pods_job(  # noqa: PLR0913 - the fields of a cell, with their defaults
    name: str,
    make: Callable[[], Contender],
    variant: str = "",
    *,
    workload: str = "W1",
    nodes: int = NODES,
    pods: int = PODS,
) -> Job:
    cell = Cell(workload, name, variant, nodes, pods)
    return Job(cell, lambda repetition, log: pending_pods.measure(cell, make(), repetition, log))


def _limit(client: str, in_flight: int, *, events: bool, workload: str = "W1") -> Job:
    name, variant = "L" if events else "L0", f"{client}/{in_flight}"
    return _pending_pods_job(name, lambda: Limit(client, in_flight, events=events), variant, workload=workload)


def placing(make: Callable[[], GpuScheduler]) -> Job:
    """Return W1's job for our scheduler."""
    return _pending_pods_job("O", make)


def _arriving_limit(variant: str) -> Job:
    client, in_flight = variant.split("/")
    return _pending_pods_job(
        "A", lambda: Arriving(client, int(in_flight), MappedPods(NODES, PODS)), variant, workload="W2-sustained"
    )


def _limit_at_pace(rate: float) -> Job:
    rate = round(rate)
    cell = Cell("W2", "A", f"{rate}/s", NODES, PODS)
    measure = partial(arrivals.measure_limit, rate=rate)
    return Job(cell, lambda repetition, log: measure(cell, repetition, log))


def _kube_scheduler() -> Job:
    return _pending_pods_job("K", lambda: KubeScheduler(throttled=False))


def arriving(
    workload: str,
    rate: float,
    unschedulable: int = 0,
    *,
    flood: bool = False,
    make: Callable[[], GpuScheduler] = GpuScheduler,
) -> Job:
    """Return a job in which our scheduler places pods while they arrive."""
    rate = round(rate)
    cell = Cell(workload, "O", f"{rate}/s", NODES, PODS)
    measure = partial(arrivals.measure, rate=rate, unschedulable=unschedulable, flood=flood, make=make)
    return Job(cell, lambda repetition, log: measure(cell, repetition, log))


def strategy_jobs() -> tuple[Job, ...]:
    """W3: the limit, our scheduler, the same with decisions made before, and kube-scheduler, at each fill."""
    makers: tuple[Callable[[], Contender], ...] = (
        lambda: Limit("curl", 32, events=True),
        GpuScheduler,
        Predecided,
        lambda: KubeScheduler(throttled=False),
    )
    return tuple(filling(percent, make) for percent in FILLS for make in makers)


def filling(percent: int, make: Callable[[], Contender]) -> Job:
    """Return W3's job for one contender."""
    counted = CountedPods(NODES, percent)
    cell = Cell("W3", make().name, f"{percent}%", counted.nodes, counted.pods)
    return Job(cell, lambda repetition, log: pending_pods.fill(counted, cell, make(), repetition, log))


def scale_jobs() -> tuple[Job, ...]:
    """Scale: a backlog by a synced standby, by a cold start, and with ours on a processor of its own; and arrivals."""
    return (
        _scaled("backlog", GpuScheduler),
        _scaled("cold start", ColdStart),
        _scaled("apart", scale.Apart),
        _scaled_arrivals(),
    )


def _scaled(variant: str, make: Callable[[], GpuScheduler]) -> Job:
    cell = Cell("scale", "O", variant, MANY_NODES, PODS)
    return Job(cell, lambda repetition, log: scale.pending(cell, make, repetition, log))


def _scaled_arrivals() -> Job:
    cell = Cell("scale", "O", f"{STREAM:.0f}/s", MANY_NODES, PODS)
    return Job(cell, lambda repetition, log: scale.arrivals(cell, repetition, log, rate=STREAM))


def churn_jobs() -> tuple[Job, ...]:
    """W5: pods that are created and deleted at one rate."""
    cell = Cell("W5", "O", f"{CHURN:.0f}/s", NODES, round(CHURN * CHURN_SECONDS))
    return (Job(cell, lambda repetition, log: churn.measure(cell, repetition, log, rate=CHURN)),)


def start_jobs() -> tuple[Job, ...]:
    """W6: a cold start, and one that parses only the necessary objects."""
    return starting(ColdStart), starting(lambda: MinimalColdStart(MappedPods(MANY_NODES, BOUND + 1)))


def starting(make: Callable[[], ColdStart]) -> Job:
    """Return W6's job for one kind of start."""
    cell = Cell("W6", make().name, "", MANY_NODES, BOUND)
    return Job(cell, lambda repetition, log: cold_start.measure(cell, make(), repetition, log))


def failover_jobs() -> tuple[Job, ...]:
    """W7, with a leader that gets SIGKILL and one that gets SIGTERM."""
    return tuple(map(_failover, (signal.SIGKILL, signal.SIGTERM)))


def claims_jobs() -> tuple[Job, ...]:
    """Pods with claims, placed by ours and by kube-scheduler, and the same pods without claims, placed by ours."""
    return (
        _claiming("KC", lambda: KubeSchedulerWithClaims(ClaimedPods(NODES, CLAIM_PODS))),
        claiming(lambda: GpuScheduler(ISOLATION="dra")),
        _claiming("K", lambda: KubeScheduler(throttled=False), made_before=True),
        _pending_pods_job("O", GpuScheduler, workload="claims-env", pods=CLAIM_PODS),
    )


def claiming(make: Callable[[], GpuScheduler]) -> Job:
    """Return our scheduler's job for pods with claims; it must read claims."""
    return _claiming("O", make)


def _claiming(name: str, make: Callable[[], Contender], *, made_before: bool = False) -> Job:
    cell = Cell("claims", name, "", NODES, CLAIM_PODS)
    return Job(cell, lambda repetition, log: claims.measure(cell, make(), repetition, log, made_before=made_before))


def admission_jobs() -> tuple[Job, ...]:
    """W8: creations without a webhook, with the bare handler and with ours, then reviews with both handlers."""
    return (*(_creations(name) for name in ("P", "H", "O")), *(reviewing(name) for name in ("H", "O")))


def _creations(name: str) -> Job:
    cell = Cell("W8", name, "creations", NODES, CREATED)
    return Job(cell, lambda repetition, log: admission.creations(cell, repetition, log, paced=PACED, rate=PACE))


def reviewing(name: str, samples: Path | None = None) -> Job:
    """Return W8's job for reviews. With `samples`, our webhook writes a CPU profile to that file."""
    cell = Cell("W8", name, "reviews", REVIEWS // GPUS_PER_NODE, REVIEWS)
    return Job(cell, lambda repetition, log: admission.answers(cell, repetition, log, samples=samples))


def idle_jobs() -> tuple[Job, ...]:
    """An idle scheduler, alone and beside each kind of background load."""
    return (_idle("alone"), _idle("monitors", background.monitors), _idle("others", background.others))


def neighbour_jobs() -> tuple[Job, ...]:
    """A pod a second, alone and beside each load of another tenant."""
    return (neighbouring("alone"), *map(neighbouring, TENANTS))


def neighbouring(variant: str, make: Callable[[], GpuScheduler] = GpuScheduler) -> Job:
    """Return the job of one load of the other tenant; `alone` has none."""
    cell = Cell("neighbour", "O", variant, NODES, NEIGHBOUR_PODS)
    load = TENANTS[variant](NODES) if variant in TENANTS else None
    return Job(cell, lambda repetition, log: neighbours.measure(cell, repetition, log, load=load, make=make))


def _failover(end: signal.Signals) -> Job:
    cell = Cell("W7", "O", end.name, NODES, PODS)
    return Job(cell, lambda repetition, log: failover.measure(cell, repetition, log, rate=STREAM, end=end))


def _idle(variant: str, beside: Callable[[ClusterUnderTest, int, float], BackgroundLoad] | None = None) -> Job:
    cell = Cell("idle", "O", variant, MANY_NODES)
    return Job(cell, lambda repetition, log: idle.measure(cell, repetition, log, window=WINDOW, beside=beside))
