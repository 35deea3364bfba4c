import asyncio
import io
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from gpu_scheduler.cli.installation import Installation
from gpu_scheduler.cli.options import FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.snapshot import read_node, read_pod
from gpu_scheduler.cli.verbs import watch as watch_module
from gpu_scheduler.cli.verbs.watch import watch
from gpu_scheduler.cli.verbs.watch_screen import live_screen, screen
from gpu_scheduler.cli.verbs.watch_state import Key, View, WatchState, changes, line_of
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.kube.objects.pods import read_resident
from tests.cli.world import MONITORS, card, cluster, items, lease, node, pod
from tests.kube.server import Reply, Watch, until
from tests.objects import Object

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
NODE: Key = ("Node", "", "node1")


def encoded(body: Object) -> bytes:
    return json.dumps(body).encode()


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


def scene(clock: Clock | None = None, namespace: str | None = None) -> WatchState:
    """One node with two cards, and a pod on the first."""
    made = WatchState(Installation(), namespace, clock or Clock(), Clock())
    made.nodes.handler.applied(read_node(encoded(node("node1", card(0), card(1)))))
    made.pods.handler.applied(read_pod(encoded(pod("a-0", "node1", "0"))))
    return made


def lines(before: dict[Key, View], after: dict[Key, View]) -> list[str]:
    """What is told of the difference."""
    return [" ".join(line_of(*each).split()) for each in changes(before, after)]


def test_a_scene_tells_what_the_other_verbs_tell() -> None:
    """Nodes first, each with who holds what."""
    assert lines({}, scene().view()) == [
        "node node1 Ready, 2 GPUs, 1 held, 1 free, 10% busy, healthy",
        "workload ml/a-0 Running on node1, GPU 0",
    ]


def test_only_what_changed_is_told() -> None:
    """A pod that waits, one that is gone, and the node that both change."""
    made = scene()
    before = made.view()
    made.pods.handler.applied(read_pod(encoded(pod("b-0", message="GpuHeld: GPU 0 of node1 is held"))))
    made.pods.handler.applied(read_pod(encoded(pod("c-0"))))
    made.pods.handler.forgotten(read_pod(encoded(pod("a-0", "node1", "0"))))

    assert lines(before, made.view()) == [
        "node node1 Ready, 2 GPUs, 0 held, 2 free, 10% busy, healthy",
        "workload ml/b-0 Pending: GpuHeld: GPU 0 of node1 is held",
        "workload ml/c-0 Pending: not looked at yet",
        "workload ml/a-0 gone",
    ]


def test_an_observer_is_marked() -> None:
    """In the lines of a pipe and on the live screen."""
    made = scene()
    made.pods.handler.applied(read_pod(encoded(pod("o-0", "node1", "0", observer="true", count="1"))))
    made.pods.handler.applied(read_pod(encoded(pod("o-1", message="GpuNotFound: none", observer="true", count="1"))))
    printed = io.StringIO()
    Console(file=printed, width=200).print(screen(made.view(), datetime.now(UTC)))

    assert lines({}, made.view()) == [
        "node node1 Ready, 2 GPUs, 1 held, 1 free, 10% busy, healthy",
        "workload ml/a-0 Running on node1, GPU 0",
        "workload ml/o-0 Running on node1, GPU 0 (observer)",
        "workload ml/o-1 Pending (observer): GpuNotFound: none",
    ]
    assert printed.getvalue().count("(observer)") == 2


def test_a_monitor_that_falls_silent_is_noticed_by_the_clock() -> None:
    """And its return too; a Lease that is taken away says nothing of the node."""
    clock = Clock()
    made = scene(clock)
    made.monitors.applied(MonitorLease("node1", "1970-01-01T00:00:00Z", 15))
    made.changed.clear()
    clock.now = 14
    made.tick()
    assert not made.changed.is_set()

    clock.now = 16
    made.tick()
    assert made.changed.is_set()
    assert lines({}, made.view())[0] == "node node1 Ready, monitor silent, 2 GPUs, 1 held, 0 free, 10% busy, healthy"

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
    """Cards are everybody's."""
    assert lines({}, scene(namespace="other").view()) == ["node node1 Ready, 2 GPUs, 1 held, 1 free, 10% busy, healthy"]


