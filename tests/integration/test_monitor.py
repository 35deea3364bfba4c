"""Monitors under their shipped rights and the guards, on a real API server."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.manifests import MONITOR
from tests.integration.watched import LEASES, NAMESPACE, Watched, allow
from tests.integration.workshop import API
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders
    from tests.objects import Object

APPLY = "application/apply-patch+yaml"
OURS = "?fieldManager=gpu-scheduler-monitor&force=true"
GPUNODE = f"{API}/gpunodes/node1"


@pytest.fixture(scope="module")
def monitored(kinds: ControlPlane) -> ControlPlane:
    """The control plane with the monitors' namespace and rights."""
    allow(kinds)
    return kinds


@pytest.fixture
def watched(monitored: ControlPlane, orders: Orders, tmp_path: Path) -> Iterator[Watched]:
    """Node1, and all that its monitor may have made afterwards gone."""
    orders.bench.node("node1")
    yield Watched(monitored, tmp_path, "node1")
    monitored.kube.delete(GPUNODE)
    monitored.kube.delete(f"{LEASES}/node1")
    monitored.kube.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")


@pytest.fixture
def monitor(watched: Watched) -> Iterator[Command]:
    """Its monitor, once it has read and written."""
    command = watched.start()
    try:
        command.wait_ready()
        yield command
    finally:
        command.process.stop()


@pytest.mark.promise("monitor-1")
@pytest.mark.usefixtures("monitor")
def test_a_monitor_tells_of_its_node(monitored: ControlPlane, watched: Watched) -> None:
    """Labels, annotations, GPUNode and Lease, each as promised; Lease and GPUNode go with the node."""
    metadata = watched.metadata()
    owner = [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": metadata["uid"]}]

    assert metadata["labels"]["agentaflow.gpu/schedulable"] == "true"
    assert metadata["labels"]["agentaflow.gpu/count"] == "4"
    assert metadata["labels"]["agentaflow.gpu/utilization-tier"] == "low"
    assert metadata["annotations"]["agentaflow.gpu/status"] == (
        "healthy: 4 GPUs, utilization 0 %, memory 0 of 163840 MiB"
    )
    assert [device["memoryTotalMiB"] for device in watched.devices()] == [40960] * 4
    made = eventually("the GPUNode is there", lambda: monitored.kube.get(GPUNODE))
    assert made["metadata"]["ownerReferences"] == owner
    assert made["spec"] == {"nodeName": "node1"}
    assert made["status"] == {"gpus": 4, "devices": watched.devices()}
    lease = eventually("the Lease is there", watched.lease)
    assert lease["metadata"]["ownerReferences"] == owner
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("monitor-node1", 1)


@pytest.mark.promise("monitor-2")
@pytest.mark.usefixtures("monitor")
def test_a_quiet_node_is_not_written_again(watched: Watched) -> None:
    """Many looks, one write; the Lease alone is renewed."""
    before, renewed = watched.metadata()["resourceVersion"], watched.lease()["spec"]["renewTime"]

    eventually("the Lease is renewed", lambda: watched.lease()["spec"]["renewTime"] != renewed)
    time.sleep(1)

    assert watched.metadata()["resourceVersion"] == before


@pytest.mark.promise("monitor-4")
@pytest.mark.usefixtures("monitor")
def test_load_follows_the_pods(watched: Watched, orders: Orders) -> None:
    """A pod that is bound there with a GPU works it, whoever bound it; when it is gone, the GPU is idle."""
    pod = objects.pod("busy", None, objects.literal("2"), scheduler="another", nodeName="node1")
    orders.kube.create(orders.bench.pods, pod)

    def load() -> list[tuple[int, int]]:
        return [(device["memoryUsedMiB"], device["utilization"]) for device in watched.devices()]

    eventually("GPU 2 works", lambda: load() == [(0, 0), (0, 0), (40960, 70), (0, 0)])
    orders.bench.delete("busy")
    eventually("GPU 2 is idle", lambda: load() == [(0, 0)] * 4)


@pytest.mark.promise("monitor-4")
@pytest.mark.usefixtures("monitor")
def test_health_is_changed_by_the_file(watched: Watched) -> None:
    """Seen at the next look, and healed like that."""
    whole = watched.file.read_text()
    watched.file.write_text(whole.replace("40960}", "40960, health: {1: unhealthy}}"))
    eventually("GPU 1 is unhealthy", lambda: watched.devices()[1]["health"] == "unhealthy")
    assert (
        "GPU 1 is unhealthy: the simulated inventory says so"
        in watched.metadata()["annotations"]["agentaflow.gpu/status"]
    )

    watched.file.write_text(whole)
    eventually("GPU 1 is healthy", lambda: watched.devices()[1]["health"] == "healthy")


@pytest.mark.promise("monitor-3")
def test_a_broken_file_lets_the_lease_grow_old(watched: Watched, monitor: Command) -> None:
    """What stands written stands, nobody says any more that it is so, and the monitor itself goes on."""
    before = watched.devices()
    watched.file.write_text("node1: many")
    eventually("the monitor is not ready", lambda: monitor.get("/readyz")[0] == 503)
    renewed = watched.lease()["spec"]["renewTime"]
    time.sleep(1)

    assert watched.lease()["spec"]["renewTime"] == renewed
    assert watched.devices() == before
    assert monitor.get("/livez")[0] == 200
    assert "cannot use the inventory" in monitor.get("/readyz")[1]


@pytest.mark.promise("monitor-5")
def test_a_stopped_monitor_takes_nothing_back(watched: Watched, monitor: Command) -> None:
    """It ends in time; the Lease is left to grow old."""
    before = watched.metadata()
    began = time.monotonic()
    monitor.process.send(signal.SIGTERM)
    monitor.process.wait()

    assert time.monotonic() - began < limit(5)
    assert watched.metadata() == before
    assert watched.lease()["spec"]["holderIdentity"] == "monitor-node1"


@pytest.mark.promise("monitor-5")
def test_who_applies_nothing_takes_a_monitors_writing_back(
    monitored: ControlPlane, watched: Watched, monitor: Command
) -> None:
    """As the role does where monitors are taken away: what others wrote on the node stays."""
    monitored.kube.patch("/api/v1/nodes/node1", {"metadata": {"annotations": {"mine": "1"}, "labels": {"mine": "1"}}})
    monitor.process.stop()
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}}
    status, answer = monitored.kube.raw("PATCH", f"/api/v1/nodes/node1{OURS}", json.dumps(body).encode(), APPLY)
    metadata = watched.metadata()

    assert status == 200, answer
    assert metadata["annotations"] == {"mine": "1"}
    assert [label for label in metadata["labels"] if label.startswith("agentaflow.gpu/")] == []
    assert metadata["labels"]["mine"] == "1"


