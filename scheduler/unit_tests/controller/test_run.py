"""A whole controller in one process, with a fake API server that replies from a script."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

from gpu_scheduler.controller.run import ControllerProcess, run_controller
from gpu_scheduler.settings import LeaderSettings
from tests import objects
from tests.ports import free_port
from unit_tests.kube.server import FakeServer, Reply, Watch, connected, until
from unit_tests.programs import ask, end_by_sigterm, running, stored, taken_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.objects import Object

# The package's `controller` is the command; this is its module.
WIRING = import_module("gpu_scheduler.controller.run")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/gpu-scheduler-system/leases"
LEASE = {"metadata": {"name": "x", "namespace": "gpu-scheduler-system", "resourceVersion": "1"}, "spec": {}}
GROUP = "/apis/agentaflow.io/v1"
PODS = "/api/v1/namespaces/default/pods"
STATUS = f"{GROUP}/namespaces/default/gpuworkloads/train/status"
META = {"name": "train", "namespace": "default", "uid": "uid-1", "resourceVersion": "7", "generation": 1}
WORKLOAD: Object = {"metadata": META, "spec": {"podTemplate": {"spec": {"containers": [{"name": "main"}]}}}}
OWNER = {"kind": "GPUWorkload", "name": "train", "uid": "uid-1", "controller": True}
ASKED = {"agentaflow.gpu/count": "1", "agentaflow.gpu/assigned-devices": "2"}
POD = stored(
    objects.pod("train-0", annotations=ASKED, nodeName="node1"), "pod-0", {"phase": "Running"}, ownerReferences=[OWNER]
)
GPU_NODE: Object = {"metadata": {"name": "node1"}, "spec": {"nodeName": "node1"}}


def settings(**others: Any) -> LeaderSettings:
    given = {"bind_address": "127.0.0.1", "http_port": free_port(), "kubernetes_namespace": "gpu-scheduler-system"}
    return LeaderSettings(**{**given, **others})


def script(server: FakeServer, *events: Object) -> None:
    """Set up one workload, one node and its GPUNode. The watch of pods delivers `events` later."""
    for path, items in (
        ("/api/v1/pods", []),
        ("/api/v1/nodes", [{"metadata": {"name": "node1"}, "status": {}}]),
        (f"{GROUP}/gpunodes", [GPU_NODE]),
        (f"{GROUP}/gpuworkloads", [WORKLOAD]),
    ):
        server.on("GET", path, Reply(body={"metadata": {"resourceVersion": "1"}, "items": items}))
        server.on("WATCH", path, Watch(events if path.endswith("/pods") else ()))
    server.on("GET", f"{LEASES}/gpu-scheduler-controller", Reply(404))
    server.on("POST", LEASES, Reply(201, LEASE))
    server.on("PUT", f"{LEASES}/gpu-scheduler-controller", Reply(body=LEASE))
    server.on("POST", PODS, Reply(201, {}))
    server.on("GET", f"{GROUP}/namespaces/default/gpuworkloads/train", Reply(body=WORKLOAD))
    server.on("PATCH", STATUS, Reply(body=WORKLOAD))
    server.on("PATCH", f"{GROUP}/gpunodes/node1/status", Reply(body=GPU_NODE))


@asynccontextmanager
async def leading(given: LeaderSettings, *events: Object) -> AsyncIterator[tuple[ControllerProcess, FakeServer, str]]:
    """Yield a replica that leads, its API server, and the URL at which it serves."""
    async with connected() as (server, api):
        script(server, *events)
        replica = ControllerProcess(given, api)
        async with running(replica.serve, lambda: replica.loop._heartbeat is not None):
            yield replica, server, f"http://127.0.0.1:{given.http_port}"


async def test_a_workload_gets_its_pod_and_a_node_its_status() -> None:
    """Everything is listed before a pod is created. The controller has its own lease."""
    async with leading(settings()) as (_, server, url):
        await until(lambda: server.asked("POST", PODS) and server.asked("PATCH"))

        assert server.asked("POST", PODS)[0].body["metadata"]["name"] == "train-0"
        assert server.asked("PATCH")[0].body["status"]["conditions"][0]["reason"] == "NodeNotReady"
        assert server.asked("POST", LEASES)[0].body["metadata"]["name"] == "gpu-scheduler-controller"
        assert await ask(f"{url}/readyz") == (200, "ok")
        assert await ask(f"{url}/livez") == (200, "ok")


async def test_watch_events_are_written_to_the_status() -> None:
    """The workload runs, and the node's device is allocated. Once the pod is deleted, another is created."""
    async with leading(settings(), {"type": "ADDED", "object": POD}) as (replica, server, _):
        await until(lambda: server.asked("PATCH", STATUS))
        written = server.asked("PATCH", STATUS)[0].body["status"]
        assert (written["phase"], written["node"], written["devices"]) == ("Running", "node1", ["2"])
        await until(lambda: any(each.body["status"].get("allocated") == 1 for each in server.asked("PATCH")))

        seen = replica.watches._all["pods"]._known["pod-0"]
        replica.watches._all["pods"]._handler.forgotten(seen)
        await until(lambda: server.asked("POST", PODS))


async def test_the_metrics_show_the_controllers_state() -> None:
    """Gauges are read when they are scraped."""
    async with leading(settings()) as (_, _, url):
        status, text = await ask(f"{url}/metrics")

        assert status == 200
        assert "gpu_scheduler_leader 1.0" in text.splitlines()
        assert 'gpu_scheduler_workloads{phase="Running"} 0.0' in text.splitlines()
        assert "gpu_scheduler_controller_queue" in text
        assert 'gpu_scheduler_watch_silence_seconds{resource="gpuworkloads"}' in text


async def test_progress_says_what_was_seen_and_what_is_due() -> None:
    """When pod and statuses are written, nothing is due."""
    async with leading(settings()) as (replica, server, url):
        await until(lambda: server.asked("POST", PODS) and not replica.loop.due)
        status, text = await ask(f"{url}/progress")

        assert status == 200
        versions = dict.fromkeys(("pods", "nodes", "gpunodes", "gpuworkloads"), "1")
        assert json.loads(text) == {"versions": versions, "due": {"reconciles": 0}}


async def test_a_stuck_worker_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a restart helps then, and the probe gives the reason."""
    async with leading(settings()) as (_, _, url):
        monkeypatch.setattr(WIRING, "STUCK", -1.0)
        status, text = await ask(f"{url}/livez")

        assert status == 503
        assert "the worker loop has not run for " in text


async def test_sigterm_ends_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts no new write and ends without an error."""
    async with connected() as (server, api):
        script(server)
        monkeypatch.setattr(WIRING, "connect", AsyncMock(return_value=api))
        await end_by_sigterm(run_controller(settings(), None, None), lambda: server.asked("POST", PODS))


async def test_a_taken_port_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the variable that changes it."""
    async with connected() as (server, api):
        script(server)
        with taken_port(monkeypatch, WIRING, api) as port:
            await run_controller(settings(http_port=port), None, None)
