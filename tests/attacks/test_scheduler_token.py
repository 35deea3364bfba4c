"""S8: what a stolen scheduler token can do, and what the policies deny."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import refusal
from tests.integration.namespace import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
OTHERS: Final = "its schedulerName is not gpu-scheduler; leave it to its own scheduler"
ONLY: Final = "cannot write of a pod's status anything but condition PodScheduled as its scheduler"


@pytest.fixture
def stolen(cluster: InstalledCluster) -> KubeClient:
    """A client with the scheduler's token."""
    return cluster.account("gpu-scheduler")


@pytest.fixture
def targets(tenant: Tenant) -> Iterator[Tenant]:
    """A pod of another scheduler, a waiting pod of ours, and a claim."""
    tenant.kube.create(tenant.pods, objects.pod("web", None, scheduler="another-scheduler"))
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node9:0"))
    tenant.namespace.wait_message("train-0", "NodeNotFound: ")
    tenant.namespace.claim("data")
    yield tenant
    tenant.namespace.kube.delete(f"{tenant.namespace.claims}/data")


def _condition(kind: str) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": "False", "reason": "Stolen", "message": "x"}]}}


STATUSES: Final[dict[str, tuple[str, Object, str]]] = {
    "writes PodScheduled of another scheduler's pod": ("web", _condition("PodScheduled"), OTHERS),
    "ends another scheduler's pod": ("web", {"status": {"phase": "Succeeded"}}, OTHERS),
    "ends a pod of ours": ("train-0", {"status": {"phase": "Failed"}}, ONLY),
    "makes a pod of ours seem ready": ("train-0", _condition("Ready"), ONLY),
    "changes the IP address of a pod of ours": (
        "train-0",
        {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}},
        ONLY,
    ),
    "changes a label of a pod of ours": ("train-0", {"metadata": {"labels": {"app": "bank"}}}, ONLY),
    "adds a finalizer to a pod of ours": ("train-0", {"metadata": {"finalizers": ["example.com/never"]}}, ONLY),
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", STATUSES)
def test_a_stolen_token_writes_no_other_status(targets: Tenant, stolen: KubeClient, what: str) -> None:
    """The policy allows only condition PodScheduled, and only of our pods."""
    name, body, reported = STATUSES[what]
    path = f"{targets.pods}/{name}"
    before = targets.namespace.read(name)

    refused = refusal(stolen.call("PATCH", f"{path}/status", body, STRATEGIC))

    assert reported in refused
    assert targets.namespace.read(name) == before


CLAIMS: Final[dict[str, Object]] = {
    "binds it to a volume": {"spec": {"volumeName": "theirs"}},
    "changes an annotation": {"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "mine"}}},
    "changes a label": {"metadata": {"labels": {"app": "bank"}}},
    "adds a finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", CLAIMS)
def test_a_stolen_token_writes_nothing_else_of_a_claim(targets: Tenant, stolen: KubeClient, what: str) -> None:
    """The policy allows only the annotation volume.kubernetes.io/selected-node."""
    path = f"{targets.namespace.claims}/data"
    before = targets.namespace.kube.get(path)

    refused = refusal(stolen.call("PATCH", path, CLAIMS[what], MERGE))

    assert "volume.kubernetes.io/selected-node" in refused
    assert targets.namespace.kube.get(path) == before


RIGHTS: Final[dict[str, tuple[str, str, Object | None]]] = {
    "creates a pod": ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "spy"}}),
    "changes a pod": ("PATCH", "/api/v1/namespaces/default/pods/any", {"metadata": {"labels": {"a": "b"}}}),
    "deletes pods": ("DELETE", "/api/v1/namespaces/default/pods", None),
    "evicts a pod": ("POST", "/api/v1/namespaces/default/pods/any/eviction", {"metadata": {"name": "any"}}),
    "reads secrets": ("GET", "/api/v1/secrets", None),
    "reads ConfigMaps": ("GET", "/api/v1/namespaces/kube-system/configmaps", None),
    "writes the settings": ("PATCH", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/gpu-scheduler-settings", {}),
    "writes a node": ("PATCH", "/api/v1/nodes/node1", {"spec": {"unschedulable": True}}),
    "cordons a GPU": ("PATCH", "/apis/agentaflow.io/v1/gpunodes/node1", {"spec": {"cordoned": []}}),
    "makes a GPUNode": ("POST", "/apis/agentaflow.io/v1/gpunodes", {"metadata": {"name": "node1"}}),
    "deletes a GPUNode": ("DELETE", "/apis/agentaflow.io/v1/gpunodes/node1", None),
    "makes a ResourceClaim": ("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", {}),
    "reads ResourceClaims": ("GET", "/apis/resource.k8s.io/v1/resourceclaims", None),
    "deletes a claim": ("DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/any", None),
    "switches a policy off": (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gpu-scheduler-scheduler",
        None,
    ),
    "grants a right": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"metadata": {"name": "a"}}),
    "takes the controller's Lease": (
        "PATCH",
        f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/gpu-scheduler-controller",
        {"spec": {"holderIdentity": "spy"}},
    ),
}


@pytest.mark.promise("safe-3")
@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    method, path, body = RIGHTS[what]

    refused = refusal(stolen.call(method, path, body, MERGE if method == "PATCH" else "application/json"))

    assert f'User "system:serviceaccount:{SYSTEM_NAMESPACE}:gpu-scheduler" cannot ' in refused


@pytest.mark.promise("guard-11")
def test_a_stolen_token_makes_no_other_lease(cluster: InstalledCluster, stolen: KubeClient) -> None:
    """RBAC cannot restrict a create to a name; the policy does."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"

    refused = refusal(stolen.call("POST", leases, {"metadata": {"name": "kube-scheduler"}}))

    assert "cannot create this Lease as the scheduler: its own is called gpu-scheduler" in refused
    assert cluster.kube.get(f"{leases}/kube-scheduler") is None


@pytest.mark.promise("guard-11")
def test_the_scheduler_writes_pods_and_claims(targets: Tenant, stolen: KubeClient) -> None:
    """The scheduler writes condition PodScheduled and the selected node of a claim."""
    reported = stolen.call("PATCH", f"{targets.pods}/train-0/status", _condition("PodScheduled"), STRATEGIC)
    assert reported[0] == 200, reported[1]

    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node1"}}}
    reported = stolen.call("PATCH", f"{targets.namespace.claims}/data", selected, MERGE)
    assert reported[0] == 200, reported[1]


def test_a_stolen_token_can_bind_pods_of_other_schedulers(targets: Tenant, stolen: KubeClient) -> None:
    """A Binding does not name the pod's scheduler, so this token can also bind pods of other schedulers."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "node4"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": target}

    status, answer = stolen.call("POST", f"{targets.pods}/web/binding", body)

    assert status == 201, answer
