"""S8: what a stolen scheduler token can do, and what the policies deny."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import NOBODYS, PODS, SYSTEM, lacks, refusal
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.policies import OUTSIDE, SCHEDULER
from tests.integration.workloads import API
from tests.messages import denial

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Request, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases"
SELECTED: Final = "volume.kubernetes.io/selected-node"
STRATEGIC: Final = "application/strategic-merge-patch+json"
ONLY: Final = denial("scheduler", "a scheduler writes another field of a pod's status")
ELSE: Final = denial("scheduler", "a scheduler writes another field of a claim")
TOKENS: Final = {"a stolen token": SCHEDULER, "a user of scheduler_users": OUTSIDE}


@pytest.fixture
def stolen(cluster: InstalledCluster) -> KubeClient:
    """A client with the scheduler's token."""
    return cluster.account("gpu-scheduler")


@pytest.fixture(params=TOKENS)
def user(request: pytest.FixtureRequest) -> str:
    """The scheduler's account, or a user elsewhere who has all rights: policies bind both."""
    return TOKENS[request.param]


@pytest.fixture
def scheduling(cluster: InstalledCluster, user: str) -> KubeClient:
    """A client of that user."""
    return cluster.plane.client_as(OUTSIDE) if user == OUTSIDE else cluster.account("gpu-scheduler")


@pytest.fixture(scope="module")
def claim(lasting_tenant: Tenant) -> str:
    """The path of a claim."""
    claims = lasting_tenant.namespace.claims
    lasting_tenant.kube.create(claims, _claim({"name": "data"}, {"a": "b"}))
    return f"{claims}/data"


@pytest.fixture
def others(tenant: Tenant) -> Tenant:
    """Two pods of other schedulers, one of them with null in place of lists."""
    tenant.kube.create(tenant.pods, objects.pod("web", None, scheduler="another-scheduler"))
    tenant.kube.create(tenant.pods, objects.null_pod("bare"))
    return tenant


@pytest.fixture
def targets(others: Tenant) -> Tenant:
    """These pods, and a waiting one of ours."""
    others.kube.create(others.pods, objects.pod("train-0", "0=node9:0"))
    others.namespace.wait_message("train-0", "NodeNotFound: ")
    return others


def _claim(named: Object, annotations: Object | None) -> Object:
    metadata = {**named, "labels": {"app": "db"}, "annotations": annotations}
    return {**objects.claim("", "any"), "metadata": metadata}


def _conditions(*kinds: str) -> Object:
    """Return a patch of the status with these conditions."""
    conditions = [{"type": kind, "status": "False", "reason": "Stolen", "message": "x"} for kind in kinds]
    return {"status": {"conditions": conditions}}


STATE: Final = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0}


