"""The kubelet's driver with its rights alone, on a real API server and called over its sockets."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests import objects
from tests.integration.driven_node import API, POOLS, DrivenNode, allow
from tests.integration.workloads import API as OURS
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.workloads import Workloads
    from tests.objects import Object

TAINT = {"key": "agentaflow.gpu/cordoned", "value": "device", "effect": "NoSchedule"}
_numbers = itertools.count(1)


def device(index: int) -> Object:
    """Return a device as a monitor lists it."""
    bus = f"00000000:{index >> 5:02X}:{index & 31:02X}.0"
    return {**objects.device(index), "model": "A100-40GB", "memoryTotalMiB": 40960, "pciBusId": bus}


def name(index: int) -> str:
    """Return the device's name in a ResourceSlice."""
    return f"gpu-{objects.gpu(index).removeprefix('GPU-')}"


def cordon(plane: ControlPlane, *devices: str) -> None:
    """Cordon these devices of node1, and no others."""
    signed = {"reason": "reset", "by": "admin", "since": "2026-11-21T12:00:00Z"}
    spec = {"nodeName": "node1", "cordoned": [{"device": each, **signed} for each in devices]}
    body = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "metadata": {"name": "node1"}, "spec": spec}
    plane.kube.delete(f"{OURS}/gpunodes/node1")
    plane.kube.create(f"{OURS}/gpunodes", body)


@pytest.fixture
def node(kinds: ControlPlane, workloads: Workloads) -> Iterator[DrivenNode]:
    """Node1 with four devices and a kubelet. Its driver is not started; its ResourceSlices are deleted afterwards."""
    allow(kinds)
    workloads.namespace.node("node1", annotations=objects.inventory(*map(device, range(4))))
    folder = Path(tempfile.mkdtemp(prefix="driver"))
    yield DrivenNode(kinds, folder, "node1")
    kinds.kube.call("DELETE", POOLS)
    kinds.kube.delete(f"{OURS}/gpunodes/node1")
    shutil.rmtree(folder)


@pytest.fixture
def driver(node: DrivenNode) -> Iterator[Command]:
    """The driver of node1, when it is ready."""
    with node.start().serving() as command:
        yield command


@pytest.fixture
def namespace(kinds: ControlPlane, workloads: Workloads) -> Iterator[Namespace]:
    """A namespace in which admin access is allowed. Its claims are deleted afterwards."""
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    kinds.kube.patch(f"/api/v1/namespaces/{workloads.namespace.name}", label)
    yield workloads.namespace
    kinds.kube.call("DELETE", claims(workloads.namespace))


def claims(namespace: Namespace) -> str:
    """Return the path of the namespace's claims."""
    return f"{API}/namespaces/{namespace.name}/resourceclaims"


def allocate(namespace: Namespace, *devices: int, admin: bool = False) -> Object:
    """Create a claim of one request for each device, and allocate these devices. Return the claim."""
    request = {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}
    exactly = {**request, "adminAccess": True} if admin else request
    requests = [{"name": f"gpu-{index}", "exactly": exactly} for index in devices]
    metadata = {"name": f"claim-{next(_numbers)}"}
    made = namespace.kube.create(claims(namespace), {"metadata": metadata, "spec": {"devices": {"requests": requests}}})
    results = [
        {
            "request": f"gpu-{index}",
            "driver": "gpu.agentaflow.io",
            "pool": "node1",
            "device": name(index),
            **({"adminAccess": True} if admin else {}),
        }
        for index in devices
    ]
    status = {"status": {"allocation": {"devices": {"results": results}}}}
    return namespace.kube.patch(f"{claims(namespace)}/{made['metadata']['name']}/status", status)


def versions(node: DrivenNode) -> list[str]:
    """Return the versions of the stored ResourceSlices."""
    return [each["metadata"]["resourceVersion"] for each in node.stored()]


def pool(node: DrivenNode) -> list[tuple[int, int, int]]:
    """Return generation, number of ResourceSlices and number of devices of each ResourceSlice that is stored."""
    return [
        (each["pool"]["generation"], each["pool"]["resourceSliceCount"], len(each["devices"])) for each in node.pools()
    ]


