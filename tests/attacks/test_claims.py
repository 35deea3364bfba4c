"""ResourceClaims with `isolation: dra`: what a tenant and a stolen scheduler token do to them is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import InstalledCluster, Tenant, lacks, refusal
from tests.integration.isolated import DRIVER, RESOURCES, devices_of, others_claim
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.messages import denial, quotes, says
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.attacks.installed_cluster import Request
    from tests.kube_client import KubeClient
    from tests.objects import Object

MERGE: Final = "application/merge-patch+json"
PROTECTION: Final = "resource.kubernetes.io/delete-protection"
NAME: Final = f"gpu-scheduler-{'0123456789abcdef' * 2}"
CREATED: Final = "an account that is no scheduler creates a ResourceClaim of a name of ours"
OTHERS: Final = "a scheduler writes a ResourceClaim of others"
ELSE: Final = (
    denial("scheduler", "a scheduler writes another field of a ResourceClaim"),
    denial("scheduler", "a scheduler writes another field of a ResourceClaim's status"),
)
ENTRY: Final = "gpu-scheduler-0"
"""The name of our first entry in a pod's spec.resourceClaims."""
WITH_ENTRY: Final = [{"name": "main", "image": objects.IMAGE, "resources": {"claims": [{"name": ENTRY}]}}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledCluster]:
    """The installed cluster, with `isolation: dra`."""
    cluster = InstalledCluster(tmp_path_factory.mktemp("isolated"), "dra")
    yield cluster
    cluster.stop()


@dataclass(frozen=True, slots=True)
class Placed:
    """A tenant with a bound pod, train-0, and its claim."""

    tenant: Tenant
    claims: str
    """The path of the namespace's claims."""
    name: str

    @property
    def path(self) -> str:
        """The claim's path."""
        return f"{self.claims}/{self.name}"

    def read(self) -> Object:
        """Return the claim."""
        found: Any = self.tenant.namespace.kube.get(self.path)
        return dict(found)


def claims_of(tenant: Tenant) -> str:
    return f"{RESOURCES}/namespaces/{tenant.namespace.name}/resourceclaims"


@pytest.fixture
def placed(tenant: Tenant) -> Iterator[Placed]:
    """A pod with GPU 0 of node2. At the end its claim is freed."""
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node2:0"))
    pod = tenant.namespace.wait_bound("train-0", "node2", seconds=20)
    (entry,) = pod["spec"]["resourceClaims"]
    placed = Placed(tenant, claims_of(tenant), entry["resourceClaimName"])
    yield placed
    tenant.leave()
    eventually("its claim is gone", lambda: tenant.namespace.kube.get(placed.path) is None, seconds=20)


@pytest.mark.promise("guard-14")
@pytest.mark.parametrize(
    ("metadata", "claim"),
    [({"name": NAME}, NAME), ({"generateName": "gpu-scheduler-"}, "gpu-scheduler-[a-z0-9]+")],
    ids=["name", "generateName"],
)
def test_a_tenant_makes_no_claim_of_ours(tenant: Tenant, metadata: Object, claim: str) -> None:
    """A claim that is there before its pod would keep the pod waiting, or be allocated by another scheduler."""
    refused = refusal(tenant.call("POST", claims_of(tenant), {**others_claim(""), "metadata": metadata}))

    said = re.escape(denial("claims", CREATED, claim="NAME", user=tenant.user)).replace("NAME", claim)
    assert re.search(f"{said}$", refused), refused


