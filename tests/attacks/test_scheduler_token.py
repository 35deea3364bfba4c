"""S8: the scheduler's token is stolen. What it reaches, what the policies keep from it, and what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.house import refusal
from tests.integration.bench import SYSTEM_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.house import House, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
OTHERS: Final = "its schedulerName is not gpu-scheduler; leave it to its own scheduler"
ONLY: Final = "cannot write of a pod's status anything but condition PodScheduled as its scheduler"


@pytest.fixture
def stolen(house: House) -> KubeClient:
    """The token, in other hands."""
    return house.account("gpu-scheduler")


@pytest.fixture
def targets(tenant: Tenant) -> Iterator[Tenant]:
    """A pod of another scheduler's, one of ours that waits, and a claim."""
    tenant.kube.create(tenant.pods, objects.pod("web", None, scheduler="another-scheduler"))
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node9:0"))
    tenant.bench.wait_message("train-0", "NodeNotFound: ")
    tenant.bench.claim("data")
    yield tenant
    tenant.bench.kube.delete(f"{tenant.bench.claims}/data")


def _condition(kind: str) -> Object:
    return {"status": {"conditions": [{"type": kind, "status": "False", "reason": "Stolen", "message": "x"}]}}


STATUSES: Final[dict[str, tuple[str, Object, str]]] = {
    "says that another's pod waits": ("web", _condition("PodScheduled"), OTHERS),
    "ends another's pod": ("web", {"status": {"phase": "Succeeded"}}, OTHERS),
    "ends a pod of ours": ("train-0", {"status": {"phase": "Failed"}}, ONLY),
    "makes a pod of ours seem ready": ("train-0", _condition("Ready"), ONLY),
    "draws in a Service's traffic": (
        "train-0",
        {"status": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]}},
        ONLY,
    ),
    "moves a pod to another Service": ("train-0", {"metadata": {"labels": {"app": "bank"}}}, ONLY),
    "holds up a pod's end": ("train-0", {"metadata": {"finalizers": ["example.com/never"]}}, ONLY),
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", STATUSES)
def test_a_stolen_token_writes_no_other_status(targets: Tenant, stolen: KubeClient, what: str) -> None:
    """Of pods of ours it tells why they wait; nothing else, and nothing of others'."""
    name, body, told = STATUSES[what]
    path = f"{targets.pods}/{name}"
    before = targets.bench.read(name)

    refused = refusal(stolen.call("PATCH", f"{path}/status", body, STRATEGIC))

    assert told in refused
    assert targets.bench.read(name) == before


CLAIMS: Final[dict[str, Object]] = {
    "binds it to a volume": {"spec": {"volumeName": "theirs"}},
    "changes an annotation": {"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "mine"}}},
    "changes a label": {"metadata": {"labels": {"app": "bank"}}},
    "holds up its end": {"metadata": {"finalizers": ["example.com/never"]}},
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", CLAIMS)
def test_a_stolen_token_writes_nothing_else_of_a_claim(targets: Tenant, stolen: KubeClient, what: str) -> None:
    """Only on which node its pod will run."""
    path = f"{targets.bench.claims}/data"
    before = targets.bench.kube.get(path)

    refused = refusal(stolen.call("PATCH", path, CLAIMS[what], MERGE))

    assert "volume.kubernetes.io/selected-node" in refused
    assert targets.bench.kube.get(path) == before


RIGHTS: Final[dict[str, tuple[str, str, Object | None]]] = {
    "creates a pod": ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "spy"}}),
    "changes a pod": ("PATCH", "/api/v1/namespaces/default/pods/any", {"metadata": {"labels": {"a": "b"}}}),
    "deletes pods": ("DELETE", "/api/v1/namespaces/default/pods", None),
    "evicts a pod": ("POST", "/api/v1/namespaces/default/pods/any/eviction", {"metadata": {"name": "any"}}),
    "reads secrets": ("GET", "/api/v1/secrets", None),
    "reads ConfigMaps": ("GET", "/api/v1/namespaces/kube-system/configmaps", None),
    "writes the settings": ("PATCH", f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/gpu-scheduler-settings", {}),
    "writes a node": ("PATCH", "/api/v1/nodes/node1", {"spec": {"unschedulable": True}}),
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
    """RBAC refuses the rest."""
    method, path, body = RIGHTS[what]

    refused = refusal(stolen.call(method, path, body, MERGE if method == "PATCH" else "application/json"))

    assert f'User "system:serviceaccount:{SYSTEM_NAMESPACE}:gpu-scheduler" cannot ' in refused


@pytest.mark.promise("guard-11")
def test_a_stolen_token_makes_no_other_lease(house: House, stolen: KubeClient) -> None:
    """A right to create knows no names; the policy does."""
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"

    refused = refusal(stolen.call("POST", leases, {"metadata": {"name": "kube-scheduler"}}))

    assert "cannot create this Lease as the scheduler: its own is called gpu-scheduler" in refused
    assert house.kube.get(f"{leases}/kube-scheduler") is None


@pytest.mark.promise("guard-11")
def test_the_scheduler_tells_pods_and_claims(targets: Tenant, stolen: KubeClient) -> None:
    """What the token is for."""
    told = stolen.call("PATCH", f"{targets.pods}/train-0/status", _condition("PodScheduled"), STRATEGIC)
    assert told[0] == 200, told[1]

    selected = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "node1"}}}
    told = stolen.call("PATCH", f"{targets.bench.claims}/data", selected, MERGE)
    assert told[0] == 200, told[1]


def test_what_is_left_is_a_binding(targets: Tenant, stolen: KubeClient) -> None:
    """A Binding does not say whose pod it is about: whoever has the token binds other schedulers' pods too."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "node4"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": target}

    status, answer = stolen.call("POST", f"{targets.pods}/web/binding", body)

    assert status == 201, answer
