"""The benchmark measures correctly: each contender places a few pods, and the result is audited."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest

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
    tenants,
)
from bench.claimed_pods import ClaimedPods
from bench.cluster_objects import MappedPods
from bench.contenders.kube_scheduler import KubeScheduler, KubeSchedulerWithClaims
from bench.contenders.limit import Arriving, Limit
from bench.contenders.naive import Naive
from bench.contenders.ours import ColdStart, GpuScheduler, Predecided
from bench.counted_pods import CountedPods
from bench.figures import (
    answer_rate,
    cpu_a_pod,
    idle_share,
    memory_beside_pods,
    memory_growth,
    reads_a_pod,
    writes_a_pod,
)
from bench.results import Cell
from tests.waiting import slowness

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.contender import Contender
    from bench.results import Measured

NODES, PODS = 10, 100
CONTENDERS: dict[str, tuple[Callable[[], Contender], float, int]] = {
    "the limit": (lambda: Limit("curl", 8, events=True), 2, PODS),
    "the limit without events": (lambda: Limit("go", 8, events=False), 1, PODS),
    "the limit by aiohttp": (lambda: Limit("aiohttp", 8, events=True), 2, PODS),
    "the limit while pods arrive": (lambda: Arriving("go", 8, MappedPods(NODES, PODS)), 3, PODS),
    "ours": (GpuScheduler, 2, PODS),
    "our floor": (Predecided, 2, PODS),
    "kube-scheduler": (lambda: KubeScheduler(throttled=False), 2, 0),
    "a naive scheduler": (Naive, 1, 0),
}


def faults(measured: Measured) -> list[str]:
    """Return the faults of a measurement, without late pods: on a busy machine the stream of pods is late."""
    return [why for why in measured.wrong if " late by " not in why]


@pytest.mark.parametrize(("make", "writes", "devices"), CONTENDERS.values(), ids=CONTENDERS)
def test_a_contender_places_pending_pods(make: Callable[[], Contender], writes: float, devices: int) -> None:
    """Each pod is on the node of its map, each GPU is given once, each event is written once, each call is counted."""
    contender = make()
    reported: list[str] = []

    measured = pending_pods.measure(Cell("W1", contender.name, "", NODES, PODS), contender, 1, reported.append)

    assert measured.wrong == []
    assert (measured.bound, measured.devices) == (PODS, devices)
    assert measured.events == (PODS if contender.events else 0)
    assert measured.to_last_bind > 0
    assert sum(measured.each_tenth) == PODS
    assert writes_a_pod(measured) == writes
    assert measured.costs[contender.name].cpu > 0
    assert reported[0] == "making 10 nodes and 100 pods"
    if isinstance(contender, Naive):
        assert reads_a_pod(measured) == 1


CLAIMING: dict[str, tuple[Callable[[], Contender], float]] = {
    "ours": (lambda: GpuScheduler(ISOLATION="dra"), 4),
    "kube-scheduler": (lambda: KubeScheduler(throttled=False), 5),
    "kube-scheduler while its claims are created": (lambda: KubeSchedulerWithClaims(ClaimedPods(NODES, PODS)), 6),
}


@pytest.mark.parametrize(("make", "writes"), CLAIMING.values(), ids=CLAIMING)
def test_a_contender_allocates_a_claim_to_each_pending_pod(make: Callable[[], Contender], writes: float) -> None:
    """Each claim has one GPU of its pod's node, each GPU is allocated once, and claims are created inside the clock."""
    contender = make()
    before, cell = contender.name == "K", Cell("claims", contender.name, "", NODES, PODS)

    measured = claims.measure(cell, contender, 1, print, made_before=before)

    assert measured.wrong == []
    assert (measured.bound, measured.events) == (PODS, PODS)
    assert measured.calls.get("POST resourceclaims", 0) == (0 if before else PODS)
    assert writes_a_pod(measured) == writes


