"""The benchmark measures what it says: each contender on a small backlog, and what it did is looked at."""

from __future__ import annotations

import signal
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pytest

from bench import admission, arrivals, background, churn, cold_start, failover, growth, idle, pending_pods
from bench.cluster_objects import MappedPods
from bench.contenders.kube_scheduler import KubeScheduler
from bench.contenders.limit import Arriving, Limit
from bench.contenders.naive import Naive
from bench.contenders.ours import Cold, Floor, Ours, Sampled, as_shipped
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
from tests.integration.command import QUICK_LEASE
from tests.waiting import slowness

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.contenders.contender import Contender
    from bench.results import Measured

NODES, PODS = 10, 100
CONTENDERS: dict[str, tuple[Callable[[], Contender], float, int]] = {
    "the limit": (lambda: Limit("curl", 8, events=True), 2, PODS),
    "the limit without events": (lambda: Limit("go", 8, events=False), 1, PODS),
    "the limit while pods arrive": (lambda: Arriving("go", 8, MappedPods(NODES, PODS)), 3, PODS),
    "ours": (Ours, 2, PODS),
    "our floor": (Floor, 2, PODS),
    "kube-scheduler": (lambda: KubeScheduler(throttled=False), 2, 0),
    "a naive scheduler": (Naive, 1, 0),
}


def faults(measured: Measured) -> list[str]:
    """What is wrong with it; on a busy machine a stream comes late, which is no fault of the cell."""
    return [why for why in measured.wrong if " late by " not in why]


@pytest.mark.parametrize(("make", "writes", "devices"), CONTENDERS.values(), ids=CONTENDERS)
def test_a_contender_places_a_backlog(make: Callable[[], Contender], writes: float, devices: int) -> None:
    """Every pod where its map says, every GPU given once, every event once, and every call counted."""
    contender = make()
    told: list[str] = []

    measured = pending_pods.measure(Cell("W1", contender.name, "", NODES, PODS), contender, 1, told.append)

    assert measured.wrong == []
    assert (measured.bound, measured.devices) == (PODS, devices)
    assert measured.events == (PODS if contender.events else 0)
    assert measured.to_last_bind > 0
    assert sum(measured.each_tenth) == PODS
    assert writes_a_pod(measured) == writes
    assert measured.costs[contender.name].cpu > 0
    assert told[0] == "making 10 nodes and 100 pods"
    if isinstance(contender, Naive):
        assert reads_a_pod(measured) == 1


def test_where_our_time_goes_is_sampled(tmp_path: Path) -> None:
    """Who decides and who writes is seen; the file is written when the process has ended."""
    path = tmp_path / "samples.json"

    measured = pending_pods.measure(Cell("W1", "O", "", NODES, PODS), Sampled(path), 1, print)

    assert measured.wrong == []
    seen = "\n".join(msgspec.json.decode(path.read_bytes(), type=dict[str, int]))
    assert "scheduler.scheduling_loop:Scheduler._schedule_one" in seen
    assert "kube.http.client:ApiClient.call" in seen


FILLERS = [
    pytest.param(*CONTENDERS[name][:2], id=name, marks=marks)
    for name, marks in (("the limit", [pytest.mark.long]), ("ours", []), ("our floor", []), ("kube-scheduler", []))
]


@pytest.mark.parametrize(("make", "writes"), FILLERS)
def test_a_contender_fills_a_fleet(make: Callable[[], Contender], writes: float) -> None:
    """Every pod that asks for a count gets so many GPUs of one node, by strategy or by limit, and none twice."""
    contender, counted = make(), CountedPods(NODES, 95)

    measured = pending_pods.fill(counted, Cell("W3", contender.name, "95%", NODES, counted.pods), contender, 1, print)

    assert measured.wrong == []
    assert (measured.bound, measured.events) == (counted.pods, counted.pods)
    assert measured.devices == (counted.gpus if contender.devices else 0)
    assert counted.gpus == 0.95 * 16 * NODES
    assert writes_a_pod(measured) == writes


def test_our_arguments_and_environment_are_the_roles_own() -> None:
    """What is measured is what is installed: nothing is tuned for the benchmark."""
    arguments, env = as_shipped()

    assert arguments == ["run"]
    assert env == {
        "SCHEDULER_NAME": "gpu-scheduler",
        "LOG_LEVEL": "INFO",
        "SCHEDULING_INTERVAL": "5s",
        "GPU_SHARING": "same-workload",
        "SCHEDULING_STRATEGY": "least_utilized",
        "GPU_UTILIZATION_GOAL": "80",
        "KUBERNETES_NAMESPACE": "gpu-scheduler-system",
        "POD_NAME": "gpu-scheduler-0",
    }


def test_pods_that_arrive_are_timed_beside_a_crowd_that_fits_nowhere() -> None:
    """Each of them from its creation to its bind, and from its bind to its event."""
    told: list[str] = []

    measured = arrivals.measure(Cell("W4", "O", "50/s", NODES, 60), 1, told.append, rate=50, unschedulable=20)

    assert faults(measured) == []
    assert (measured.bound, measured.events) == (60, 60)
    assert len(measured.latencies) == len(measured.event_delays) == 60
    # 60 pods at 50 a second; who found them all there at once would be done in a fraction of that.
    assert 0.9 < measured.to_last_bind < 5
    assert "waiting until 20 pods were told why they wait" in told


