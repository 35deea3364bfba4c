"""A monitor's writes to the API server."""

import json
from datetime import UTC, datetime

import pytest

from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.monitor import sinks
from gpu_scheduler.monitor.readings import GpuReading, MigDevice, Report
from gpu_scheduler.monitor.sinks import ApiGpuNodeSink, ApiNodeLease, ApiNodeSink
from tests.objects import Object
from unit_tests.kube.server import FakeServer, Reply, connected

NODE = "/api/v1/nodes/node1"
GPUNODE = "/apis/agentaflow.io/v1/gpunodes/node1"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/monitors/leases/node1"
KNOWN: Object = {"metadata": {"name": "node1", "uid": "uid-1"}}
OWNERS = [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "uid-1"}]

WHOLE = GpuReading(0, "GPU-0", "00000000:07:00.0", "A100-40GB", 40960, 8192, 70, 41, 250)
BARE = GpuReading(1, health=Health.UNHEALTHY, why="it is lost")
WITH_MIG = GpuReading(2, "GPU-2", mig_devices=(MigDevice("MIG-0", 4864), MigDevice("MIG-1")))
REPORT = Report((WHOLE, BARE, WITH_MIG), "2026-11-21T12:00:00Z")
DEVICES: list[Object] = [
    {
        "index": 0,
        "uuid": "GPU-0",
        "pciBusId": "00000000:07:00.0",
        "model": "A100-40GB",
        "memoryTotalMiB": 40960,
        "memoryUsedMiB": 8192,
        "utilization": 70,
        "temperature": 41,
        "power": 250,
        "health": "healthy",
    },
    {"index": 1, "health": "unhealthy"},
    {
        "index": 2,
        "uuid": "GPU-2",
        "health": "healthy",
        "migDevices": [{"uuid": "MIG-0", "memoryMiB": 4864}, {"uuid": "MIG-1"}],
    },
]


def node_lease(api: ApiClient, node: ApiNodeSink) -> ApiNodeLease:
    """Return a node lease with an interval of 0.4 s."""
    wall = lambda: datetime(2026, 11, 21, 12, 0, 0, 5, UTC)  # noqa: E731 - one line of a test
    return ApiNodeLease(api, node, "node1", namespace="monitors", holder="monitor-x", interval=0.4, wall=wall)


def bodies(server: FakeServer, path: str) -> list[Object]:
    """Return the bodies applied at the path. Each has our own field manager and overrides other managers."""
    asked = server.asked("PATCH", path)
    assert all(each.query == {"fieldManager": "gpu-scheduler-monitor", "force": "true"} for each in asked)
    assert all(each.headers["Content-Type"] == "application/apply-patch+yaml" for each in asked)
    return [each.body for each in asked]


@pytest.mark.promise("monitor-1")
async def test_the_report_is_written_as_labels_and_annotations_of_the_node() -> None:
    """The applied body has only our own fields. Values that could not be read are left out."""
    async with connected() as (server, api):
        server.on("PATCH", NODE, Reply(body=KNOWN))
        node = ApiNodeSink(api, "node1", 80)

        assert await node.report(REPORT) is None

        (body,) = bodies(server, NODE)
        metadata = body["metadata"]
        assert (body["apiVersion"], body["kind"], metadata["name"]) == ("v1", "Node", "node1")
        assert metadata["labels"] == {
            "agentaflow.gpu/schedulable": "true",
            "agentaflow.gpu/count": "3",
            "agentaflow.gpu/utilization-tier": "medium",
        }
        assert json.loads(metadata["annotations"].pop("agentaflow.gpu/devices")) == DEVICES
        assert metadata["annotations"] == {
            "agentaflow.gpu/status": (
                "degraded: 3 GPUs, utilization 70 %, memory 8192 of 40960 MiB; GPU 1 is unhealthy: it is lost"
            ),
            "agentaflow.gpu/last-update": "2026-11-21T12:00:00Z",
        }
        assert node.uid == "uid-1"


@pytest.mark.promise("monitor-1")
async def test_a_node_without_a_usable_gpu_says_so() -> None:
    """By its label, for people and their selectors."""
    async with connected() as (server, api):
        server.on("PATCH", NODE, Reply(body=KNOWN))
        await ApiNodeSink(api, "node1", 80).report(Report((BARE,), ""))

        assert bodies(server, NODE)[0]["metadata"]["labels"]["agentaflow.gpu/schedulable"] == "false"


async def test_a_refusal_is_a_sentence() -> None:
    """A missing answer is a sentence too. Neither is an exception."""
    async with connected() as (server, api):
        node = ApiNodeSink(api, "node1", 80)
        for path in (NODE, GPUNODE, f"{GPUNODE}/status", LEASE):
            server.on("PATCH", path, Reply(403, {"message": "not yours"}))
        reporters = (node, ApiGpuNodeSink(api, "node1"))

        assert [await each.report(REPORT) for each in reporters] == ["HTTP 403: not yours"] * 2
        assert await node_lease(api, node).renew() == "HTTP 403: not yours"
        await server.stop()
        assert "PATCH /api/v1/nodes/node1: " in (await node.report(REPORT) or "")