def test_a_tenant_applies_no_claim_of_ours(tenant: Tenant) -> None:
    """Server-side apply creates it too."""
    body = {**others_claim(NAME), "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    path = f"{claims_of(tenant)}/{NAME}?fieldManager=tenant"

    said = denial("claims", CREATED, claim=NAME, user=tenant.user)
    assert refusal(tenant.call("PATCH", path, body, "apply-patch+yaml")).endswith(said)


def test_a_tenant_makes_claims_of_other_names(tenant: Tenant) -> None:
    """Those of pods of other schedulers, also with a name that begins like ours."""
    for name in ("mine", "gpu-scheduler-test-0-gpus-abcde"):
        tenant.kube.create(claims_of(tenant), others_claim(name))
        tenant.namespace.kube.delete(f"{claims_of(tenant)}/{name}")


CHANGES: Final[dict[str, Object]] = {
    "takes the finalizer away": {"finalizers": None},
    "adds a finalizer": {"finalizers": [PROTECTION, "example.com/never"]},
    "takes the owner away": {"ownerReferences": None},
}


@pytest.mark.promise("guard-14")
@pytest.mark.parametrize("what", CHANGES)
def test_a_tenant_does_not_change_what_keeps_a_claim(placed: Placed, what: str) -> None:
    """Without its finalizer a claim could be deleted while its pod runs, and its GPU be given away."""
    before = placed.read()

    refused = refusal(placed.tenant.call("PATCH", placed.path, {"metadata": CHANGES[what]}, "merge-patch+json"))

    kept = "an account that is no scheduler changes what keeps a ResourceClaim"
    assert refused.endswith(denial("claims", kept, claim=placed.name, user=placed.tenant.user))
    assert placed.read() == before


def test_a_tenant_may_label_a_claim(placed: Placed) -> None:
    """Nobody reads its labels."""
    labels = {"metadata": {"labels": {"team": "a"}}}

    status, answer = placed.tenant.call("PATCH", placed.path, labels, "merge-patch+json")

    assert status == 200, answer


def test_a_tenant_writes_no_status_of_a_claim(placed: Placed) -> None:
    """A namespace's admin has no right to it."""
    freed = {"status": {"allocation": None, "reservedFor": None}}

    refused = refusal(placed.tenant.call("PATCH", f"{placed.path}/status", freed, "merge-patch+json"))

    assert 'cannot patch resource "resourceclaims/status"' in refused


@pytest.mark.promise("guard-14")
def test_a_deleted_claim_keeps_its_gpu_while_its_pod_runs(placed: Placed) -> None:
    """Its finalizer does: the GPU is given to nobody until the pod has ended."""
    allocated = placed.read()["status"]

    status, answer = placed.tenant.call("DELETE", placed.path)

    assert status == 200, answer
    assert placed.read()["metadata"]["finalizers"] == [PROTECTION]
    placed.tenant.kube.create(placed.tenant.pods, objects.pod("rival-0", "0=node2:0,1"))
    placed.tenant.namespace.wait_message("rival-0", "GpuHeld: ", seconds=20)
    assert placed.read()["status"] == allocated

    placed.tenant.namespace.delete("train-0")
    placed.tenant.namespace.wait_bound("rival-0", "node2", seconds=30)


def preset(name: str, claim: str, text: str | None = None, **more: Any) -> Object:
    """Return a pod that names a claim by hand."""
    claims = [{"name": ENTRY, "resourceClaimName": claim}]
    body = objects.pod(name, text, resourceClaims=claims, **more)
    body["spec"]["containers"] = WITH_ENTRY
    return body


@pytest.mark.promise("guard-14")
@pytest.mark.parametrize("node", [{}, {"nodeName": "node2"}], ids=["scheduled", "bound by its author"])
def test_a_pod_of_another_scheduler_does_not_use_a_claim_of_ours(placed: Placed, node: Object) -> None:
    """It would have the GPU of a pod of ours, and keep it after that pod's end."""
    pod = preset("spy", placed.name, scheduler="default-scheduler", **node)

    refused = refusal(placed.tenant.call("POST", placed.tenant.pods, pod))

    said = denial("claim-users", "a pod of another scheduler uses a ResourceClaim of ours", claim=placed.name)
    assert refused.endswith(said)


def test_a_pod_with_a_line_does_not_name_another_claim(placed: Placed) -> None:
    """The webhook knows the claims of a line."""
    status, answer = placed.tenant.call("POST", placed.tenant.pods, preset("spy-0", placed.name, "0=node2:1"))

    assert status == 400, answer
    quotes(answer["message"], "RequestInvalid", "spec.resourceClaims", f'"{placed.name}"')


@pytest.mark.promise("guard-14")
def test_a_pod_by_count_gets_no_claim_of_another_pod(placed: Placed) -> None:
    """The name of its claim is random, so it may name any. The scheduler does not share the one that it finds."""
    pod = preset("spy", placed.name, annotations={"agentaflow.gpu/count": "1"})
    before = placed.read()
    placed.tenant.kube.create(placed.tenant.pods, pod)

    message = placed.tenant.namespace.wait_message("spy", "GpuHeld: ", seconds=20)

    says(message, "GpuHeld", placed.name, "1 pod")
    assert placed.read()["status"] == before["status"]


@pytest.fixture
def stolen(cluster: InstalledCluster) -> KubeClient:
    """A client with the scheduler's token."""
    return cluster.account("gpu-scheduler")


@pytest.mark.promise("guard-15")
@pytest.mark.parametrize("name", ["mine", "gpu-scheduler-", f"{NAME}0"])
def test_a_stolen_token_makes_no_claim_of_another_name(tenant: Tenant, stolen: KubeClient, name: str) -> None:
    """RBAC cannot restrict a create to a name; the policy does."""
    body = others_claim("") if name.endswith("-") else others_claim(name)
    if name.endswith("-"):
        body["metadata"] = {"generateName": f"{name}not-"}

    refused = refusal(stolen.call("POST", claims_of(tenant), body))

    assert refused.endswith(denial("scheduler", OTHERS))


def allocation(node: str = "node4", device: str = "gpu-3") -> Object:
    result = {"request": "gpus", "driver": DRIVER, "pool": node, "device": device}
    return {"devices": {"results": [result]}}


FOREIGN: Final[dict[str, tuple[str, Object]]] = {
    "allocates it": ("/status", {"status": {"allocation": allocation()}}),
    "frees it": ("/status", {"status": {"allocation": None, "reservedFor": None}}),
    "reserves it": ("/status", {"status": {"reservedFor": [{"resource": "pods", "name": "a", "uid": "a"}]}}),
    "adds a finalizer": ("", {"metadata": {"finalizers": ["example.com/never"]}}),
    "takes its finalizer away": ("", {"metadata": {"finalizers": None}}),
    "changes a label": ("", {"metadata": {"labels": {"app": "bank"}}}),
}


@pytest.fixture
def data(cluster: InstalledCluster, tenant: Tenant) -> Iterator[str]:
    """The path of a tenant's claim that is not ours, and that nobody has allocated."""
    path, claim = f"{claims_of(tenant)}/data", others_claim("data")
    claim["metadata"]["finalizers"] = ["example.com/theirs"]
    cluster.kube.create(claims_of(tenant), claim)
    yield path
    cluster.kube.patch(path, {"metadata": {"finalizers": None}})
    cluster.kube.delete(path)


# What it may do with a claim that nobody has allocated: see below.
ALLOWED: Final = {("allocates it", False), ("frees it", False)}
WRITES: Final = [(what, allocated) for what in FOREIGN for allocated in (False, True)]


@pytest.mark.promise("guard-15")
@pytest.mark.parametrize(("what", "allocated"), [each for each in WRITES if each not in ALLOWED])
def test_a_stolen_token_does_not_write_a_foreign_claim(
    cluster: InstalledCluster,
    data: str,
    stolen: KubeClient,
    what: str,
    allocated: bool,  # noqa: FBT001 - a row
) -> None:
    """It frees no claim that another scheduler has allocated, and changes none."""
    part, body = FOREIGN[what]
    if allocated:
        cluster.kube.patch(f"{data}/status", {"status": {"allocation": allocation()}})
    before = cluster.kube.get(data)

    answer = stolen.merge(f"{data}{part}", body)

    # The API server may find first that the write itself is invalid.
    assert refusal(answer).endswith((denial("scheduler", OTHERS), *ELSE)) if answer[0] != 422 else not allocated
    assert cluster.kube.get(data) == before


CLEARED: Final[Object] = {"status": {"allocation": None, "reservedFor": None}}
MANAGER: Final = "?fieldManager=gpu-scheduler"


@pytest.mark.promise("guard-15")
def test_a_stolen_token_allocates_a_claim_that_nobody_has_allocated(
    cluster: InstalledCluster, data: str, stolen: KubeClient
) -> None:
    """A policy cannot read for which pod a claim is. It takes back what it allocated itself, and nothing else."""
    status = f"{data}/status{MANAGER}"
    assert stolen.merge(status, {"status": {"allocation": allocation()}})[0] == 200
    assert devices_of(cluster.kube.get(data) or {}) == ["node4/gpu-3"]
    assert stolen.merge(status, CLEARED)[0] == 200
    assert devices_of(cluster.kube.get(data) or {}) == []


@pytest.mark.promise("guard-15")
def test_a_stolen_token_does_not_make_the_allocation_of_another_scheduler_its_own(
    cluster: InstalledCluster, data: str, stolen: KubeClient
) -> None:
    """An apply of the same allocation would make it one of its managers, and then it could free the GPU."""
    allocated = {"status": {"allocation": allocation()}}
    cluster.kube.patch(f"{data}/status", allocated)
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "data"}, **allocated}
    applied = f"{data}/status{MANAGER}&force=true"
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:allocation": {}}}}
    entry = {"manager": "gpu-scheduler", "operation": "Update", "subresource": "status", **fields}
    forged = {"managedFields": [{**entry, "apiVersion": "resource.k8s.io/v1", "time": "2026-01-01T00:00:00Z"}]}

    for answer in (
        stolen.merge(data, {"metadata": forged}),
        stolen.call("PATCH", applied, body, "application/apply-patch+yaml"),
        stolen.merge(f"{data}/status{MANAGER}", CLEARED),
    ):
        assert refusal(answer).endswith(denial("scheduler", OTHERS))
    assert devices_of(cluster.kube.get(data) or {}) == ["node4/gpu-3"]