THEIRS: Final[dict[str, tuple[str, Object]]] = {
    "writes PodScheduled of another scheduler's pod": ("web", _conditions("PodScheduled")),
    "writes PodScheduled of a bare pod": ("bare", _conditions("PodScheduled")),
    "ends another scheduler's pod": ("web", {"status": {"phase": "Succeeded"}}),
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", THEIRS)
def test_a_stolen_token_writes_no_status_of_others(
    others: Tenant, scheduling: KubeClient, user: str, what: str
) -> None:
    """Only of our pods."""
    name, body = THEIRS[what]
    before = others.namespace.read(name)

    refused = refusal(scheduling.call("PATCH", f"{others.pods}/{name}/status", body, STRATEGIC))

    said = denial("scheduler", "a scheduler writes the status of another scheduler's pod", pod=name, user=user)
    assert refused.endswith(said)
    assert others.namespace.read(name) == before


STATUSES: Final[dict[str, tuple[str, Object, str]]] = {
    "ends a pod of ours": ("train-0", {"status": {"phase": "Failed"}}, ONLY),
    "makes a pod of ours seem ready": ("train-0", _conditions("Ready"), ONLY),
    "makes it seem ready beside PodScheduled": ("train-0", _conditions("PodScheduled", "Ready"), ONLY),
    "makes its container seem ready": ("train-0", {"status": {"containerStatuses": [STATE]}}, ONLY),
    "nominates a node for it": ("train-0", {"status": {"nominatedNodeName": "node1"}}, ONLY),
    "changes an annotation of it": ("train-0", {"metadata": {"annotations": {"a": "c"}}}, ONLY),
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
def test_a_stolen_token_writes_no_other_status(targets: Tenant, scheduling: KubeClient, what: str) -> None:
    """The policy allows only condition PodScheduled, and only of our pods."""
    name, body, reported = STATUSES[what]
    path = f"{targets.pods}/{name}"
    before = targets.namespace.read(name)

    refused = refusal(scheduling.call("PATCH", f"{path}/status", body, STRATEGIC))

    assert refused.endswith(reported)
    assert targets.namespace.read(name) == before


def _annotation(key: str, value: str | None, more: Object | None = None) -> tuple[Object, str]:
    said = denial("scheduler", "a scheduler writes another annotation of a claim", key=key, claim="data")
    return objects.annotated({key: value, **(more or {})}), said


CLAIMS: Final[dict[str, tuple[Object, str]]] = {
    "binds it to a volume": ({"spec": {"volumeName": "theirs"}}, ELSE),
    "changes an annotation": _annotation("volume.kubernetes.io/storage-provisioner", "mine"),
    "adds an annotation to the node": _annotation("pv.kubernetes.io/bind-completed", "yes", {SELECTED: "node1"}),
    "removes an annotation": _annotation("a", None),
    "changes a label": ({"metadata": {"labels": {"app": "bank"}}}, ELSE),
    "removes a label": ({"metadata": {"labels": {"app": None}}}, ELSE),
    "adds a finalizer": ({"metadata": {"finalizers": ["example.com/never"]}}, ELSE),
}
OWNED: Final[Object] = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", CLAIMS)
def test_a_stolen_token_writes_nothing_else_of_a_claim(
    cluster: InstalledCluster, claim: str, scheduling: KubeClient, what: str
) -> None:
    """The policy allows only the annotation volume.kubernetes.io/selected-node."""
    before = cluster.kube.get(claim)

    body, reported = CLAIMS[what]

    refused = refusal(scheduling.merge(claim, body))

    assert refused.endswith(reported)
    assert cluster.kube.get(claim) == before


@pytest.mark.promise("guard-11")
def test_a_stolen_token_adds_no_owner_to_a_claim(cluster: InstalledCluster, claim: str, stolen: KubeClient) -> None:
    """The API server refuses who may not delete the claim; the policy refuses who may."""
    before = cluster.kube.get(claim)

    assert "cannot set an ownerRef" in refusal(stolen.merge(claim, OWNED))
    assert refusal(cluster.plane.client_as(OUTSIDE).merge(claim, OWNED)).endswith(ELSE)
    assert cluster.kube.get(claim) == before


RIGHTS: Final[dict[str, Request]] = {
    **NOBODYS,
    "creates a pod": ("POST", PODS, {"metadata": {"name": "spy"}}),
    "creates a pod beside it": ("POST", f"{SYSTEM}/pods", {"metadata": {"name": "spy"}}),
    "reads the webhook's key": ("GET", f"{SYSTEM}/secrets/gpu-scheduler-webhook-tls", None),
    "writes a node": ("PATCH", "/api/v1/nodes/node1", {"spec": {"unschedulable": True}}),
    "cordons a GPU": ("PATCH", f"{API}/gpunodes/node1", {"spec": {"cordoned": []}}),
    "makes a GPUNode": ("POST", f"{API}/gpunodes", {"metadata": {"name": "node1"}}),
    "deletes a GPUNode": ("DELETE", f"{API}/gpunodes/node1", None),
    "reads ResourceClaims": ("GET", "/apis/resource.k8s.io/v1/resourceclaims", None),
    "changes a volume": ("PATCH", "/api/v1/persistentvolumes/any", {}),
    "deletes its Lease": ("DELETE", f"{LEASES}/gpu-scheduler", None),
    "deletes a claim": ("DELETE", "/api/v1/namespaces/default/persistentvolumeclaims/any", None),
    "takes the controller's Lease": (
        "PATCH",
        f"{LEASES}/gpu-scheduler-controller",
        {"spec": {"holderIdentity": "spy"}},
    ),
}


@pytest.mark.promise("safe-3")
@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(stolen, RIGHTS[what], f"{SYSTEM_NAMESPACE}:gpu-scheduler")


@pytest.mark.promise("guard-11")
def test_a_stolen_token_makes_no_other_lease(cluster: InstalledCluster, stolen: KubeClient) -> None:
    """RBAC cannot restrict a create to a name; the policy does."""
    refused = refusal(stolen.call("POST", LEASES, {"metadata": {"name": "kube-scheduler"}}))

    assert refused.endswith(denial("scheduler", "a scheduler creates another Lease"))
    assert cluster.kube.get(f"{LEASES}/kube-scheduler") is None


@pytest.mark.promise("guard-11")
def test_the_scheduler_shows_why_a_pod_waits(targets: Tenant, scheduling: KubeClient) -> None:
    """It writes the condition twice, beside another condition, and also on a pod that is being deleted."""
    path, admin = f"{targets.pods}/train-0", targets.namespace.kube
    admin.patch(path, {"metadata": {"finalizers": ["example.com/wait"]}})
    admin.patch(f"{path}/status", _conditions("example.com/theirs"))

    for _ in range(2):
        status, answer = scheduling.call("PATCH", f"{path}/status", _conditions("PodScheduled"), STRATEGIC)
        assert status == 200, answer
        targets.namespace.delete("train-0")

    reported = {each["type"] for each in targets.namespace.read("train-0")["status"]["conditions"]}
    assert reported == {"example.com/theirs", "PodScheduled"}
    admin.patch(path, {"metadata": {"finalizers": None}})


@pytest.mark.promise("guard-11")
def test_the_scheduler_writes_the_selected_node_of_a_claim(tenant: Tenant, scheduling: KubeClient) -> None:
    """It may write the annotation of the selected node, with any annotations of the claim."""
    claims = tenant.namespace.claims
    for having in (None, {}, {"a": "b"}, {SELECTED: "node9"}):
        made = tenant.kube.create(claims, _claim({"generateName": "free-"}, having))["metadata"]["name"]

        status, answer = scheduling.merge(f"{claims}/{made}", objects.annotated({SELECTED: "node1"}))

        assert status == 200, answer
        assert answer["metadata"]["annotations"] == {**(having or {}), SELECTED: "node1"}


BINDINGS: Final[dict[str, Object]] = {
    "an annotation": {"annotations": {"a": "b"}},
    "an annotation of ours that its user writes": {"annotations": {"agentaflow.gpu/observer": "true"}},
    "an unknown annotation beside a known one": {
        "annotations": {"agentaflow.gpu/assigned-devices": "0", "agentaflow.gpu/assigned-everything": "yes"}
    },
    "a label": {"labels": {"app": "bank"}},
}


@pytest.mark.promise("guard-11")
@pytest.mark.parametrize("what", BINDINGS)
def test_a_stolen_token_writes_nothing_else_by_a_binding(
    targets: Tenant, scheduling: KubeClient, user: str, what: str
) -> None:
    """The API server copies annotations and labels of a Binding to the pod (S5)."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "node4"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "train-0", **BINDINGS[what]}, "target": target}
    # The scheduler has no right to the older path.
    for path in ("pods/train-0/binding", "bindings")[: 2 if user == OUTSIDE else 1]:
        refused = refusal(scheduling.call("POST", f"{targets.pods.removesuffix('/pods')}/{path}", body))
        assert refused.endswith(denial("scheduler", "a scheduler writes more than assignments by a Binding"))
    assert "nodeName" not in targets.namespace.read("train-0")["spec"]


def test_a_stolen_token_can_bind_pods_of_other_schedulers(targets: Tenant, stolen: KubeClient) -> None:
    """A Binding does not name the pod's scheduler, so this token can also bind pods of other schedulers."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "node4"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "web"}, "target": target}

    status, answer = stolen.call("POST", f"{targets.pods}/web/binding", body)

    assert status == 201, answer
