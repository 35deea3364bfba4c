"""Nothing grows without end: memory, tasks, threads, sockets and files, while pods, nodes and faults come and go."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import auditing
from tests.integration import crowd
from tests.integration.faults.acts import WATCH, Answer, Cut, Fault, Truncate, Twice
from tests.integration.faults.afar import BINDING, EVENTS, NODES, PODS, STATUS, leader_afar
from tests.integration.faults.gauge import GAUGING, Gauge
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.acts import Act
    from tests.integration.faults.proxy import FaultProxy

GROWTH: Final = 12.0
"""MB that the process may have more after the churn than after its first quarter."""
LIMIT: Final = 256.0
"""MB that its container may have."""
ROUND: Final = 30
FAULTS: Final[tuple[tuple[str, str, Act], ...]] = (
    ("POST", BINDING, Cut(delivered=True)),
    (WATCH, PODS, Truncate()),
    ("PATCH", STATUS, Answer(500)),
    (WATCH, NODES, Answer(410)),
    ("POST", BINDING, Answer(503)),
    ("POST", EVENTS, Cut(delivered=False)),
    (WATCH, PODS, Answer(410)),
    ("POST", BINDING, Twice()),
)


@pytest.fixture
def gauged(plane: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[Command]:
    """A leader behind the proxy, with a gauge."""
    command = leader_afar(plane, proxy, tmp_path, "gauged-0", GAUGING)
    yield command
    command.process.stop()


CHURNS: Final = [
    pytest.param(20.0, id="twenty seconds"),
    pytest.param(600.0, id="ten minutes", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
]


@pytest.mark.parametrize("seconds", CHURNS)
def test_churn_leaves_nothing_behind(
    plane: ControlPlane, bench: Bench, proxy: FaultProxy, gauged: Command, seconds: float
) -> None:
    """Round after round pods are placed, told and taken away, nodes change, and a fault strikes: the process stays."""
    with auditing(plane, gauged, proxy=proxy) as auditor:
        _churn(bench, proxy, gauged, seconds)
        assert auditor.report() == []


def _churn(bench: Bench, proxy: FaultProxy, gauged: Command, seconds: float) -> None:
    gauge = Gauge(gauged)
    began, before, rounds = time.monotonic(), gauge.read(), 0
    for act in itertools.cycle(FAULTS):
        _turn_round(bench, proxy, Fault(*act))
        rounds += 1
        passed = time.monotonic() - began
        if passed < seconds / 4:
            before = gauge.read()
        if passed >= seconds and rounds >= len(FAULTS):
            break
    after = gauge.read()
    print(f"{rounds} rounds of {2 * ROUND} pods in {passed:.0f} s: {before} -> {after}")  # noqa: T201 - a figure to note
    assert after.memory - before.memory < GROWTH, (before, after)
    gauge.calms_down(before)


CROWDS: Final = [
    pytest.param(500, id="five hundred"),
    pytest.param(10_000, id="ten thousand", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
]


@pytest.mark.parametrize("count", CROWDS)
def test_a_crowd_that_waits_fits_into_the_container(
    plane: ControlPlane, bench: Bench, proxy: FaultProxy, gauged: Command, count: int
) -> None:
    """F18. Everybody waits and was told; one GPU is freed, all lists come anew, all go: it fits into its container."""
    gauge = Gauge(gauged)
    before = gauge.read()
    bench.node("node1")
    bench.pod("holder-0", "0=node1:0\n", "0")
    bench.wait_bound("holder-0", "node1")
    crowd.gather(bench, count)
    bench.pod("asker-0", "0=node1:0\n1=node1:1\n", "0")
    bench.wait_message("asker-0", "GpuHeld: ", seconds=600)
    eventually("everybody was told", lambda: bench.count_events() >= count + 3, seconds=600, pause=0.5)
    told = gauge.read()
    _free_one(bench, proxy)
    lists = proxy.count("GET", PODS)
    with proxy.breaking(Fault(WATCH, PODS, Answer(410))):
        eventually("all were listed anew", lambda: proxy.count("GET", PODS) > lists, seconds=30)
    listed = gauge.read()
    _empty(bench)
    eventually("all are gone", lambda: gauged.metric("agentaflow_workloads_pending") == 0, seconds=60)
    after = gauge.read()
    print(f"{count} pods: {before} -> {told} -> listed {listed} -> {after}")  # noqa: T201 - figures to note
    assert max(told.memory, listed.memory) < LIMIT, (told, listed)
    gauge.calms_down(before)


def _free_one(bench: Bench, proxy: FaultProxy) -> None:
    """The one who waits for that GPU is bound at once, and of the crowd nobody is told anything."""

    def writes() -> int:
        return sum(proxy.count(*call) for call in (("PATCH", STATUS), ("POST", EVENTS), ("POST", BINDING)))

    before, freed = writes(), time.monotonic()
    bench.delete("holder-0")
    bench.wait_bound("asker-0", "node1", seconds=5)
    took = time.monotonic() - freed
    print(f"bound {took:.2f} s after its GPU was free")  # noqa: T201 - a figure to note
    assert took <= limit(2)
    bench.wait_event("asker-0", "Scheduled")
    time.sleep(1)
    assert writes() == before + 2


def _empty(bench: Bench) -> None:
    """In pieces: nobody waits so long for an answer as a crowd takes to go."""
    while bench.kube.call("GET", f"{bench.pods}?limit=1")[1]["items"]:
        bench.kube.call("DELETE", f"{bench.pods}?gracePeriodSeconds=0&limit=500")


def _turn_round(bench: Bench, proxy: FaultProxy, fault: Fault) -> None:
    text = "".join(f"{line}=node1:{line}\n" for line in range(ROUND))
    bench.node("node1", room={"pods": "1000"})
    with proxy.breaking(fault):
        for number in range(ROUND):
            bench.pod(f"goes-{number}", text, str(number))
            bench.pod(f"waits{number}-0", f"0=node2:{number}\n", str(number))
        eventually("half are bound", lambda: bench.count_bound() == ROUND, seconds=60)
        eventually("the others are told", lambda: bench.count_told("NodeNotFound") == ROUND, seconds=60)
        bench.set_ready("node1", ready=False)
        eventually("the fault has struck", lambda: fault.struck, seconds=60)
    bench.kube.call("DELETE", f"{bench.pods}?gracePeriodSeconds=0")
    bench.kube.delete("/api/v1/nodes/node1")