FILLERS = [
    pytest.param(*CONTENDERS[name][:2], id=name, marks=marks)
    for name, marks in (("the limit", [pytest.mark.long]), ("ours", []), ("our floor", []), ("kube-scheduler", []))
]


@pytest.mark.parametrize(("make", "writes"), FILLERS)
def test_a_contender_fills_a_fleet(make: Callable[[], Contender], writes: float) -> None:
    """Each pod gets its count of GPUs on one node, by strategy or by limit, and no GPU is given twice."""
    contender, counted = make(), CountedPods(NODES, 95)

    measured = pending_pods.fill(counted, Cell("W3", contender.name, "95%", NODES, counted.pods), contender, 1, print)

    assert measured.wrong == []
    assert (measured.bound, measured.events) == (counted.pods, counted.pods)
    assert measured.devices == (counted.gpus if contender.devices else 0)
    assert counted.gpus == 0.95 * 16 * NODES
    assert writes_a_pod(measured) == writes


def test_pods_that_arrive_are_timed_beside_many_pods_that_fit_nowhere() -> None:
    """Each pod is timed from its creation to its bind, and from its bind to its event."""
    reported: list[str] = []

    measured = arrivals.measure(Cell("W4", "O", "50/s", NODES, 60), 1, reported.append, rate=50, unschedulable=20)

    assert faults(measured) == []
    assert (measured.bound, measured.events) == (60, 60)
    assert len(measured.latencies) == len(measured.event_delays) == 60
    # 60 pods arrive at 50 a second. If all were pending at once, they would be bound in a fraction of that time.
    assert 0.9 < measured.to_last_bind < 5
    assert "waiting until 20 pods were told why they wait" in reported


def test_growth_is_measured_in_a_process_of_its_own() -> None:
    """Each figure has a value, except memory: there are too few pods and nodes to measure theirs."""
    measured = growth.measure(Cell("growth", "O", "", NODES, PODS), 1, lambda _: None)

    assert measured.wrong == []
    assert measured.growth is not None
    assert (measured.growth.pod_memory, measured.growth.node_memory) == (None, None)
    costs = (measured.growth.pinned, measured.growth.strategy, measured.growth.line, measured.growth.event)
    # Microseconds. A decision takes more than 1 and less than 10,000 of them on any machine.
    assert all(1 < cost < 10_000 for cost in costs)


def test_pods_that_are_created_and_deleted_are_measured() -> None:
    """Half of the GPUs are given twice, to one pod after another. Each pod is bound before it is deleted."""
    measured = churn.measure(Cell("W5", "O", "", 4, 96), 1, lambda _: None, rate=20, lives=2.5)

    assert faults(measured) == []
    assert (measured.bound, measured.events) == (96, 96)
    assert 96 / 20 / 4 <= measured.resident[0][0] < measured.resident[-1][0]
    assert all(30 < size < 200 for _, size in measured.resident)
    assert memory_growth(measured) is not None
    assert reads_a_pod(measured) == 0


def test_a_cold_start_is_timed_from_the_start_of_the_process() -> None:
    """One pod waits beside 50 bound ones, which stay as they are."""
    measured = cold_start.measure(Cell("W6", "O", "", NODES, 50), ColdStart(), 1, lambda _: None)

    assert measured.wrong == []
    assert (measured.bound, measured.events, measured.devices) == (1, 1, 51)
    # The start of Python alone takes longer than the lower bound.
    assert measured.first_bind is not None
    assert 0.1 < measured.first_bind < 20
    beside = memory_beside_pods(measured)
    assert beside is not None
    assert 0 < beside < measured.costs["O"].rss * 1.05


@pytest.mark.parametrize(
    ("end", "shortest"), [(signal.SIGKILL, 12.0), pytest.param(signal.SIGTERM, 0.0, marks=pytest.mark.long)]
)
def test_a_standby_takes_over_while_pods_arrive(end: signal.Signals, shortest: float) -> None:
    """Each pod is bound once. After SIGKILL the standby waits until the Lease expires, after SIGTERM it does not."""
    cell = Cell("W7", "O", end.name, NODES, 60)

    measured = failover.measure(cell, 1, lambda _: None, rate=20, end=end)

    assert faults(measured) == []
    assert (measured.bound, measured.devices) == (60, 60)
    assert measured.gap is not None
    assert measured.gap > shortest