def test_a_node_that_nobody_counts_and_nobody_may_use() -> None:
    """Cards of a device plugin are counted with others' pods."""
    made = scene()
    plugin = {"nvidia.com/gpu": "4"}
    status = {"conditions": [], "allocatable": plugin, "capacity": plugin}
    made.nodes.handler.applied(read_node(encoded(node("node2", status=status, spec={"unschedulable": True}))))
    made.nodes.handler.applied(read_node(encoded(node("node3"))))
    stranger = pod("s", "node2")
    stranger["spec"]["containers"][0]["resources"] = {"requests": plugin}
    made.residents.handler.applied(read_resident(encoded(stranger))[1])

    assert lines({}, made.view())[1:3] == [
        "node node2 NotReady, cordoned, 4 GPUs, 4 held, 0 free",
        "node node3 Ready, GPUs unknown, 0 held, 0 free",
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_the_screen_shows_both_tables(*, wide: bool) -> None:
    """Under a line of totals."""
    console = Console(width=200, force_terminal=False, record=True, file=io.StringIO())
    console.print(screen(scene().view(), datetime(2026, 1, 1, tzinfo=UTC), wide=wide))

    text = console.export_text()
    assert text.startswith("00:00:00  2 GPUs known, 1 held, 1 free; 1 workload, 0 pending; Ctrl-C ends")
    assert ("HELD BY" in text) is wide
    assert "a-0" in text


def test_the_last_screen_stays(capsys: pytest.CaptureFixture[str]) -> None:
    """When the watch has ended."""
    with live_screen(wide=False) as show:
        show(scene().view())

    assert "node1" in capsys.readouterr().out


def listed(version: str, *bodies: Object) -> Reply:
    return Reply(body={"metadata": {"resourceVersion": version}, "items": list(bodies)})


def event(kind: str, body: Object) -> Object:
    return {"type": kind, "object": {**body, "metadata": {**body["metadata"], "resourceVersion": "2"}}}


async def ended(task: asyncio.Task[int]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "_BREATH", 0.05)
    monkeypatch.setattr(watch_module, "_TICK", 0.1)


async def test_a_pipe_gets_a_line_for_each_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First what there is, then what happens."""
    quick(monkeypatch)
    printed = ""

    def said(text: str) -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return text in printed

    plugin = {"nvidia.com/gpu": "4"}
    counted = node("node2", status={"conditions": [], "allocatable": plugin, "capacity": plugin})
    async with cluster(tmp_path, nodes=listed("1", node("node1", card(0)), counted)) as (server, options):
        for path, events in ((NODES, ()), (PODS, (event("ADDED", pod("a-0", "node1", "0")),)), (MONITORS, ())):
            server.on("WATCH", path, Watch(events=events))
        task = asyncio.create_task(watch(options))
        await until(lambda: said("Running on node1, GPU 0"), 10)
        await ended(task)

    rows = [" ".join(line.split()[1:]) for line in printed.splitlines() if line[:4].isdigit() and "Z  " in line]
    assert {
        "node node1 Ready, 1 GPU, 1 held, 0 free, 10% busy, healthy",
        "node node2 NotReady, 4 GPUs, 0 held, 0 free",
        "workload ml/a-0 Running on node1, GPU 0",
    } <= set(rows)
    assert any("spec.schedulerName!=" in each.query.get("fieldSelector", "") for each in server.asked("WATCH", PODS))


async def test_a_pipe_may_get_objects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In kubectl's words: ADDED, MODIFIED, DELETED."""
    quick(monkeypatch)
    found: list[Any] = []

    def objects() -> bool:
        found.extend(json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{"))
        return bool(found)

    async with cluster(tmp_path, nodes=listed("1", node("node1", card(0))), monitors=items(lease("node1"))) as (
        server,
        options,
    ):
        for path in (NODES, PODS, MONITORS):
            server.on("WATCH", path, Watch())
        task = asyncio.create_task(watch(replace(options, output=Output.JSON)))
        await until(objects, 10)
        await ended(task)

    assert (found[0]["type"], found[0]["object"]["kind"], found[0]["object"]["name"]) == ("ADDED", "Node", "node1")


async def test_a_reader_who_has_gone_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `| head -1` does; nothing is wrong."""
    quick(monkeypatch)
    gone = (tmp_path / "gone").open("w", encoding="utf-8")

    class Closed:
        """Standard output that nobody reads."""

        def isatty(self) -> bool:
            return False

        def write(self, _: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            pass

        def fileno(self) -> int:
            return gone.fileno()

    monkeypatch.setattr(sys, "stdout", Closed())
    async with cluster(tmp_path, nodes=listed("1", node("node1", card(0)))) as (server, options):
        for path in (NODES, PODS, MONITORS):
            server.on("WATCH", path, Watch())
        assert await watch(options) == 0
    gone.close()


async def test_a_terminal_gets_a_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is drawn again when something changes."""
    quick(monkeypatch)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    async with cluster(tmp_path, nodes=listed("1", node("node1", card(0)))) as (server, options):
        for path in (NODES, PODS, MONITORS):
            server.on("WATCH", path, Watch())
        task = asyncio.create_task(watch(options))
        printed = io.StringIO()
        await until(lambda: printed.write(capsys.readouterr().out) and "node1" in printed.getvalue(), 10)
        await ended(task)

    assert "1 GPU known" in printed.getvalue()


async def test_what_may_not_be_listed_is_told_at_once(tmp_path: Path) -> None:
    """And not tried for ever."""
    async with cluster(tmp_path, nodes=Reply(403, {"message": "forbidden"})) as (_, options):
        with pytest.raises(FailedError, match=r"^cannot list nodes: HTTP 403"):
            await watch(options)


@pytest.mark.parametrize("output", [Output.YAML, Output.NAME])
async def test_what_has_no_end_is_no_document(output: Output) -> None:
    """Lines or a screen."""
    with pytest.raises(RefusedInputError, match=f'^cannot watch as "{output}": it must be one of table, wide, json'):
        await watch(Options(output=output))
