"""S8: a stolen controller token creates pods of GPUWorkloads in users' namespaces, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import NOBODYS, PODS, SYSTEM, lacks, refusal
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.workloads import API
from tests.messages import denial, text_of
from tests.objects import gpu_workload
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Request, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

HOST: Final = {"hostPID": True, "hostNetwork": True, "volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
NO_OWNER: Final = "the controller creates a pod that no GPUWorkload controls"
SCHEDULER: Final = "the controller creates a pod of another scheduler"
SYSTEMS: Final = "the controller creates a pod in a namespace of the system"


@pytest.fixture
def stolen(cluster: InstalledCluster) -> KubeClient:
    """A client with the controller's token."""
    return cluster.account("gpu-scheduler-controller")


def _pod(scheduler: str = "gpu-scheduler", *others: Object, **owner: Any) -> Object:
    return _owned(objects.pod("spy-0", "0=node1:0", scheduler=scheduler, **HOST), *others, **owner)


def _owned(body: Object, *others: Object, **owner: Any) -> Object:
    """Return the pod with an owner that controls it, and with others. Without fields it has none."""
    if owner:
        body["metadata"]["ownerReferences"] = [{"name": "spy", "uid": "1", "controller": True, **owner}, *others]
    return body


SECOND: Final = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2"}
WORKLOAD: Final = {"apiVersion": "agentaflow.io/v1", "kind": "GPUWorkload"}
FORGED: Final[dict[str, tuple[Object, str]]] = {
    "without an owner": (_pod(), NO_OWNER),
    "of a Deployment": (_pod(apiVersion="apps/v1", kind="ReplicaSet"), NO_OWNER),
    "of a GPUWorkload of another group": (_pod(**{**WORKLOAD, "apiVersion": "example.com/v1"}), NO_OWNER),
    "of a GPUNode": (_pod(**{**WORKLOAD, "kind": "GPUNode"}), NO_OWNER),
    "of a GPUWorkload that does not control it": (_pod(**WORKLOAD, controller=False), NO_OWNER),
    "of a GPUWorkload and a ReplicaSet": (_pod("gpu-scheduler", SECOND, **WORKLOAD), NO_OWNER),
    "of the default scheduler": (_pod("default-scheduler", **WORKLOAD), SCHEDULER),
    "of no scheduler": (_pod("", **WORKLOAD), SCHEDULER),
    "with null in place of lists": (_owned(objects.null_pod("spy-0"), **WORKLOAD), SCHEDULER),
}


@pytest.mark.promise("guard-10")
@pytest.mark.parametrize("what", FORGED)
def test_a_stolen_token_makes_no_other_pod(tenant: Tenant, stolen: KubeClient, what: str) -> None:
    """A pod needs a controlling GPUWorkload and our scheduler."""
    pod, reported = FORGED[what]

    refused = refusal(stolen.call("POST", tenant.pods, pod))

    assert refused.endswith(denial("controller", reported))
    assert tenant.namespace.kube.call("GET", tenant.pods)[1]["items"] == []


@pytest.mark.promise("guard-10")
@pytest.mark.parametrize("namespace", ["kube-system", "kube-public", SYSTEM_NAMESPACE, "gpu-scheduler-monitor"])
def test_a_stolen_token_makes_no_pod_of_the_system(
    cluster: InstalledCluster, stolen: KubeClient, namespace: str
) -> None:
    """In a namespace of the system, even a pod with a GPUWorkload as its controller is refused."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = _owned(objects.pod("spy-0", "0=node1:0"), **WORKLOAD)

    refused = refusal(stolen.call("POST", pods, pod))

    assert refused.endswith(denial("controller", SYSTEMS, ns=namespace))
    assert cluster.kube.get(f"{pods}/spy-0") is None


RIGHTS: Final[dict[str, Request]] = {
    **NOBODYS,
    "writes a pod's status": ("PATCH", f"{SYSTEM}/pods/any/status", {}),
    "binds a pod of the system": ("POST", f"{SYSTEM}/pods/any/binding", {"target": {"name": "node1"}}),
    "binds a pod": ("POST", f"{PODS}/any/binding", {"target": {"name": "node1"}}),
    "changes a workload": ("PATCH", f"{API}/namespaces/default/gpuworkloads/any", {"spec": {"priority": 9}}),
    "cordons a GPU": ("PATCH", f"{API}/gpunodes/node1", {"spec": {"cordoned": []}}),
    "makes a GPUNode": ("POST", f"{API}/gpunodes", {"metadata": {"name": "node1"}}),
    "deletes all GPUNodes": ("DELETE", f"{API}/gpunodes", None),
    "reads events": ("GET", EVENTS, None),
    "changes an event": ("PATCH", f"{EVENTS}/any", {"note": "nothing happened"}),
    "deletes events": ("DELETE", EVENTS, None),
    "writes a node": ("PATCH", "/api/v1/nodes/node1", {"spec": {"unschedulable": True}}),
    "takes the scheduler's Lease": ("PATCH", f"{LEASES}/gpu-scheduler", {"spec": {"holderIdentity": "spy"}}),
}


@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(stolen, RIGHTS[what], f"{SYSTEM_NAMESPACE}:gpu-scheduler-controller")


@pytest.mark.promise("guard-10")
def test_a_stolen_token_makes_no_other_lease(cluster: InstalledCluster, stolen: KubeClient) -> None:
    """The policy allows only the Lease by the controller's own name."""
    refused = refusal(stolen.call("POST", LEASES, {"metadata": {"name": "another"}}))

    assert refused.endswith(denial("controller", "the controller creates another Lease"))
    assert cluster.kube.get(f"{LEASES}/another") is None


@pytest.mark.promise("guard-10", "order-6")
def test_a_workload_of_the_system_says_why_it_waits(cluster: InstalledCluster) -> None:
    """A GPUWorkload in kube-system, which only an administrator can create, gets no pod and reports the reason."""
    path = f"{API}/namespaces/kube-system/gpuworkloads"
    cluster.kube.create(path, gpu_workload("lost"))

    def reported() -> str:
        return str((cluster.kube.get(f"{path}/lost") or {}).get("status", {}).get("message", ""))

    message = eventually("it says why", reported, seconds=20)
    cluster.kube.delete(f"{path}/lost")
    assert message == text_of(SYSTEMS, ns="kube-system")


def test_a_stolen_token_can_invent_a_workload(tenant: Tenant, stolen: KubeClient) -> None:
    """A policy cannot read the GPUWorkload. The pod of an invented one exists until garbage collection deletes it."""
    status, answer = stolen.call("POST", tenant.pods, _pod(**WORKLOAD))

    assert status == 201, answer