def test_the_scheduler_sees_the_leases(monitored: ControlPlane, watched: Watched, monitor: Command) -> None:
    """Role monitor gives it that right, in that namespace, and no other."""
    scheduler = monitored.client_of(SYSTEM_NAMESPACE, "gpu-scheduler")

    status, listed = scheduler.call("GET", LEASES)
    refused, _ = scheduler.call("DELETE", f"{LEASES}/node1")

    assert [lease["metadata"]["name"] for lease in listed["items"]] == ["node1"]
    assert (status, refused) == (200, 403)


GPU_NODE: Object = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "spec": {"nodeName": "node1"}}
LEASE: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "a"}}
WAYS: dict[str, tuple[str, str, Object, str]] = {
    "applies a GPUNode": ("PATCH", f"{API}/gpunodes/node1{OURS}", GPU_NODE, APPLY),
    "creates a GPUNode": ("POST", f"{API}/gpunodes", GPU_NODE, "application/json"),
    "applies a Lease": ("PATCH", f"{LEASES}/node1{OURS}", LEASE, APPLY),
    "creates a Lease": ("POST", LEASES, LEASE, "application/json"),
}


@pytest.mark.promise("monitor-6")
@pytest.mark.usefixtures("watched")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("its", "status"), [("node1", 201), ("node2", 403), ("", 403)])
def test_a_monitor_speaks_of_its_own_node_only(monitored: ControlPlane, way: str, its: str, status: int) -> None:
    """By whichever way: another node's Lease would keep that node fresh for ever."""
    method, path, body, kind = WAYS[way]
    found, answer = monitored.client_as(MONITOR, its).call(method, path, {**body, "metadata": {"name": "node1"}}, kind)

    assert found == status, answer
    if status == 403:
        assert f"cannot write {body['kind']} node1 as the monitor of " in answer["message"]
