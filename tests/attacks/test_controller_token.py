"""S8: a stolen controller token creates pods of GPUWorkloads in users' namespaces, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import refusal
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.workloads import API
from tests.objects import gpu_workload
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

HOST: Final = {"hostPID": True, "hostNetwork": True, "volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
NO_OWNER: Final = "cannot create a pod as the controller of GPUWorkloads that no GPUWorkload controls"
SCHEDULER: Final = "cannot create a pod of another scheduler as the controller of GPUWorkloads"


@pytest.fixture
def stolen(cluster: InstalledCluster) -> KubeClient:
    """A client with the controller's token."""
    return cluster.account("gpu-scheduler-controller")


def _pod(scheduler: str = "gpu-scheduler", **owner: Any) -> Object:
    body = objects.pod("spy-0", "0=node1:0", scheduler=scheduler, **HOST)
    if owner:
        body["metadata"]["ownerReferences"] = [{"name": "spy", "uid": "1", "controller": True, **owner}]
    return body


WORKLOAD: Final = {"apiVersion": "agentaflow.io/v1", "kind": "GPUWorkload"}
PODS: Final[dict[str, tuple[Object, str]]] = {
    "without an owner": (_pod(), NO_OWNER),
    "of a Deployment": (_pod(apiVersion="apps/v1", kind="ReplicaSet"), NO_OWNER),
    "of a GPUWorkload that does not control it": (_pod(**WORKLOAD, controller=False), NO_OWNER),
    "of the default scheduler": (_pod("default-scheduler", **WORKLOAD), SCHEDULER),
    "of no scheduler": (_pod("", **WORKLOAD), SCHEDULER),
}


@pytest.mark.promise("guard-10")
@pytest.mark.parametrize("what", PODS)
def test_a_stolen_token_makes_no_other_pod(tenant: Tenant, stolen: KubeClient, what: str) -> None:
    """A pod needs a controlling GPUWorkload and our scheduler."""
    pod, reported = PODS[what]

    refused = refusal(stolen.call("POST", tenant.pods, pod))

    assert f"RequestInvalid: {reported}" in refused
    assert tenant.namespace.kube.call("GET", tenant.pods)[1]["items"] == []


@pytest.mark.promise("guard-10")
@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", SYSTEM_NAMESPACE, "gpu-scheduler-monitor"])
def test_a_stolen_token_makes_no_pod_of_the_system(
    cluster: InstalledCluster, stolen: KubeClient, namespace: str
) -> None:
    """In a namespace of the system, even a pod with a GPUWorkload as its controller is refused."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = objects.pod("spy-0", "0=node1:0")
    pod["metadata"]["ownerReferences"] = [{**WORKLOAD, "name": "spy", "uid": "1", "controller": True}]

    refused = refusal(stolen.call("POST", pods, pod))

    assert f"RequestInvalid: cannot create a pod of a GPUWorkload in namespace {namespace}, which" in refused
    assert cluster.kube.get(f"{pods}/spy-0") is None


RIGHTS: Final[dict[str, tuple[str, str, Object | None]]] = {
    "changes a pod": ("PATCH", "/api/v1/namespaces/default/pods/any", {"metadata": {"labels": {"a": "b"}}}),
    "deletes a pod": ("DELETE", "/api/v1/namespaces/default/pods/any", None),
    "binds a pod": ("POST", "/api/v1/namespaces/default/pods/any/binding", {"target": {"name": "node1"}}),
    "runs a command in a pod": ("POST", "/api/v1/namespaces/default/pods/any/exec?command=sh", None),
    "makes a workload": ("POST", f"{API}/namespaces/default/gpuworkloads", gpu_workload("spy")),
    "changes a workload": ("PATCH", f"{API}/namespaces/default/gpuworkloads/any", {"spec": {"priority": 9}}),
    "cordons a GPU": ("PATCH", f"{API}/gpunodes/node1", {"spec": {"cordoned": []}}),
    "makes a GPUNode": ("POST", f"{API}/gpunodes", {"metadata": {"name": "node1"}}),
    "deletes all GPUNodes": ("DELETE", f"{API}/gpunodes", None),
    "evicts a pod": ("POST", "/api/v1/namespaces/default/pods/any/eviction", {"metadata": {"name": "any"}}),
    "reads events": ("GET", EVENTS, None),
    "changes an event": ("PATCH", f"{EVENTS}/any", {"note": "nothing happened"}),
    "deletes events": ("DELETE", EVENTS, None),
    "reads secrets": ("GET", "/api/v1/secrets", None),
    "asks for a token": (
        "POST",
        f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/gpu-scheduler/token",
        {"spec": {"audiences": []}},
    ),
    "writes a node": ("PATCH", "/api/v1/nodes/node1", {"spec": {"unschedulable": True}}),
    "takes the scheduler's Lease": (
        "PATCH",
        f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler",
        {"spec": {"holderIdentity": "spy"}},
    ),
}


@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    method, path, body = RIGHTS[what]
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"

    refused = refusal(stolen.call(method, path, body, content))

    assert f'User "system:serviceaccount:{SYSTEM_NAMESPACE}:gpu-scheduler-controller" cannot ' in refused


@pytest.mark.promise("guard-10")
def test_a_stolen_token_makes_no_other_lease(cluster: InstalledCluster, stolen: KubeClient) -> None:
    """The policy allows only the Lease by the controller's own name."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"

    refused = refusal(stolen.call("POST", leases, {"metadata": {"name": "another"}}))

    assert "cannot create this Lease as the controller of GPUWorkloads: its own is called" in refused
    assert cluster.kube.get(f"{leases}/another") is None


@pytest.mark.promise("guard-10", "order-6")
def test_a_workload_of_the_system_says_why_it_waits(cluster: InstalledCluster) -> None:
    """A GPUWorkload in kube-system, which only an administrator can create, gets no pod and reports the reason."""
    path = f"{API}/namespaces/kube-system/gpuworkloads"
    cluster.kube.create(path, gpu_workload("lost"))

    def reported() -> str:
        return str((cluster.kube.get(f"{path}/lost") or {}).get("status", {}).get("message", ""))

    message = eventually("it says why", reported, seconds=20)
    cluster.kube.delete(f"{path}/lost")
    assert message.startswith("RequestInvalid: cannot create a pod of a GPUWorkload in namespace kube-system, which is")


def test_a_stolen_token_can_invent_a_workload(tenant: Tenant, stolen: KubeClient) -> None:
    """A policy cannot read the GPUWorkload. The pod of an invented one exists until garbage collection deletes it."""
    status, answer = stolen.call("POST", tenant.pods, _pod(**WORKLOAD))

    assert status == 201, answer
