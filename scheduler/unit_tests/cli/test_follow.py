import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_scheduler.cli.options import Output, RefusedInputError
from gpu_scheduler.cli.verbs.show import health, nodes, workloads
from unit_tests.cli.scripted_cluster import MONITORS, Capsys, cluster, device, node, pod
from unit_tests.cli.test_watch_state import ended, event, listed, quick
from unit_tests.kube.server import FakeServer, Watch, until

PODS, MINE = "/api/v1/pods", "/api/v1/namespaces/ml/pods"
THEIRS = "/apis/agentaflow.io/v1/namespaces/ml/gpuworkloads"
NODES = "/api/v1/nodes"


class Printed:
    """What the verb has printed so far."""

    def __init__(self, capsys: Capsys) -> None:
        """Start empty."""
        self._capsys = capsys
        self.text = ""

    def has(self, *words: str) -> bool:
        """Whether all these words were printed."""
        self.text += self._capsys.readouterr().out
        return all(word in self.text for word in words)


def idle(server: FakeServer, *paths: str) -> None:
    """Let these watches have no events."""
    for path in paths:
        server.on("WATCH", path, Watch())


# Watches that end at once follow each other without a pause, so no virtual time would pass.
@pytest.mark.clock("real")
async def test_nodes_are_followed(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Titles and rows, then a row for each change, aligned. Other nodes are not shown. What is deleted is only that."""
    quick(monkeypatch)
    printed = Printed(capsys)
    cordoned = event("MODIFIED", node("node1", device(0), spec={"unschedulable": True}))
    gone = event("DELETED", node("node1", device(0)))
    listing = listed("1", node("node1", device(0)), node("node2", device(0)))
    async with cluster(tmp_path, nodes=listing) as (server, options):
        idle(server, PODS, MONITORS)
        # Changes that come within one moment are one row, so each is sent when the one before it is printed.
        server.on("WATCH", NODES, Watch(close=True))
        task = asyncio.create_task(nodes(replace(options, watch=True), ["node1"]))
        for shown, then in (("Ready", cordoned), ("Ready,cordoned", gone)):
            await until(lambda shown=shown: printed.has(shown), 10)
            server.on("WATCH", NODES, Watch((then,), close=True))
        await until(lambda: printed.has("Deleted"), 10)
        await ended(task)

    rows = [line.split()[:3] for line in printed.text.splitlines()]
    assert rows[0] == ["NAME", "ALIAS", "STATUS"]
    assert [row[2] for row in rows[1:]] == ["Ready", "Ready,cordoned", "Deleted"]
    assert {row[0] for row in rows[1:]} == {"node1"}


async def test_a_selector_of_a_watch_is_the_api_servers(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nodes by labels and fields; of workloads by fields only pods can be watched."""
    quick(monkeypatch)
    printed = Printed(capsys)
    chosen: dict[str, Any] = {
        "selector": "a=b",
        "field_selector": "metadata.name!=x",
        "watch": True,
        "output": Output.JSON,
    }
    async with cluster(tmp_path, nodes=listed("1", node("node1", device(0))), mine=listed("1", pod("a-0"))) as (
        server,
        options,
    ):
        idle(server, PODS, MONITORS, NODES, MINE)
        task = asyncio.create_task(health(replace(options, **chosen)))
        await until(lambda: printed.has('"Card"'), 10)
        await ended(task)
        task = asyncio.create_task(workloads(replace(options, **chosen)))
        await until(lambda: printed.has('"Workload"'), 10)
        await ended(task)

    asked = {each.path: each.query for each in server.asked("WATCH")}
    assert (asked[NODES]["labelSelector"], asked[NODES]["fieldSelector"]) == ("a=b", "metadata.name!=x")
    assert asked[MINE]["fieldSelector"] == "spec.schedulerName=gpu-scheduler,metadata.name!=x"
    first = json.loads(printed.text.splitlines()[0])
    assert (first["type"], first["object"]["kind"], first["object"]["device"]) == ("ADDED", "Card", "0")


async def test_workloads_are_followed_in_their_namespace(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUWorkloads too. Rights on the namespace are enough."""
    quick(monkeypatch)
    printed = Printed(capsys)
    workload: dict[str, Any] = {"metadata": {"namespace": "ml", "name": "tune", "uid": "u"}, "spec": {}}
    workload["spec"]["podTemplate"] = {"spec": {}}
    async with cluster(tmp_path, mine=listed("1", pod("a-0")), my_workloads=listed("1", workload)) as (server, options):
        idle(server, THEIRS)
        idle(server, MINE)
        task = asyncio.create_task(workloads(replace(options, watch=True, output=Output.NAME)))
        await until(lambda: printed.has("/tune"), 10)
        await ended(task)

    assert not server.asked("GET", NODES)


@pytest.mark.parametrize("more", [{"output": Output.YAML}, {"sort_by": ".name"}])
async def test_what_has_an_end_cannot_be_followed(more: dict[str, Any], tmp_path: Path) -> None:
    """A document, or a sorted list."""
    async with cluster(tmp_path) as (_, options):
        with pytest.raises(RefusedInputError, match=r"^cannot watch a list that has an end: the output must be one of"):
            await nodes(replace(options, watch=True, **more))
