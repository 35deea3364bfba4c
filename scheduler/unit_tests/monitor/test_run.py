"""A whole monitor in this process, against a scripted API server."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest

from gpu_scheduler.monitor.listed import ListedFirst
from gpu_scheduler.monitor.nvml import NvmlSource
from gpu_scheduler.monitor.run import MonitorProcess, run_monitor
from gpu_scheduler.settings import MonitorSettings
from tests import objects
from tests.messages import text_of
from tests.ports import free_port
from unit_tests.kube.server import FakeServer, Reply, Watch, connected, until
from unit_tests.programs import ask, end_by_sigterm, running, stored, taken_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.objects import Object

# The package's `monitor` is the command; this is its module.
WIRING = import_module("gpu_scheduler.monitor.run")
NODE = "/api/v1/nodes/node1"
GPUNODE = "/apis/agentaflow.io/v1/gpunodes/node1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-monitor/leases/node1"
GPUNODES = "/apis/agentaflow.io/v1/gpunodes"
INVENTORY = "node1: [{count: 2, model: A100-40GB, memoryTotalMiB: 40960}]\n"
BUSY = stored(
    objects.pod("a", None, objects.literal("1"), nodeName="node1"), "uid-a", {"phase": "Running"}, resourceVersion="7"
)
CORDON: Object = {"device": "1", "reason": "reset", "by": "ann", "since": "2026-11-21T12:00:00Z"}
CORDONED: Object = {
    "metadata": {"name": "node1", "uid": "uid-g", "resourceVersion": "8"},
    "spec": {"nodeName": "node1", "cordoned": [CORDON]},
}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "inventory.yaml"
    file.write_text(INVENTORY)
    return file


def declare(inventory: Path, text: str) -> None:
    inventory.write_text(text)


def settings(inventory: Path, **others: Any) -> MonitorSettings:
    given = {
        "node_name": "node1",
        "bind_address": "127.0.0.1",
        "http_port": free_port(),
        "kubernetes_namespace": "gpu-scheduler-monitor",
        "pod_name": "monitor-x",
        "monitor_source": "simulated",
        "monitor_interval": 0.05,
        "simulated_inventory": inventory,
    }
    return MonitorSettings(**{**given, **others})


def script(server: FakeServer, *, lease: int = 200, kind: int = 404) -> None:
    """Script an API server that accepts a monitor's writes and has one pod on its node.

    If it serves the `kind` GPUNode (200), device 1 of the node becomes cordoned.
    """
    server.on("PATCH", NODE, Reply(body={"metadata": {"name": "node1", "uid": "uid-1"}}))
    server.on("PATCH", GPUNODE, Reply(kind))
    server.on("PATCH", f"{GPUNODE}/status", Reply())
    server.on("PATCH", LEASE, Reply(lease))
    server.on("GET", GPUNODES, Reply(kind, {"metadata": {"resourceVersion": "7"}, "items": []}))
    server.on("WATCH", GPUNODES, Watch(({"type": "ADDED", "object": CORDONED},)))
    server.on("GET", "/api/v1/pods", Reply(body={"metadata": {"resourceVersion": "7"}, "items": [BUSY]}))
    server.on("WATCH", "/api/v1/pods", Watch(({"type": "DELETED", "object": BUSY},)))


@asynccontextmanager
async def monitoring(given: MonitorSettings, **scripted: int) -> AsyncIterator[tuple[FakeServer, MonitorProcess, str]]:
    """Run a monitor; yield its API server, the monitor and its URL."""
    async with connected() as (server, api):
        script(server, **scripted)
        node = MonitorProcess(given, api)
        async with running(node.serve):
            yield server, node, f"http://127.0.0.1:{given.http_port}"


async def test_a_node_is_read_written_and_kept_fresh(inventory: Path) -> None:
    """Only this node's pods are watched. When the load goes with its pod, that is written; the Lease is renewed."""
    async with monitoring(settings(inventory)) as (server, node, url):
        await until(lambda: len(server.asked("PATCH", LEASE)) > 3)

        assert server.asked("GET", "/api/v1/pods")[0].query["fieldSelector"] == "spec.nodeName=node1"
        written = [each.body["metadata"]["annotations"] for each in server.asked("PATCH", NODE)]
        assert "utilization 0 %" in written[-1]["agentaflow.gpu/status"]
        assert len(written) <= 2
        assert await ask(f"{url}/readyz") == (200, "ok")
        assert (await ask(f"{url}/livez"))[0] == 200
        metrics = (await ask(f"{url}/metrics"))[1]
        assert 'gpu_scheduler_monitor_gpu_utilization_percent{gpu="1",model="A100-40GB",node="node1"' in metrics
        assert "gpu_scheduler_monitor_current 1.0" in metrics
        assert node.monitor.problem is None
        progress = json.loads((await ask(f"{url}/progress"))[1])
        assert (sorted(progress["versions"]), progress["readings"] >= 3) == (["cordons", "pods"], True)


