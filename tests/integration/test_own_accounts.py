"""The policies restrict what our own service accounts write, beyond their RBAC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from gpu_scheduler import names
from tests import objects
from tests.integration.policies import CONTROLLER, MONITOR, OUTSIDE, SCHEDULER, made, named, read
from tests.objects import annotated, null_pod

if TYPE_CHECKING:
    from tests.integration.control_plane import ControlPlane
    from tests.kube_client import KubeClient
    from tests.objects import Object

SPACE: Final = "/api/v1/namespaces/guarded"
PODS: Final = f"{SPACE}/pods"
CLAIMS: Final = f"{SPACE}/persistentvolumeclaims"
NODES: Final = "/api/v1/nodes"
SCHEDULERS: Final = (SCHEDULER, OUTSIDE)


@pytest.fixture
def admin(guarded: ControlPlane) -> KubeClient:
    """The client of a user with all RBAC rights."""
    return guarded.client_as("admin")


def conditions(*kinds: str) -> Object:
    """Return a patch of the status with these conditions."""
    return {"status": {"conditions": [{"type": kind, "status": "False", "reason": "Unschedulable"} for kind in kinds]}}


def merge(who: KubeClient, path: str, body: Object) -> tuple[int, Object]:
    """Patch as the scheduler does, with a strategic merge: conditions merge by their type."""
    return who.call("PATCH", path, body, "application/strategic-merge-patch+json")


# --- The scheduler's writes to pods


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("who", SCHEDULERS)
def test_the_scheduler_shows_why_a_pod_waits(guarded: ControlPlane, admin: KubeClient, who: str) -> None:
    """It writes the condition twice, beside another condition, and also on a pod that is being deleted."""
    path = made(
        admin, PODS, {**objects.pod("", annotations={"a": "b"}), "metadata": {"finalizers": ["example.com/wait"]}}
    )
    merge(admin, f"{path}/status", {"status": {**conditions("example.com/theirs")["status"], "phase": "Pending"}})

    for _ in range(2):
        status, answer = merge(guarded.client_as(who), f"{path}/status", conditions("PodScheduled"))
        assert status == 200, answer
        admin.call("DELETE", path)

    reported = {each["type"] for each in read(admin, path)["status"]["conditions"]}
    assert reported == {"example.com/theirs", "PodScheduled"}
    admin.merge(path, {"metadata": {"finalizers": None}})


STATE: Final = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
BEYOND: Final[dict[str, Object]] = {
    "another condition": conditions("Ready"),
    "another condition beside PodScheduled": conditions("PodScheduled", "Ready"),
    "the phase": {"status": {"phase": "Failed"}},
    "the address": {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
    "a container's state": {
        "status": {
            "containerStatuses": [{"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0}]
        }
    },
    "the nominated node": {"status": {"nominatedNodeName": "node1"}},
    "a label": {"metadata": {"labels": {"app": "theirs"}}},
    "an annotation": {"metadata": {"annotations": {"a": "c"}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/wait"]}},
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("who", SCHEDULERS)
@pytest.mark.parametrize("what", BEYOND)
def test_the_scheduler_writes_nothing_else_of_a_pod(
    guarded: ControlPlane, admin: KubeClient, what: str, who: str
) -> None:
    """Any other write to the status subresource is refused, and the pod is unchanged."""
    path = made(admin, PODS, objects.pod("", annotations={"a": "b"}))
    before = read(admin, path)

    status, answer = merge(guarded.client_as(who), f"{path}/status", BEYOND[what])

    assert status == 403, answer
    assert "cannot write of a pod's status anything but condition PodScheduled as its scheduler" in answer["message"]
    assert read(admin, path) == before


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("pod", [objects.pod("", scheduler="default-scheduler"), null_pod("")], ids=["named", "bare"])
@pytest.mark.parametrize("who", SCHEDULERS)
def test_the_scheduler_writes_no_status_of_others(
    guarded: ControlPlane, admin: KubeClient, who: str, pod: Object
) -> None:
    """The status of a pod of another scheduler is unchanged."""
    path = made(admin, PODS, pod)
    before = read(admin, path)

    status, answer = merge(guarded.client_as(who), f"{path}/status", conditions("PodScheduled"))

    assert status == 403, answer
    assert "its schedulerName is not gpu-scheduler; leave it to its own scheduler" in answer["message"]
    assert read(admin, path) == before


# --- The scheduler's writes to claims


def claim(annotations: Object | None = None) -> Object:
    """Return a claim with these annotations."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "", "labels": {"app": "db"}, "annotations": annotations}, "spec": spec}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("who", SCHEDULERS)