def test_growth_is_measured_in_a_process_of_its_own() -> None:
    """Every quantity has a value; there are too few pods and nodes to tell their memory."""
    measured = growth.measure(Cell("growth", "O", "", NODES, PODS), 1, lambda _: None)

    assert measured.wrong == []
    assert measured.growth is not None
    assert (measured.growth.pod_memory, measured.growth.node_memory) == (None, None)
    costs = (measured.growth.pinned, measured.growth.strategy, measured.growth.line, measured.growth.event)
    # A decision takes more than a microsecond and less than ten milliseconds, on whatever machine.
    assert all(1 < cost < 10_000 for cost in costs)


def test_a_size_that_does_not_fit_is_told_as_wrong() -> None:
    """Nodes that are full have no GPU for what is measured."""
    measured = growth.measure(Cell("growth", "O", "", 3, 48), 1, lambda _: None)

    assert measured.growth is None
    assert measured.wrong == ["it ended with 1, and standard error says why"]


def test_pods_that_come_and_go_leave_nothing_behind() -> None:
    """Half of the GPUs are given twice, to one pod after the other; each was bound when it went, and nothing stayed."""
    measured = churn.measure(Cell("W5", "O", "", 4, 96), 1, lambda _: None, rate=20, lives=2.5)

    assert faults(measured) == []
    assert (measured.bound, measured.events) == (96, 96)
    assert 96 / 20 / 4 <= measured.resident[0][0] < measured.resident[-1][0]
    assert all(30 < size < 200 for _, size in measured.resident)
    assert memory_growth(measured) is not None
    assert reads_a_pod(measured) == 0


def test_a_cold_start_is_timed_from_the_start_of_the_process() -> None:
    """One pod waits beside those that are bound already; nobody touches them."""
    measured = cold_start.measure(Cell("W6", "O", "", NODES, 50), Cold(), 1, lambda _: None)

    assert measured.wrong == []
    assert (measured.bound, measured.events, measured.devices) == (1, 1, 51)
    # Python alone needs some of it.
    assert measured.first_bind is not None
    assert 0.1 < measured.first_bind < 20
    beside = memory_beside_pods(measured)
    assert beside is not None
    assert 0 < beside < measured.costs["O"].rss * 1.05


@pytest.mark.parametrize(
    ("end", "shortest"), [(signal.SIGKILL, 1.0), pytest.param(signal.SIGTERM, 0.0, marks=pytest.mark.long)]
)
def test_a_standby_goes_on_in_the_midst_of_a_stream(end: signal.Signals, shortest: float) -> None:
    """Everybody is bound once; who is killed has to be waited out, who hands over has not."""
    cell = Cell("W7", "O", end.name, NODES, 60)

    measured = failover.measure(cell, 1, lambda _: None, rate=20, end=end, **QUICK_LEASE)

    assert faults(measured) == []
    assert (measured.bound, measured.devices) == (60, 60)
    assert measured.gap is not None
    assert shortest < measured.gap < 10


BACKGROUND = {
    "nobody": None,
    "monitors": partial(background.monitors, interval=1.0),
    "others": partial(background.others, rate=20.0, lives=1.0),
}


@pytest.mark.parametrize("name", [pytest.param("nobody", marks=pytest.mark.long), "monitors", "others"])
def test_what_idleness_costs(name: str) -> None:
    """Alone, and beside what goes on and is heard of: it reads nothing, and nothing is placed."""
    measured = idle.measure(Cell("idle", "O", "", NODES), 1, lambda _: None, window=1, beside=BACKGROUND[name])

    assert faults(measured) == []
    assert (measured.bound, measured.window) == (0, 1)
    assert not any(call.startswith(("GET", "LIST")) for call in measured.calls)
    share = idle_share(measured)
    assert share is not None
    assert 0 <= share < 100
    made = measured.calls.get("POST pods", 0)
    # Twenty in the window's second, where nothing else wants the processors.
    assert 10 / slowness() < made < 40 if name == "others" else made == 0


@pytest.mark.parametrize("contender", ["O", *(pytest.param(name, marks=pytest.mark.long) for name in ("H", "P"))])
def test_creations_are_timed_with_our_webhook_and_without(contender: str) -> None:
    """Those at once are counted, those at a pace timed; pods see their GPUs where, and only where, we complete them."""
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
    """Ours patches each of them; who allows all is measured alike."""
    measured = admission.answers(Cell("W8", contender, "reviews", NODES, PODS), 1, print)

    assert measured.wrong == []
    assert measured.answered == PODS
    assert answer_rate(measured) is not None
    assert cpu_a_pod(measured) is not None


def test_our_webhook_is_the_roles_own() -> None:
    """Likewise: with its role's arguments and environment."""
    assert as_shipped("webhook") == (["webhook"], {"SCHEDULER_NAME": "gpu-scheduler", "LOG_LEVEL": "INFO"})
