"""Monitors with the role's RBAC and the policies, on a real API server."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.accounts import allow_everywhere, rights
from tests.integration.monitored_node import COLLECTIONS, LEASES, NAMESPACE, MonitoredNode, allow
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.workloads import API
from tests.messages import text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workloads import Workloads
    from tests.objects import Object

APPLY = "application/apply-patch+yaml"
OURS = "?fieldManager=gpu-scheduler-monitor&force=true"
GPUNODE = f"{API}/gpunodes/node1"


def gpu_node(plane: ControlPlane) -> Object:
    """Return the GPUNode of node1; empty if it does not exist."""
    return plane.kube.get(GPUNODE) or {}


def cordon(plane: ControlPlane, *devices: str) -> None:
    """Cordon these devices of node1, and no others."""
    signed = {"reason": "reset", "by": "admin", "since": "2026-11-21T12:00:00Z"}
    plane.kube.patch(GPUNODE, {"spec": {"cordoned": [{"device": device, **signed} for device in devices]}})


def released(plane: ControlPlane) -> list[bool | None]:
    """Return what the GPUNode says of each device."""
    return [device.get("released") for device in gpu_node(plane)["status"]["devices"]]


@pytest.fixture(scope="module")
def monitored(kinds: ControlPlane) -> ControlPlane:
    """The control plane with the monitors' namespace and RBAC."""
    allow(kinds)
    return kinds


@pytest.fixture
def watched(monitored: ControlPlane, workloads: Workloads, tmp_path: Path) -> Iterator[MonitoredNode]:
    """Node1 with a monitor that is not started. Its GPUNode, Lease and pods are deleted afterwards."""
    workloads.namespace.node("node1")
    yield MonitoredNode(monitored, tmp_path, "node1")
    monitored.kube.delete(GPUNODE)
    monitored.kube.delete(f"{LEASES}/node1")
    monitored.kube.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")


@pytest.fixture
def monitor(watched: MonitoredNode) -> Iterator[Command]:
    """The monitor of node1, when it is ready."""
    with watched.start().serving() as command:
        yield command


@pytest.mark.promise("monitor-1")
@pytest.mark.usefixtures("monitor")
def test_a_monitor_reports_its_node(monitored: ControlPlane, watched: MonitoredNode) -> None:
    """It writes labels, annotations, GPUNode and Lease. The node owns the Lease, and not the GPUNode."""
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
    assert "ownerReferences" not in made["metadata"]
    assert made["spec"] == {"nodeName": "node1"}
    assert made["status"] == {"gpus": 4, "devices": watched.devices()}
    lease = eventually("the Lease is there", watched.lease)
    assert lease["metadata"]["ownerReferences"] == owner
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("monitor-node1", 1)


@pytest.fixture
def deleting(monitored: ControlPlane) -> Iterator[None]:
    """Allow monitors to delete GPUNodes, in place of a cluster that does not guard owner references."""
    allow_everywhere(monitored.kube, NAMESPACE, NAMESPACE, "deleting", rights("gpunodes", "delete"))
    yield
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        monitored.kube.delete(f"{COLLECTIONS[kind]}/deleting")