@pytest.mark.parametrize("having", [None, {}, {"a": "b"}, {names.SELECTED_NODE: "node9"}], ids=str)
def test_the_scheduler_writes_the_selected_node_of_a_claim(
    guarded: ControlPlane, admin: KubeClient, having: Object | None, who: str
) -> None:
    """It may write the annotation of the selected node, with any annotations of the claim."""
    path = made(admin, CLAIMS, claim(having))

    status, answer = guarded.client_as(who).merge(path, annotated({names.SELECTED_NODE: "node1"}))

    assert status == 200, answer
    assert read(admin, path)["metadata"]["annotations"] == {**(having or {}), names.SELECTED_NODE: "node1"}


CLAIMED: Final[dict[str, Object]] = {
    "another annotation": annotated({names.SELECTED_NODE: "node1", "pv.kubernetes.io/bind-completed": "yes"}),
    "the removal of an annotation": annotated({"a": None}),
    "a label": {"metadata": {"labels": {"app": None}}},
    "a finalizer": {"metadata": {"finalizers": ["example.com/wait"]}},
    "an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
    "its volume": {"spec": {"volumeName": "theirs"}},
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("who", SCHEDULERS)
@pytest.mark.parametrize("what", CLAIMED)
def test_the_scheduler_writes_nothing_else_of_a_claim(
    guarded: ControlPlane, admin: KubeClient, what: str, who: str
) -> None:
    """Other annotations, labels, finalizers, owners and the volume are refused."""
    path = made(admin, CLAIMS, claim({"a": "b"}))
    before = read(admin, path)

    status, answer = guarded.client_as(who).merge(path, CLAIMED[what])

    assert status == 403, answer
    assert "volume.kubernetes.io/selected-node" in answer["message"]
    assert read(admin, path) == before


# --- The controller


def owned(*more: Object, **owner: Any) -> Object:
    """Return a pod of ours that a GPUWorkload controls. `owner` changes fields of that owner, `more` adds owners."""
    first = {"apiVersion": "agentaflow.io/v1", "kind": "GPUWorkload", "name": "train", "uid": "1", "controller": True}
    pod = objects.pod("")
    pod["metadata"]["ownerReferences"] = [{**first, **owner}, *more]
    return pod


NO_CONTROLLER: Final = "RequestInvalid: cannot create a pod as the controller of GPUWorkloads that no GPUWorkload"
SECOND: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2"}
FOREIGN: Final[dict[str, tuple[Object, str]]] = {
    "of another scheduler": (
        {**owned(), "spec": objects.pod("", scheduler="default-scheduler")["spec"]},
        "RequestInvalid: cannot create a pod of another scheduler as the controller of GPUWorkloads",
    ),
    "of the default scheduler": ({**owned(), "spec": null_pod("")["spec"]}, "of another scheduler"),
    "without an owner": (objects.pod(""), NO_CONTROLLER),
    "of a ReplicaSet": (owned(apiVersion="apps/v1", kind="ReplicaSet"), NO_CONTROLLER),
    "of a GPUWorkload of another group": (owned(apiVersion="example.com/v1"), NO_CONTROLLER),
    "of a GPUNode": (owned(kind="GPUNode"), NO_CONTROLLER),
    "owned but not controlled": (owned(controller=False), NO_CONTROLLER),
    "of two owners": (owned(SECOND), NO_CONTROLLER),
}


@pytest.mark.promise("guard-10")
@pytest.mark.parametrize("what", FOREIGN)
def test_the_controller_makes_no_other_pod(guarded: ControlPlane, what: str) -> None:
    """It may create only pods of ours whose only owner is a GPUWorkload that controls them."""
    pod, reported = FOREIGN[what]
    pod["metadata"]["name"] = "foreign"

    status, answer = guarded.client_as(CONTROLLER).call("POST", PODS, pod)

    assert status == 403, answer
    assert reported in answer["message"]


@pytest.mark.promise("guard-10")
@pytest.mark.parametrize("namespace", ["kube-system", "gpu-scheduler-system"])
def test_the_controller_makes_no_pod_of_the_system(guarded: ControlPlane, namespace: str) -> None:
    """It creates no pod in a system namespace, even for a GPUWorkload there."""
    if guarded.kube.get(f"/api/v1/namespaces/{namespace}") is None:
        guarded.kube.create("/api/v1/namespaces", {"metadata": {"name": namespace}})

    pod = owned()
    pod["metadata"]["name"] = "train-0"

    status, answer = guarded.client_as(CONTROLLER).call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)

    assert status == 403, answer
    assert f"cannot create a pod of a GPUWorkload in namespace {namespace}, which is the system's" in answer["message"]


