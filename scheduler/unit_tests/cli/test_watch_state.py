import asyncio
import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.installation import Installation
from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.snapshot import read_node, read_pod
from gpu_scheduler.cli.verbs import watch as watch_module
from gpu_scheduler.cli.verbs.watch import watch
from gpu_scheduler.cli.verbs.watch_screen import content_of
from gpu_scheduler.cli.verbs.watch_state import Key, View, WatchState, changes, line_of
from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.kube.objects.pods import read_foreign_pod
from tests.objects import Object
from unit_tests.cli.scripted_cluster import MONITORS, Capsys, cluster, device, items, lease, node, pod
from unit_tests.kube.server import Reply, Watch, until

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
NODE: Key = ("Node", "", "node1")


def encoded(body: Object) -> bytes:
    return json.dumps(body).encode()


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


def watch_state(clock: Clock | None = None, namespace: str | None = None) -> WatchState:
    """Return a state of one node with two devices, and a pod on the first."""
    clock = clock or Clock()
    made = WatchState(Installation(), namespace, clock, clock)
    made.nodes.handler.applied(read_node(encoded(node("node1", device(0), device(1)))))
    made.pods.handler.applied(read_pod(encoded(pod("a-0", "node1", "0"))))
    return made


def lines(before: dict[Key, View], after: dict[Key, View]) -> list[str]:
    """Return the lines that report the difference."""
    return [" ".join(line_of(*each).split()) for each in changes(before, after)]


def test_a_watch_shows_nodes_and_workloads() -> None:
    """Nodes first, with their held devices, then workloads."""
    assert lines({}, watch_state().view()) == [
        "node node1 Ready, 2 GPUs, 1 held, 1 free, 10% busy, healthy",
        "workload ml/a-0 Running on node1, GPU 0",
    ]


@pytest.mark.promise("cli-5")
def test_only_changes_are_printed() -> None:
    """A pod that waits, a pod that is gone, and the node that both change."""
    made = watch_state()
    before = made.view()
    made.pods.handler.applied(read_pod(encoded(pod("b-0", message="GpuHeld: GPU 0 of node1 is held"))))
    made.pods.handler.applied(read_pod(encoded(pod("c-0"))))
    made.pods.handler.forgotten(read_pod(encoded(pod("a-0", "node1", "0"))))

    assert lines(before, made.view()) == [
        "node node1 Ready, 2 GPUs, 0 held, 2 free, 10% busy, healthy",
        "workload ml/b-0 Pending: GpuHeld: GPU 0 of node1 is held",
        "workload ml/c-0 Pending: not tried yet",
        "workload ml/a-0 gone",
    ]


def test_an_observer_is_marked() -> None:
    """In the lines of a pipe and on the live screen."""
    made = watch_state()
    made.pods.handler.applied(read_pod(encoded(pod("o-0", "node1", "0", observer="true", count="1"))))
    made.pods.handler.applied(read_pod(encoded(pod("o-1", message="GpuNotFound: none", observer="true", count="1"))))
    content = content_of(made.view(), made.facts, datetime.now(UTC), width=200, wide=False, coloured=False)

    assert lines({}, made.view()) == [
        "node node1 Ready, 2 GPUs, 1 held, 1 free, 10% busy, healthy",
        "workload ml/a-0 Running on node1, GPU 0",
        "workload ml/o-0 Running on node1, GPU 0 (observer)",
        "workload ml/o-1 Pending (observer): GpuNotFound: none",
    ]
    assert "".join(content.body).count("(observer)") == 2


def test_a_cordoned_gpu_is_not_free_until_its_cordon_ends() -> None:
    """By the clock, which no watch event reports, or because an operator removes it (P6)."""
    clock = Clock()
    made = watch_state(clock)
    free, cordoned = (f"node node1 Ready, 2 GPUs, 1 held, {count} free, 10% busy, healthy" for count in (1, 0))
    cordons = NodeCordons("node1", (Cordon("1", until="1970-01-01T00:01:00Z"),))
    made.cordons.applied(cordons)
    assert made.changed.is_set()
    assert lines({}, made.view())[0] == cordoned

    made.changed.clear()
    clock.now = 59
    made.tick()
    assert not made.changed.is_set()
    clock.now = 60
    made.tick()
    assert made.changed.is_set()
    assert lines({}, made.view())[0] == free

    made.cordons.applied(NodeCordons("node1", (Cordon("1"),)))
    assert lines({}, made.view())[0] == cordoned
    made.changed.clear()
    made.cordons.forgotten(cordons)
    assert made.changed.is_set()
    assert lines({}, made.view())[0] == free


def test_a_monitor_that_does_not_renew_is_noticed_by_the_clock() -> None:
    """Its next renewal is noticed too. A deleted Lease says nothing about the node."""
    clock = Clock()
    made = watch_state(clock)
    made.monitors.applied(MonitorLease("node1", "1970-01-01T00:00:00Z", 15))
    made.changed.clear()
    clock.now = 14
    made.tick()
    assert not made.changed.is_set()

    clock.now = 16
    made.tick()
    assert made.changed.is_set()
    assert lines({}, made.view())[0] == "node node1 Ready, monitor stale, 2 GPUs, 1 held, 0 free, 10% busy, healthy"

    made.changed.clear()
    made.monitors.applied(MonitorLease("node1", "1970-01-01T00:00:16Z", 15))
    assert made.changed.is_set()
    clock.now = 40
    made.tick()
    made.changed.clear()
    made.monitors.forgotten(MonitorLease("node1", "1970-01-01T00:00:16Z", 15))
    assert made.changed.is_set()
    made.changed.clear()
    made.monitors.forgotten(MonitorLease("node1", "1970-01-01T00:00:16Z", 15))
    assert not made.changed.is_set()