@pytest.fixture
def owners(monitored: ControlPlane, watched: MonitoredNode) -> list[Object]:
    """Create the GPUNode as an earlier version's monitor did, cordon device 0, and return the owner references."""
    owners = [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": watched.metadata()["uid"]}]
    body = {**GPU_NODE, "metadata": {"name": "node1", "ownerReferences": owners}}
    status, answer = monitored.kube.raw("PATCH", f"{GPUNODE}{OURS}", json.dumps(body).encode(), APPLY)
    assert status == 201, answer
    cordon(monitored, "0")
    return owners


@pytest.mark.usefixtures("deleting", "owners", "monitor")
def test_a_node_no_longer_owns_the_gpunode_of_an_earlier_version(monitored: ControlPlane) -> None:
    """The monitor applies it without the owner that was applied before. The cordons stay."""
    eventually("its status is written", lambda: gpu_node(monitored).get("status"))
    made = gpu_node(monitored)

    assert "ownerReferences" not in made["metadata"]
    assert [each["device"] for each in made["spec"]["cordoned"]] == ["0"]


def test_where_owners_are_guarded_the_status_is_written(
    monitored: ControlPlane, owners: list[Object], monitor: Command
) -> None:
    """A monitor may not delete its GPUNode, so such a cluster does not let it change the owner."""
    eventually("its status is written", lambda: gpu_node(monitored).get("status"))

    assert gpu_node(monitored)["metadata"]["ownerReferences"] == owners
    assert released(monitored) == [True, None, None, None]


@pytest.mark.usefixtures("monitor")
def test_a_cordoned_gpu_is_let_go(monitored: ControlPlane, watched: MonitoredNode) -> None:
    """The GPUNode says so, and the device keeps its identity. The node's annotation keeps its form."""
    eventually("the GPUNode is there", lambda: gpu_node(monitored).get("status"))
    whole = gpu_node(monitored)["status"]["devices"]

    cordon(monitored, whole[1]["uuid"])
    eventually("device 1 is let go", lambda: released(monitored) == [None, True, None, None])
    devices = gpu_node(monitored)["status"]["devices"]
    unread = ("memoryUsedMiB", "utilization", "temperature", "power")
    assert devices[1] == {**{key: value for key, value in whole[1].items() if key not in unread}, "released": True}
    assert [devices[0], *devices[2:]] == [whole[0], *whole[2:]]
    eventually("the node says no load of it", lambda: "utilization" not in watched.devices()[1])
    assert watched.devices() == [{key: each[key] for key in each if key != "released"} for each in devices]

    cordon(monitored)
    eventually("device 1 is read again", lambda: gpu_node(monitored)["status"]["devices"] == whole)


@pytest.mark.promise("monitor-2")
def test_a_quiet_node_is_not_written_again(watched: MonitoredNode, monitor: Command) -> None:
    """The monitor reads the devices many times and writes once. Only the Lease is renewed."""
    before, renewed = watched.metadata()["resourceVersion"], watched.lease()["spec"]["renewTime"]

    eventually("the Lease is renewed", lambda: watched.lease()["spec"]["renewTime"] != renewed)
    monitor.wait_read(5)

    assert watched.metadata()["resourceVersion"] == before


@pytest.mark.promise("monitor-4")
@pytest.mark.usefixtures("monitor")
def test_load_follows_the_pods(watched: MonitoredNode, workloads: Workloads) -> None:
    """A GPU is busy while a pod that uses it is bound to the node, by any scheduler, and idle after its deletion."""
    pod = objects.pod("busy", None, objects.literal("2"), scheduler="another", nodeName="node1")
    workloads.kube.create(workloads.namespace.pods, pod)

    def load() -> list[tuple[int, int]]:
        return [(device["memoryUsedMiB"], device["utilization"]) for device in watched.devices()]

    eventually("GPU 2 works", lambda: load() == [(0, 0), (0, 0), (40960, 70), (0, 0)])
    workloads.namespace.delete("busy")
    eventually("GPU 2 is idle", lambda: load() == [(0, 0)] * 4)


@pytest.mark.promise("monitor-3")
def test_a_broken_inventory_file_stops_the_renewal_of_the_lease(watched: MonitoredNode, monitor: Command) -> None:
    """The monitor keeps what it wrote, stops renewing the Lease, is not ready, and stays alive."""
    before = watched.devices()
    watched.file.write_text("node1: many")
    eventually("the monitor is not ready", lambda: monitor.get("/readyz")[0] == 503)
    renewed = watched.lease()["spec"]["renewTime"]
    monitor.wait_read(5)

    assert watched.lease()["spec"]["renewTime"] == renewed
    assert watched.devices() == before
    assert monitor.get("/livez")[0] == 200
    assert text_of("monitor: an inventory cannot be used") in monitor.get("/readyz")[1]


@pytest.mark.promise("monitor-5")
def test_a_stopped_monitor_removes_nothing(watched: MonitoredNode, monitor: Command) -> None:
    """It ends with exit code 0, and leaves the node's metadata and the Lease unchanged."""
    before = watched.metadata()
    monitor.process.send(signal.SIGTERM)

    assert monitor.process.wait() == 0
    assert watched.metadata() == before
    assert watched.lease()["spec"]["holderIdentity"] == "monitor-node1"


@pytest.mark.promise("monitor-5")
def test_an_empty_apply_removes_what_a_monitor_wrote(
    monitored: ControlPlane, watched: MonitoredNode, monitor: Command
) -> None:
    """The role does this when it removes the monitors. Labels and annotations of others stay."""
    monitored.kube.patch("/api/v1/nodes/node1", {"metadata": {"annotations": {"mine": "1"}, "labels": {"mine": "1"}}})
    monitor.process.stop()
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}}
    status, answer = monitored.kube.raw("PATCH", f"/api/v1/nodes/node1{OURS}", json.dumps(body).encode(), APPLY)
    metadata = watched.metadata()

    assert status == 200, answer
    assert metadata["annotations"] == {"mine": "1"}
    assert [label for label in metadata["labels"] if label.startswith("agentaflow.gpu/")] == []
    assert metadata["labels"]["mine"] == "1"


def test_the_scheduler_sees_the_leases(monitored: ControlPlane, watched: MonitoredNode, monitor: Command) -> None:
    """Role monitor allows the scheduler to list Leases in the monitors' namespace, and not to delete them."""
    scheduler = monitored.client_of(SYSTEM_NAMESPACE, "gpu-scheduler")

    status, listed = scheduler.call("GET", LEASES)
    refused, _ = scheduler.call("DELETE", f"{LEASES}/node1")

    assert [lease["metadata"]["name"] for lease in listed["items"]] == ["node1"]
    assert (status, refused) == (200, 403)


GPU_NODE: Object = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "spec": {"nodeName": "node1"}}