@pytest.mark.promise("guard-10")
def test_the_controller_makes_a_workloads_pod(guarded: ControlPlane) -> None:
    """The policy allows the pod of a GPUWorkload."""
    pod = owned()
    pod["metadata"]["name"] = named()

    status, answer = guarded.client_as(CONTROLLER).call("POST", PODS, pod)

    assert status == 201, answer


# --- The monitor


STOLEN: Final[dict[str, tuple[Object, str]]] = {
    "a taint": ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "cannot change a node as its monitor"),
    "the cordon": ({"spec": {"unschedulable": True}}, "cannot change a node as its monitor"),
    "the label of a node role": (
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        "label node-role.kubernetes.io",
    ),
    "a label of node-restriction.kubernetes.io": (
        {"metadata": {"labels": {"node-restriction.kubernetes.io/tenant": "a"}}},
        "label node-restriction.kubernetes.io/tenant of node",
    ),
    "an alias": ({"metadata": {"labels": {names.NODE_ALIAS: "other"}}}, "label gpu-node-name of node"),
    "the removal of a label": ({"metadata": {"labels": {"zone": None}}}, "label zone of node"),
    "an annotation": (
        annotated({"csi.volume.kubernetes.io/nodeid": "x"}),
        "annotation csi.volume.kubernetes.io/nodeid",
    ),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/wait"]}}, "cannot change a node as its monitor"),
    "an owner": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
        "cannot change a node as its monitor",
    ),
}


@pytest.mark.promise("guard-9")
@pytest.mark.parametrize("what", STOLEN)
def test_a_monitor_writes_only_its_keys(guarded: ControlPlane, admin: KubeClient, what: str) -> None:
    """Writes of other fields, labels and annotations of its own node are refused."""
    path = made(admin, NODES, {"metadata": {"name": "", "labels": {"zone": "a"}}})
    before = read(admin, path)
    body, reported = STOLEN[what]

    status, answer = guarded.client_as(MONITOR, path.rpartition("/")[2]).merge(path, body)

    assert status == 403, answer
    assert reported in answer["message"]
    assert read(admin, path) == before


@pytest.mark.promise("guard-9")
def test_a_monitor_writes_no_status_of_its_node(guarded: ControlPlane, admin: KubeClient) -> None:
    """Its RBAC does not allow it. The client here has all RBAC rights, and the policy refuses it too."""
    path = made(admin, NODES, {"metadata": {"name": ""}})
    monitor = guarded.client_as(MONITOR, path.rpartition("/")[2])

    status, answer = monitor.merge(f"{path}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}})

    assert status == 403, answer
    assert (
        "cannot change a node as its monitor but for its labels and annotations agentaflow.gpu/*" in answer["message"]
    )