async def test_readiness_shows_the_monitors_problem(inventory: Path) -> None:
    """A broken inventory, and then a Lease that is refused."""
    declare(inventory, "node1: many")
    async with monitoring(settings(inventory), lease=403) as (server, node, url):
        await until(lambda: "inventory" in (node.monitor.problem or ""))
        status, text = await ask(f"{url}/readyz")
        assert status == 503
        assert f"readings failed: {text_of('monitor: an inventory cannot be used')}" in text
        assert not server.asked("PATCH", LEASE)
        declare(inventory, INVENTORY)
        await until(lambda: (node.monitor.problem or "").startswith("HTTP 403"))
        assert (await ask(f"{url}/livez"))[0] == 200


async def test_a_stuck_loop_is_not_alive(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a restart helps then."""
    monkeypatch.setattr(WIRING, "STUCK", -1.0)
    async with monitoring(settings(inventory, monitor_interval=0.9)) as (server, _, url):
        await until(lambda: server.asked("PATCH", LEASE))
        status, text = await ask(f"{url}/livez")

    assert (status, "the loop has not run for " in text) == (503, True)


async def test_the_settings_choose_the_source(inventory: Path) -> None:
    """With NVML the monitor watches no pods. Its own cordons it always watches."""
    async with connected() as (_, api):
        source, reflectors = MonitorProcess(settings(inventory, monitor_source="nvml"), api)._source()

    assert isinstance(source, ListedFirst)
    assert isinstance(source._source, NvmlSource)
    assert list(reflectors) == ["cordons"]


async def test_a_cordoned_gpu_is_let_go(inventory: Path) -> None:
    """Only this node's GPUNode is watched, and it says which device is let go."""
    async with monitoring(settings(inventory), kind=200) as (server, _, _):
        await until(lambda: "released" in str(server.asked("PATCH", f"{GPUNODE}/status")[-1:]))

        assert server.asked("GET", GPUNODES)[0].query["fieldSelector"] == "metadata.name=node1"
        devices = server.asked("PATCH", f"{GPUNODE}/status")[-1].body["status"]["devices"]
        assert [device.get("released") for device in devices] == [None, True]


@pytest.mark.promise("monitor-5")
async def test_a_signal_ends_the_monitor(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It deletes nothing: its report becomes stale with its Lease."""
    async with connected() as (server, api):
        script(server)
        monkeypatch.setattr(WIRING, "connect", AsyncMock(return_value=api))
        await end_by_sigterm(
            run_monitor(settings(inventory), None, None),
            lambda: server.asked("PATCH", LEASE) and server.asked("WATCH", "/api/v1/pods"),
        )

        assert {each.method for each in server.requests} == {"GET", "WATCH", "PATCH"}


async def test_a_taken_port_is_bad_input(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the variable to change."""
    async with connected() as (server, api):
        script(server)
        with taken_port(monkeypatch, WIRING, api) as port:
            await run_monitor(settings(inventory, http_port=port), None, None)
