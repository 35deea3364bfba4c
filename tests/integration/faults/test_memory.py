"""Memory, tasks, threads, sockets and files stay bounded while pods, nodes and faults come and go."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.auditor.auditor import auditing
from tests.integration import waiting_pods
from tests.integration.barrier import settle
from tests.integration.faults.process_usage import WITH_TASK_COUNT, UsageReader
from tests.integration.faults.proxied_replica import BINDING, EVENTS, NODES, PODS, STATUS, start_leader_behind_proxy
from tests.integration.faults.proxy_faults import WATCH, Answer, Cut, Fault, Truncate, Twice
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy import FaultProxy
    from tests.integration.faults.proxy_faults import Act
    from tests.integration.namespace import Namespace

GROWTH: Final = 12.0
"""MB by which the process may grow between the first quarter of the churn and its end."""
LIMIT: Final = 256.0
"""MB of the container's memory limit."""
ROUND: Final = 30
SECONDS: Final = 600.0
"""Of churn."""
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
def measured_scheduler(plane: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[Command]:
    """A leader behind the proxy that logs its number of asyncio tasks at SIGUSR1."""
    command = start_leader_behind_proxy(plane, proxy, tmp_path, "gauged-0", WITH_TASK_COUNT)
    yield command
    command.process.stop()


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_churn_does_not_grow_the_process(
    plane: ControlPlane, namespace: Namespace, proxy: FaultProxy, measured_scheduler: Command
) -> None:
    """Each round binds, reports and deletes pods, changes a node and injects a fault. The process does not grow."""
    with auditing(plane, measured_scheduler, proxy=proxy) as auditor:
        _churn(namespace, proxy, measured_scheduler)
        assert auditor.report() == []


def _churn(namespace: Namespace, proxy: FaultProxy, measured_scheduler: Command) -> None:
    usage_reader = UsageReader(measured_scheduler)
    began, before, rounds = time.monotonic(), usage_reader.read(), 0
    for act in itertools.cycle(FAULTS):
        _churn_round(namespace, proxy, Fault(*act), rounds)
        rounds += 1
        passed = time.monotonic() - began
        if passed < SECONDS / 4:
            before = usage_reader.read()
        if passed >= SECONDS and rounds >= len(FAULTS):
            break
    after = usage_reader.read()
    print(f"{rounds} rounds of {2 * ROUND} pods in {passed:.0f} s: {before} -> {after}")  # noqa: T201 - a figure to note
    assert after.memory - before.memory < GROWTH, (before, after)
    usage_reader.wait_not_grown(before)


POD_COUNTS: Final = [
    pytest.param(500, id="five hundred"),
    pytest.param(10_000, id="ten thousand", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
]


@pytest.mark.parametrize("count", POD_COUNTS)
def test_many_waiting_pods_fit_into_the_container(
    plane: ControlPlane, namespace: Namespace, proxy: FaultProxy, measured_scheduler: Command, count: int
) -> None:
    """F18. Memory stays below the limit while pods wait, a GPU is freed, and all are listed again and deleted."""
    usage_reader = UsageReader(measured_scheduler)
    before = usage_reader.read()
    namespace.node("node1")
    namespace.pod("holder-0", "0=node1:0\n", "0")
    namespace.wait_bound("holder-0", "node1")
    waiting_pods.gather(namespace, count)
    namespace.pod("asker-0", "0=node1:0\n1=node1:1\n", "0")
    namespace.wait_message("asker-0", "GpuHeld: ", seconds=600)
    eventually("all events are written", lambda: namespace.count_events() >= count + 3, seconds=600, pause=0.5)
    reported = usage_reader.read()
    _free_one(namespace, proxy, measured_scheduler)
    lists = proxy.count("GET", PODS)
    with proxy.breaking(Fault(WATCH, PODS, Answer(410))):
        eventually("all were listed anew", lambda: proxy.count("GET", PODS) > lists, seconds=30)
    listed = usage_reader.read()
    _empty(namespace)
    eventually("all are gone", lambda: measured_scheduler.metric("agentaflow_workloads_pending") == 0, seconds=60)
    after = usage_reader.read()
    print(f"{count} pods: {before} -> {reported} -> listed {listed} -> {after}")  # noqa: T201 - figures to note
    assert max(reported.memory, listed.memory) < LIMIT, (reported, listed)
    usage_reader.wait_not_grown(before)


def _free_one(namespace: Namespace, proxy: FaultProxy, scheduler: Command) -> None:
    """Free one GPU: the pod that waits for it is bound, and no status of another pod is written."""

    def writes() -> int:
        return sum(proxy.count(*call) for call in (("PATCH", STATUS), ("POST", EVENTS), ("POST", BINDING)))

    before = writes()
    namespace.delete("holder-0")
    namespace.wait_bound("asker-0", "node1")
    namespace.wait_event("asker-0", "Scheduled")
    settle(namespace, scheduler)
    assert writes() == before + 2


def _empty(namespace: Namespace) -> None:
    """Delete all pods, 500 at a time: one request for all would exceed the client's time-out."""
    while namespace.kube.call("GET", f"{namespace.pods}?limit=1")[1]["items"]:
        namespace.kube.call("DELETE", f"{namespace.pods}?gracePeriodSeconds=0&limit=500")


def _churn_round(namespace: Namespace, proxy: FaultProxy, fault: Fault, round_number: int) -> None:
    # The auditor counts requests by the name of a pod, so each round has names of its own.
    text = "".join(f"{line}=node1:{line}\n" for line in range(ROUND))
    namespace.node("node1", room={"pods": "1000"})
    with proxy.breaking(fault):
        for number in range(ROUND):
            namespace.pod(f"goes{round_number}-{number}", text, str(number))
            namespace.pod(f"waits{round_number}-{number}-0", f"0=node2:{number}\n", str(number))
        eventually("half are bound", lambda: namespace.count_bound() == ROUND, seconds=60)
        eventually(
            "the others report NodeNotFound", lambda: namespace.count_waiting("NodeNotFound") == ROUND, seconds=60
        )
        namespace.set_ready("node1", ready=False)
        eventually("the fault has struck", lambda: fault.struck, seconds=60)
    namespace.kube.call("DELETE", f"{namespace.pods}?gracePeriodSeconds=0")
    namespace.kube.delete("/api/v1/nodes/node1")