BACKGROUND = {
    "nobody": None,
    "monitors": partial(background.monitors, interval=1.0),
    "others": partial(background.others, rate=20.0, lives=1.0),
}


@pytest.mark.parametrize("name", [pytest.param("nobody", marks=pytest.mark.long), "monitors", "others"])
def test_the_cost_of_an_idle_scheduler_is_measured(name: str) -> None:
    """Alone, beside monitors, and beside pods of another scheduler: our scheduler sends no reads and binds nothing."""
    measured = idle.measure(Cell("idle", "O", "", NODES), 1, lambda _: None, window=1, beside=BACKGROUND[name])

    assert faults(measured) == []
    assert (measured.bound, measured.window) == (0, 1)
    assert not any(call.startswith(("GET", "LIST")) for call in measured.calls)
    share = idle_share(measured)
    assert share is not None
    assert 0 <= share < 100
    made = measured.calls.get("POST pods", 0)
    # Twenty in the one second of the window, if the machine is idle.
    assert 10 / slowness() < made < 40 if name == "others" else made == 0


TENANTS = {
    "alone": None,
    "replicas": tenants.replicas(NODES, pods=30),
    "requests": tenants.requests(NODES, pods=30),
    "patches": tenants.patches(NODES, pods=3),
    "large lines": tenants.large_lines(NODES, pods=3),
}


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in [*TENANTS][:3]), *[*TENANTS][3:]]
)
def test_pods_that_arrive_are_timed_beside_a_tenant_that_burdens_the_scheduler(name: str) -> None:
    """Each is bound to its GPU; the tenant's pods wait, or share theirs, and the leader stays the leader."""
    load = TENANTS[name]

    measured = neighbours.measure(Cell("neighbour", "O", name, NODES, 10), 1, print, load=load, rate=5, lives=10)

    assert faults(measured) == []
    assert (measured.bound, len(measured.latencies)) == (10, 10)
    assert len(measured.appeared) == len(measured.creations) == 10
    assert measured.queued is not None
    assert 0 < measured.queued < max(measured.latencies)
    assert measured.memory_share is not None
    # Of 256 MiB the interpreter and our modules take 30 at least.
    assert 10 < measured.memory_share < 75
    made = 0 if load is None else len(load.pods)
    assert measured.answered > 2 * made if name == "patches" else measured.answered == made


@pytest.mark.parametrize("contender", ["O", *(pytest.param(name, marks=pytest.mark.long) for name in ("H", "P"))])
def test_creations_are_timed_with_our_webhook_and_without(contender: str) -> None:
    """Creations at once are counted, creations at a fixed rate are timed. Only our webhook sets variables of pods."""
    cell = Cell("W8", contender, "creations", NODES, PODS)

    measured = admission.creations(cell, 1, print, paced=30, rate=50)

    assert faults(measured) == []
    assert measured.answered == PODS - 30
    assert len(measured.creations) == 30
    assert answer_rate(measured) is not None
    assert measured.costs.keys() == {"client", "kube-apiserver", "etcd"} | ({contender} - {"P"})
    assert (cpu_a_pod(measured) is None) is (contender == "P")


@pytest.mark.parametrize("contender", ["O", "H"])
def test_reviews_are_counted_without_an_api_server(contender: str) -> None:
    """Our webhook patches each review. A webhook that allows all reviews is measured in the same way."""
    measured = admission.answers(Cell("W8", contender, "reviews", NODES, PODS), 1, print)

    assert measured.wrong == []
    assert measured.answered == PODS
    assert answer_rate(measured) is not None
    assert cpu_a_pod(measured) is not None
