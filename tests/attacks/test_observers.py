"""S4: a tenant declares its pods observers or keeps its own values to see GPUs of other pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import Tenant, refusal
from tests.integration.accounts import RBAC, binding, rights
from tests.messages import denial, text_of
from tests.objects import gpu_workload, pod_template
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster
    from tests.objects import Object

OBSERVER: Final = {"agentaflow.gpu/observer": "true"}
KEEP: Final = {"agentaflow.gpu/keep-env": "true"}
EVERY: Final = "0=node1:0,1,2,3"
RIGHTS: Final = ((OBSERVER, "observers"), (KEEP, "keepenvs"))
REFUSED: Final = "an account without the right asks to see or to keep GPUs"


@pytest.fixture(scope="module")
def trusting(cluster: InstalledCluster) -> Tenant:
    """A tenant whose account `trusted` has both rights."""
    tenant = Tenant(cluster)
    for _, resource in RIGHTS:
        cluster.allow(tenant.namespace.name, resource, "trusted")
    return tenant


def _pod(name: str, annotations: dict[str, str], **spec: object) -> Object:
    env = objects.literal("3") if annotations is KEEP else None
    return objects.pod(name, EVERY, env, annotations=annotations, **spec)


def _pods(tenant: Tenant) -> list[str]:
    return [pod["metadata"]["name"] for pod in tenant.cluster.kube.call("GET", tenant.pods)[1]["items"]]


ACCOUNTS: Final[dict[str, tuple[dict[str, str], str]]] = {
    "no account": ({}, "default"),
    "an empty account": ({"serviceAccountName": ""}, "default"),
    "the default account": ({"serviceAccountName": "default"}, "default"),
    "the tenant's account": ({"serviceAccountName": "tenant"}, "tenant"),
    "the tenant's account in the deprecated field": ({"serviceAccount": "tenant"}, "tenant"),
    "an account with the name of the check's": ({"serviceAccountName": "gpu-scheduler-check"}, "gpu-scheduler-check"),
    "an account with the name of one that has the right elsewhere": ({"serviceAccountName": "trusted"}, "trusted"),
    "an account with a dot in its name": ({"serviceAccountName": "trusted.elsewhere"}, "trusted.elsewhere"),
}


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize(("spec", "account"), ACCOUNTS.values(), ids=ACCOUNTS)
@pytest.mark.parametrize(("annotations", "resource"), RIGHTS, ids=["observer", "keep-env"])
@pytest.mark.usefixtures("trusting")
def test_a_tenant_sees_no_gpu_that_is_not_booked(
    tenant: Tenant, annotations: dict[str, str], resource: str, spec: dict[str, str], account: str
) -> None:
    """The account is named by either field or left out. The message names account, right and remedy."""
    refused = refusal(tenant.call("POST", tenant.pods, _pod("spy-0", annotations, **spec)))

    (key,) = annotations
    named = {"key": key, "account": account, "resource": resource, "ns": tenant.namespace.name}
    assert refused.endswith(denial("rights", REFUSED, **named))
    assert _pods(tenant) == []


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
@pytest.mark.parametrize("annotations", [OBSERVER, KEEP], ids=["observer", "keep-env"])
def test_an_account_with_the_right_is_admitted(trusting: Tenant, annotations: dict[str, str], field: str) -> None:
    """The Role that the message of a refusal names is sufficient, and the annotation is kept."""
    status, answer = trusting.call(
        "POST", f"{trusting.pods}?dryRun=All", _pod("a-0", annotations, **{field: "trusted"})
    )

    assert status == 201, answer
    assert annotations.items() <= answer["metadata"]["annotations"].items()


NEEDLESS: Final = {
    "without annotations": objects.pod("a-0", EVERY),
    "that say no": objects.pod("a-0", EVERY, annotations=dict.fromkeys(OBSERVER | KEEP, "false")),
    "of another scheduler": objects.pod("a-0", scheduler="another-scheduler", annotations=OBSERVER | KEEP),
    "with null in place of maps": objects.null_pod("a-0"),
}


@pytest.mark.promise("guard-6", "guard-7")
@pytest.mark.parametrize("pod", NEEDLESS.values(), ids=NEEDLESS)
def test_other_pods_need_no_right(tenant: Tenant, pod: Object) -> None:
    """Pods without these annotations set to true, and pods of other schedulers, need no right."""
    status, answer = tenant.call("POST", f"{tenant.pods}?dryRun=All", pod)

    assert status == 201, answer


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("resource", ["observers", "keepenvs", "*"])
def test_a_tenant_grants_itself_no_right(tenant: Tenant, resource: str) -> None:
    """ClusterRole `admin` may write Roles, but Kubernetes refuses a Role with rights that it lacks."""
    roles = f"{RBAC}/namespaces/{tenant.namespace.name}/roles"

    refused = refusal(tenant.call("POST", roles, {"metadata": {"name": "spy"}, "rules": [rights(resource, "use")]}))

    assert "is attempting to grant RBAC permissions not currently held" in refused
    assert tenant.cluster.kube.get(f"{roles}/spy") is None


@pytest.mark.promise("guard-7")
def test_a_tenant_cannot_use_a_right_of_another_account(cluster: InstalledCluster, new_tenant: Tenant) -> None:
    """If an administrator gives one account the right, the tenant cannot bind another account to that Role."""
    namespace = new_tenant.namespace.name
    cluster.allow(namespace, "observers", "trusted")
    body = binding("spy", "Role", "trusted-uses-observers", "default", namespace)

    refused = refusal(new_tenant.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", body))

    assert "is attempting to grant RBAC permissions not currently held" in refused
    assert new_tenant.call("POST", new_tenant.pods, _pod("spy-0", OBSERVER))[0] == 403


@pytest.mark.promise("guard-7", "share-6")
def test_a_trusted_account_observes(trusting: Tenant) -> None:
    """A pod of an account with the right observes GPUs that another pod holds and keeps."""
    trusting.kube.create(trusting.pods, objects.pod("train-0", EVERY))
    trusting.namespace.wait_bound("train-0", "node1")
    pod = objects.pod("watch-1", EVERY.replace("0=", "1="), annotations=OBSERVER, serviceAccountName="trusted")

    trusting.kube.create(trusting.pods, pod)

    assert trusting.namespace.placed("watch-1").devices == "0,1,2,3"
    assert trusting.namespace.node_of("train-0") == "node1"
    trusting.leave()


@pytest.mark.promise("guard-7", "fixed-1")
@pytest.mark.parametrize("path", ["", "/status", "/ephemeralcontainers", "/resize"])
@pytest.mark.parametrize("annotations", [OBSERVER, KEEP], ids=["observer", "keep-env"])
def test_no_pod_becomes_an_observer_later(tenant: Tenant, annotations: dict[str, str], path: str) -> None:
    """The annotation cannot be added through any subresource."""
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node9:0"))
    before = tenant.namespace.read("train-0")["metadata"]["annotations"]

    body = {"metadata": {"annotations": annotations}}
    status, answer = tenant.call("PATCH", f"{tenant.pods}/train-0{path}", body, "strategic-merge-patch+json")

    # The subresources ephemeralcontainers and resize ignore annotations.
    assert status in ({422} if not path else {403} if path == "/status" else {200, 403, 422}), answer
    assert tenant.namespace.read("train-0")["metadata"]["annotations"] == before


@pytest.mark.promise("guard-7")
def test_a_workloads_pod_is_no_observer_either(new_tenant: Tenant) -> None:
    """The policy checks the account of the pod that the controller creates. The GPUWorkload reports the refusal."""
    tenant = new_tenant
    body = gpu_workload("spy", pod_template(OBSERVER))
    assert tenant.call("POST", tenant.workloads, body)[0] == 201

    def reported() -> str:
        found = tenant.kube.get(f"{tenant.workloads}/spy") or {}
        return str(found.get("status", {}).get("message", ""))

    message = eventually("the workload says why it waits", reported, seconds=20)
    (key,) = OBSERVER
    assert message == text_of(REFUSED, key=key, account="default", resource="observers", ns=tenant.namespace.name)
    assert _pods(tenant) == []
