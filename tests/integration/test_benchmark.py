"""The benchmark measures what it says: each contender on a small backlog, and what it did is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import arrivals, backlog, growth
from bench.contenders.blasting import Limit
from bench.contenders.kube_scheduler import KubeScheduler
from bench.contenders.naive import Naive
from bench.contenders.ours import Ours, as_shipped
from bench.figures import reads_a_pod, writes_a_pod
from bench.results import Cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.contenders.contender import Contender

NODES, PODS = 10, 100
CONTENDERS: dict[str, tuple[Callable[[], Contender], float, int]] = {
    "the limit": (lambda: Limit("curl", 8, events=True), 2, PODS),
    "the limit without events": (lambda: Limit("go", 8, events=False), 1, PODS),
    "ours": (Ours, 2, PODS),
    "kube-scheduler": (lambda: KubeScheduler(throttled=False), 2, 0),
    "a naive scheduler": (Naive, 1, 0),
}


@pytest.mark.parametrize(("make", "writes", "devices"), CONTENDERS.values(), ids=CONTENDERS)
def test_a_contender_places_a_backlog(make: Callable[[], Contender], writes: float, devices: int) -> None:
    """Every pod where its map says, every GPU given once, every event once, and every call counted."""
    contender = make()
    told: list[str] = []

    measured = backlog.measure(Cell("W1", contender.name, "", NODES, PODS), contender, 1, told.append)

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

    measured = arrivals.measure(Cell("W4", "O", "50/s", NODES, 60), 1, told.append, rate=50, crowd=20)

    assert measured.wrong == []
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