@pytest.mark.usefixtures("driver")
def test_the_devices_of_the_node_are_published(kinds: ControlPlane, node: DrivenNode) -> None:
    """In one pool, which has the node's name and belongs to it. The runtime knows the devices too."""
    (stored,) = node.stored()
    uid = (kinds.kube.get("/api/v1/nodes/node1") or {})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": uid, "controller": True}

    assert stored["metadata"]["ownerReferences"] == [owner]
    assert stored["spec"]["nodeName"] == "node1"
    assert stored["spec"]["pool"] == {"name": "node1", "generation": 1, "resourceSliceCount": 1}
    assert stored["spec"]["devices"][3] == {
        "name": name(3),
        "attributes": {
            "uuid": {"string": objects.gpu(3)},
            "index": {"int": 3},
            "productName": {"string": "A100-40GB"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:00:03.0"},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    }
    spec = json.loads((node.cdi_dir / "gpu.agentaflow.io.json").read_text())
    assert [each["name"] for each in spec["devices"]] == [objects.gpu(index) for index in range(4)]


def test_a_restart_writes_nothing(node: DrivenNode, driver: Command) -> None:
    """What is stored is read back as it was sent, taints included. The kubelet sees new sockets."""
    cordon(node.plane, "1")
    eventually("device 1 is tainted", lambda: "taints" in node.pools()[0]["devices"][1])
    before = versions(node)
    assert driver.process.stop() == 0
    assert list(node.kubelet_dir.rglob("*.sock")) == []

    with node.start().serving() as second:
        assert versions(node) == before
        # Both processes have one log: the first has published the devices, and then the taint.
        assert second.count("Published") == 2


def add_device(plane: ControlPlane, node: DrivenNode) -> None:
    """Add a device that the node does not have."""
    (stored,) = node.stored()
    spec = stored["spec"]
    body = {"spec": {**spec, "devices": [*spec["devices"], {"name": "gpu-more"}]}}
    plane.kube.patch(f"{POOLS}/{stored['metadata']['name']}", body)


def add_pool(plane: ControlPlane, node: DrivenNode) -> None:
    """Create a ResourceSlice of the driver's name, in another pool."""
    (stored,) = node.stored()
    spec = {**stored["spec"], "pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}}
    plane.kube.create(POOLS, {"metadata": {"name": "other"}, "spec": spec})


EDITS: dict[str, tuple[Callable[[ControlPlane, DrivenNode], Any], list[tuple[int, int, int]]]] = {
    "the kubelet deletes all ResourceSlices": (lambda _, node: node.delete_pools(), [(1, 1, 4)]),
    "another writer adds a device": (add_device, [(2, 1, 4)]),
    "another writer adds a pool": (add_pool, [(2, 1, 4)]),
    "a device is gone": (lambda _, node: node.list_devices(*map(device, range(3))), [(2, 1, 3)]),
    "a device has another index": (
        lambda _, node: node.list_devices(*map(device, range(3)), {**device(3), "index": 4}),
        [(2, 1, 4)],
    ),
    "there are more devices than a ResourceSlice may have": (
        lambda _, node: node.list_devices(*map(device, range(130))),
        [(2, 2, 128), (2, 2, 2)],
    ),
}


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("edit", "found"), EDITS.values(), ids=EDITS)
def test_the_pool_is_as_the_node_is(
    kinds: ControlPlane,
    node: DrivenNode,
    edit: Callable[[ControlPlane, DrivenNode], Any],
    found: list[tuple[int, int, int]],
) -> None:
    """Whoever changed either."""
    before = versions(node)
    edit(kinds, node)

    eventually("the pool is as the node is", lambda: versions(node) != before and pool(node) == found)
    assert {each["nodeName"] for each in node.pools()} == {"node1"}


@pytest.mark.usefixtures("driver")
def test_a_taint_allows_fewer_devices_in_a_resource_slice(kinds: ControlPlane, node: DrivenNode) -> None:
    """64 in place of 128: the API server refuses more."""
    node.list_devices(*map(device, range(128)))
    eventually("one has all", lambda: [each[1:] for each in pool(node)] == [(1, 128)])
    cordon(kinds, "1")
    eventually("each has half", lambda: [each[1:] for each in pool(node)] == [(2, 64), (2, 64)])
    cordon(kinds)
    eventually("one has all again", lambda: [each[1:] for each in pool(node)] == [(1, 128)])


@pytest.mark.usefixtures("driver")
def test_a_cordoned_device_is_tainted(kinds: ControlPlane, node: DrivenNode) -> None:
    """kube-scheduler does not allocate it then. The taint goes with the cordon."""

    def taints() -> list[Object | None]:
        found = [each.get("taints", [None])[0] for each in node.pools()[0]["devices"]]
        return [each and {key: each[key] for key in TAINT} for each in found]

    cordon(kinds, objects.gpu(2))
    eventually("device 2 is tainted", lambda: taints() == [None, None, TAINT, None])
    cordon(kinds, "*")
    eventually("all are tainted", lambda: taints() == [{**TAINT, "value": "node"}] * 4)
    cordon(kinds)
    eventually("none is tainted", lambda: taints() == [None] * 4)


@pytest.mark.usefixtures("driver")
def test_a_claim_is_prepared_for_its_devices_alone(node: DrivenNode, namespace: Namespace) -> None:
    """Another claim with one of them is refused until the first is unprepared. Admin access is given to both."""
    first, second = allocate(namespace, 1, 3), allocate(namespace, 3, 2)
    admin = allocate(namespace, 3, admin=True)
    uids = [each["metadata"]["uid"] for each in (first, second, admin)]
    found = node.client.prepare(first)[uids[0]]
    handed = [(list(each.request_names), each.device_name, list(each.cdi_device_ids)) for each in found.devices]

    assert handed == [([f"gpu-{index}"], name(index), [f"agentaflow.io/gpu={objects.gpu(index)}"]) for index in (1, 3)]
    assert node.client.prepare(first)[uids[0]] == found
    refused = node.client.prepare(second, admin)
    names = [f"{namespace.name}/{each['metadata']['name']}" for each in (first, second)]
    sentence = refused[uids[1]].error
    assert sentence.startswith(
        f"cannot prepare claim {names[1]}: claim {names[0]} has GPU 3 ({objects.gpu(3)}) of node"
    )
    assert [each.device_name for each in refused[uids[2]].devices] == [name(3)]
    assert node.client.unprepare(first)[uids[0]].error == ""
    assert node.client.unprepare(first)[uids[0]].error == ""
    assert [each.device_name for each in node.client.prepare(second)[uids[1]].devices] == [name(3), name(2)]


def test_a_crash_before_the_answer_loses_nothing(node: DrivenNode, namespace: Namespace) -> None:
    """The claim is in the checkpoint: after the restart no other claim gets its device, and it gets its answer."""
    first, second = allocate(namespace, 1), allocate(namespace, 1)
    killed = node.start("tests.integration.driver_killed_at")
    killed.wait_ready()
    with pytest.raises(grpc.RpcError):
        node.client.prepare(first)
    killed.process.wait()
    (written,) = json.loads(node.checkpoint.read_text())["claims"]
    assert (written["uid"], written["devices"][0]["name"]) == (first["metadata"]["uid"], name(1))

    with node.start().serving() as restarted:
        found = node.client.prepare(second, first)
        assert "has GPU 1 (" in found[second["metadata"]["uid"]].error
        assert [each.device_name for each in found[first["metadata"]["uid"]].devices] == [name(1)]
        of_node = f'node="{node.node}"'
        assert restarted.metric(f"gpu_scheduler_driver_prepared_claims{{{of_node}}}") == 1
        held = f'{of_node},operation="prepare",outcome="held"'
        assert restarted.metric(f"gpu_scheduler_driver_claims_total{{{held}}}") == 1