@pytest.mark.promise("guard-15")
def test_a_tenants_own_claim_is_allocated_for_its_pod(tenant: Tenant) -> None:
    """The policies let the scheduler do that with its own rights, and no more than that."""
    path = f"{claims_of(tenant)}/mine"
    tenant.kube.create(claims_of(tenant), others_claim("mine"))
    before = tenant.kube.get(path) or {}
    pod = objects.pod("train", None, resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    tenant.kube.create(tenant.pods, pod)
    eventually("train is bound", lambda: tenant.namespace.node_of("train"), seconds=20)

    after = tenant.kube.get(path) or {}
    assert (after["spec"], after["metadata"]["finalizers"]) == (before["spec"], [PROTECTION])
    assert len(devices_of(after)) == 1
    tenant.leave()
    eventually("its GPU is free", lambda: not devices_of(tenant.namespace.kube.get(path) or {}), seconds=20)


OURS: Final[dict[str, tuple[str, Object]]] = {
    "takes its finalizer away": ("", {"metadata": {"finalizers": None}}),
    "adds a finalizer": ("", {"metadata": {"finalizers": [PROTECTION, "example.com/never"]}}),
    "changes a label": ("", {"metadata": {"labels": {"app": "bank"}}}),
    "changes an annotation": ("", {"metadata": {"annotations": {"resource.kubernetes.io/pod-claim-name": "a"}}}),
    "forges the state of a device": (
        "/status",
        {"status": {"devices": [{"driver": DRIVER, "pool": "node2", "device": "gpu-0", "data": {"a": 1}}]}},
    ),
    "reserves it for something else than a pod": (
        "/status",
        {"status": {"reservedFor": [{"apiGroup": "batch", "resource": "jobs", "name": "a", "uid": "a"}]}},
    ),
}


@pytest.mark.promise("guard-15")
@pytest.mark.parametrize("what", OURS)
def test_a_stolen_token_writes_nothing_else_of_a_claim_of_ours(placed: Placed, stolen: KubeClient, what: str) -> None:
    """Only its owners, its finalizer, its allocation and its pods."""
    part, body = OURS[what]
    before = placed.read()

    status, answer = stolen.call("PATCH", f"{placed.path}{part}", body, MERGE)

    # From Kubernetes 1.36 on, the state of devices needs another right too, and that is looked at first.
    no_right = status == 422 and 'resource "resourceclaims/driver"' in answer["message"]
    assert no_right or (status == 403 and answer["message"].endswith(ELSE)), answer
    assert placed.read() == before
    assert devices_of(before) == ["node2/gpu-0"]


RIGHTS: Final[dict[str, Request]] = {
    "makes a slice": ("POST", f"{RESOURCES}/resourceslices", {"metadata": {"name": "a"}}),
    "changes a slice": ("PATCH", f"{RESOURCES}/resourceslices/node1-{DRIVER}-1", {"metadata": {"labels": {"a": "b"}}}),
    "deletes slices": ("DELETE", f"{RESOURCES}/resourceslices", None),
    "makes a class": ("POST", f"{RESOURCES}/deviceclasses", {"metadata": {"name": "a"}}),
    "changes a class": ("PATCH", f"{RESOURCES}/deviceclasses/{DRIVER}", {"metadata": {"labels": {"a": "b"}}}),
    "replaces a claim": ("PUT", f"{RESOURCES}/namespaces/default/resourceclaims/{NAME}", {"metadata": {"name": NAME}}),
    "deletes a claim": ("DELETE", f"{RESOURCES}/namespaces/default/resourceclaims/{NAME}", None),
    "deletes claims": ("DELETE", f"{RESOURCES}/namespaces/default/resourceclaims", None),
    "makes a template of claims": (
        "POST",
        f"{RESOURCES}/namespaces/default/resourceclaimtemplates",
        {"metadata": {"name": "a"}},
    ),
    "ends a pod": ("DELETE", "/api/v1/namespaces/default/pods/any", None),
}


@pytest.mark.promise("safe-3")
@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right_with_claims(stolen: KubeClient, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(stolen, RIGHTS[what], f"{SYSTEM_NAMESPACE}:gpu-scheduler")