async def test_an_answer_that_is_no_node_is_no_failure() -> None:
    """The node's uid is unknown then, and its Lease has no owner reference."""
    async with connected() as (server, api):
        server.on("PATCH", NODE, Reply(body="what"))
        server.on("PATCH", LEASE, Reply())
        node = ApiNodeSink(api, "node1", 80)

        assert await node.report(REPORT) is None
        assert await node_lease(api, node).renew() is None
        assert "ownerReferences" not in bodies(server, LEASE)[0]["metadata"]


async def test_the_gpunode_and_its_status_are_written() -> None:
    """Two writes, because its status is a subresource. It has no owner: a node made anew keeps its cordons."""
    async with connected() as (server, api):
        server.on("PATCH", GPUNODE, Reply(201), Reply(200), Reply(500, {"message": "not now either"}))
        server.on("PATCH", f"{GPUNODE}/status", Reply(), Reply(500, {"message": "not now"}))
        mirror = ApiGpuNodeSink(api, "node1")

        assert await mirror.report(REPORT) is None
        assert await mirror.report(REPORT) == "HTTP 500: not now"
        assert await mirror.report(REPORT) == "HTTP 500: not now either"

        kind = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode"}
        assert bodies(server, GPUNODE)[0] == {**kind, "metadata": {"name": "node1"}, "spec": {"nodeName": "node1"}}
        assert bodies(server, f"{GPUNODE}/status")[0] == {
            **kind,
            "metadata": {"name": "node1"},
            "status": {"gpus": 3, "devices": DEVICES},
        }


async def test_only_the_gpunode_says_what_is_released() -> None:
    """The fields of the node's annotation are a contract."""
    async with connected() as (server, api):
        server.on("PATCH", NODE, Reply(body=KNOWN))
        server.on("PATCH", GPUNODE, Reply())
        server.on("PATCH", f"{GPUNODE}/status", Reply())
        report = Report((GpuReading(0), GpuReading(1, released=True)), "")
        for sink in (ApiNodeSink(api, "node1", 80), ApiGpuNodeSink(api, "node1")):
            assert await sink.report(report) is None

        plain = [{"index": 0, "health": "healthy"}, {"index": 1, "health": "healthy"}]
        annotations = bodies(server, NODE)[0]["metadata"]["annotations"]
        assert json.loads(annotations["agentaflow.gpu/devices"]) == plain
        assert bodies(server, f"{GPUNODE}/status")[0]["status"]["devices"] == [plain[0], {**plain[1], "released": True}]


WITHOUT = {
    "it may not be changed": (403, "warning", 4, "Only the status of the GPUNode is written"),
    "its kind is not installed": (404, "info", 1, "Kind GPUNode is not installed: no GPUNode is written"),
}


@pytest.mark.parametrize(("status", "level", "statuses", "message"), WITHOUT.values(), ids=WITHOUT)
async def test_without_a_gpunode_the_monitor_continues(
    monkeypatch: pytest.MonkeyPatch, status: int, level: str, statuses: int, message: str
) -> None:
    """It is logged once, tried again with every report, and logged again if it was possible in between."""
    logged: list[str] = []
    monkeypatch.setattr(sinks.log, level, lambda event, **_: logged.append(event), raising=False)
    async with connected() as (server, api):
        server.on("PATCH", GPUNODE, *map(Reply, (status, status, 200, status)))
        server.on("PATCH", f"{GPUNODE}/status", Reply())
        mirror = ApiGpuNodeSink(api, "node1")

        assert [await mirror.report(REPORT) for _ in range(4)] == [None] * 4
        assert len(server.asked("PATCH", f"{GPUNODE}/status")) == statuses
        assert logged == [message] * 2


async def test_the_lease_lasts_three_intervals() -> None:
    """Rounded up to whole seconds. Its name and its owner are the node, its holder is this pod."""
    async with connected() as (server, api):
        server.on("PATCH", NODE, Reply(body=KNOWN))
        server.on("PATCH", LEASE, Reply())
        node = ApiNodeSink(api, "node1", 80)
        await node.report(REPORT)

        assert await node_lease(api, node).renew() is None

        assert bodies(server, LEASE) == [
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "node1", "namespace": "monitors", "ownerReferences": OWNERS},
                "spec": {
                    "holderIdentity": "monitor-x",
                    "leaseDurationSeconds": 2,
                    "renewTime": "2026-11-21T12:00:00.000005Z",
                },
            }
        ]


async def test_the_report_of_an_earlier_monitor_is_read_back() -> None:
    """The fields that name its GPUs, and health. A body without a list has no GPUs; a missing answer is None."""
    status = "degraded: 3 GPUs; GPU 1 is unhealthy: it is lost"
    written = {"agentaflow.gpu/devices": json.dumps(DEVICES), "agentaflow.gpu/status": status}
    annotated = {"metadata": {"annotations": written}}
    odd = {"metadata": {"annotations": {"agentaflow.gpu/devices": '{"index": 0}'}}}
    async with connected() as (server, api):
        server.on("GET", NODE, Reply(body=annotated), Reply(body=odd), Reply(body={"metadata": {}}), Reply(500))
        node = ApiNodeSink(api, "node1", 80)

        assert await node.written() == (GpuReading(0, "GPU-0", "00000000:07:00.0", "A100-40GB", 40960), BARE, WITH_MIG)
        assert [await node.written() for _ in range(3)] == [(), (), None]
        await server.stop()
        assert await node.written() is None