def test_workloads_of_one_namespace_only() -> None:
    """Devices belong to no namespace."""
    assert lines({}, watch_state(namespace="other").view()) == [
        "node node1 Ready, 2 GPUs, 1 held, 1 free, 10% busy, healthy"
    ]


def test_a_cordoned_node_and_a_node_without_an_inventory() -> None:
    """Devices of a device plugin are counted with foreign pods."""
    made = watch_state()
    plugin = {"nvidia.com/gpu": "4"}
    status = {"conditions": [], "allocatable": plugin, "capacity": plugin}
    made.nodes.handler.applied(read_node(encoded(node("node2", status=status, spec={"unschedulable": True}))))
    made.nodes.handler.applied(read_node(encoded(node("node3"))))
    foreign_pod = pod("s", "node2")
    foreign_pod["spec"]["containers"][0]["resources"] = {"requests": plugin}
    made.foreign_pods.handler.applied(read_foreign_pod(encoded(foreign_pod))[1])

    assert lines({}, made.view())[1:3] == [
        "node node2 NotReady, cordoned, 4 GPUs, 4 held, 0 free",
        "node node3 Ready, GPUs unknown, 0 held, 0 free",
    ]


def listed(version: str, *bodies: Object) -> Reply:
    return Reply(body={"metadata": {"resourceVersion": version}, "items": list(bodies)})


def event(kind: str, body: Object) -> Object:
    return {"type": kind, "object": {**body, "metadata": {**body["metadata"], "resourceVersion": "2"}}}


async def ended(task: asyncio.Task[int]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_BATCH_SECONDS", 0.05)
    monkeypatch.setattr(watch_module, "_TICK_SECONDS", 0.1)


async def test_a_pipe_gets_a_line_for_each_change(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the state of the cluster, then each change."""
    quick(monkeypatch)
    printed = ""

    def has_printed(text: str) -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return text in printed

    plugin = {"nvidia.com/gpu": "4"}
    counted = node("node2", status={"conditions": [], "allocatable": plugin, "capacity": plugin})
    async with cluster(tmp_path, nodes=listed("1", node("node1", device(0)), counted)) as (server, options):
        for path, events in ((NODES, ()), (PODS, (event("ADDED", pod("a-0", "node1", "0")),)), (MONITORS, ())):
            server.on("WATCH", path, Watch(events=events))
        task = asyncio.create_task(watch(options))
        await until(lambda: has_printed("Running on node1, GPU 0"), 10)
        await ended(task)

    rows = [" ".join(line.split()[1:]) for line in printed.splitlines() if line[:4].isdigit() and "Z  " in line]
    assert {
        "node node1 Ready, 1 GPU, 1 held, 0 free, 10% busy, healthy",
        "node node2 NotReady, 4 GPUs, 0 held, 0 free",
        "workload ml/a-0 Running on node1, GPU 0",
    } <= set(rows)
    assert any("spec.schedulerName!=" in each.query.get("fieldSelector", "") for each in server.asked("WATCH", PODS))


async def test_a_pipe_may_get_objects(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """With kubectl's event types: ADDED, MODIFIED, DELETED."""
    quick(monkeypatch)
    found: list[Any] = []

    def objects() -> bool:
        found.extend(json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
        return bool(found)

    async with cluster(tmp_path, nodes=listed("1", node("node1", device(0))), monitors=items(lease("node1"))) as (
        server,
        options,
    ):
        for path in (NODES, PODS, MONITORS):
            server.on("WATCH", path, Watch())
        task = asyncio.create_task(watch(replace(options, output=Output.JSON)))
        await until(objects, 10)
        await ended(task)

    assert (found[0]["type"], found[0]["object"]["kind"], found[0]["object"]["name"]) == ("ADDED", "Node", "node1")


async def test_a_closed_pipe_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`| head -1` closes it. The exit code is 0."""
    quick(monkeypatch)
    gone = (tmp_path / "gone").open("w", encoding="utf-8")

    class Closed:
        """A standard output whose reader has closed it."""

        def isatty(self) -> bool:
            return False

        def write(self, _: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            pass

        def fileno(self) -> int:
            return gone.fileno()

    monkeypatch.setattr(sys, "stdout", Closed())
    async with cluster(tmp_path, nodes=listed("1", node("node1", device(0)))) as (server, options):
        for path in (NODES, PODS, MONITORS):
            server.on("WATCH", path, Watch())
        assert await watch(options) == 0
    gone.close()


async def test_a_terminal_gets_a_screen(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen is redrawn after each change."""
    quick(monkeypatch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    async with cluster(tmp_path, nodes=listed("1", node("node1", device(0)))) as (server, options):
        for path in (NODES, PODS, MONITORS):
            server.on("WATCH", path, Watch())
        task = asyncio.create_task(watch(options))
        printed = io.StringIO()
        await until(lambda: printed.write(capsys.readouterr().out) and "node1" in printed.getvalue(), 10)
        await ended(task)

    assert "1 GPU known" in printed.getvalue()


async def test_a_forbidden_list_is_reported_at_once(tmp_path: Path) -> None:
    """The watch does not retry it for ever."""
    async with cluster(tmp_path, nodes=Reply(403, {"message": "forbidden"})) as (_, options):
        with pytest.raises(FailedError, match=r"^cannot list nodes: HTTP 403"):
            await watch(options)


@pytest.mark.parametrize("output", [Output.YAML, Output.NAME])
async def test_a_watch_is_no_document(output: Output) -> None:
    """A watch has no end: it prints lines or a screen."""
    with pytest.raises(RefusedInputError, match=f'^cannot watch as "{output}": it must be one of table, wide, json'):
        await watch(Options(output=output))
