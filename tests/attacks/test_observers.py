"""S4: a tenant declares its pods observers or keeps its own values to see GPUs of other pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import RBAC, refusal
from tests.objects import gpu_workload, pod_template
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.objects import Object

OBSERVER: Final = {"agentaflow.gpu/observer": "true"}
KEEP: Final = {"agentaflow.gpu/keep-env": "true"}
EVERY: Final = "0=node1:0,1,2,3"
REFUSED: Final = "RequestInvalid: cannot create a pod with annotation agentaflow.gpu/"


def _pod(name: str, annotations: dict[str, str], **spec: object) -> Object:
    env = objects.literal("3") if annotations is KEEP else None
    return objects.pod(name, EVERY, env, annotations=annotations, **spec)


def _pods(tenant: Tenant) -> list[str]:
    return [pod["metadata"]["name"] for pod in tenant.cluster.kube.call("GET", tenant.pods)[1]["items"]]


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("account", [None, "tenant", "gpu-scheduler-check"])
@pytest.mark.parametrize("annotations", [OBSERVER, KEEP], ids=["observer", "keep-env"])
def test_a_tenant_sees_no_gpu_that_is_not_booked(
    tenant: Tenant, annotations: dict[str, str], account: str | None
) -> None:
    """Refused for the default account, the tenant's account, and an account with the same name as the check's."""
    spec = {} if account is None else {"serviceAccountName": account}

    refused = refusal(tenant.call("POST", tenant.pods, _pod("spy-0", annotations, **spec)))

    (key,) = annotations
    cannot = f"RequestInvalid: cannot create a pod with annotation {key}: its service account {account or 'default'}"
    assert cannot in refused
    assert _pods(tenant) == []


@pytest.mark.promise("guard-7")
@pytest.mark.parametrize("resource", ["observers", "keepenvs", "*"])
def test_a_tenant_grants_itself_no_right(tenant: Tenant, resource: str) -> None:
    """ClusterRole `admin` may write Roles, but Kubernetes refuses a Role with rights that it lacks."""
    rules = [{"apiGroups": ["agentaflow.io"], "resources": [resource], "verbs": ["use"]}]
    roles = f"{RBAC}/namespaces/{tenant.namespace.name}/roles"

    refused = refusal(tenant.call("POST", roles, {"metadata": {"name": "spy"}, "rules": rules}))

    assert "is attempting to grant RBAC permissions not currently held" in refused
    assert tenant.cluster.kube.get(f"{roles}/spy") is None


@pytest.mark.promise("guard-7")
def test_a_tenant_cannot_use_a_right_of_another_account(cluster: InstalledCluster, tenant: Tenant) -> None:
    """If an administrator gives one account the right, the tenant cannot bind another account to that Role."""
    cluster.allow(tenant.namespace.name, "observers", "trusted")
    body = {
        "metadata": {"name": "spy"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "trusted-uses-observers"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": tenant.namespace.name}],
    }

    refused = refusal(tenant.call("POST", f"{RBAC}/namespaces/{tenant.namespace.name}/rolebindings", body))

    assert "is attempting to grant RBAC permissions not currently held" in refused
    assert tenant.call("POST", tenant.pods, _pod("spy-0", OBSERVER))[0] == 403


@pytest.mark.promise("guard-7", "share-6")
def test_a_trusted_account_observes(cluster: InstalledCluster, tenant: Tenant) -> None:
    """A pod of an account with the right observes GPUs that another pod holds and keeps."""
    tenant.kube.create(tenant.pods, objects.pod("train-0", EVERY))
    tenant.namespace.wait_bound("train-0", "node1")
    cluster.allow(tenant.namespace.name, "observers", "trusted")

    pod = objects.pod("watch-1", EVERY.replace("0=", "1="), annotations=OBSERVER, serviceAccountName="trusted")

    def admitted() -> bool:
        status, answer = tenant.call("POST", tenant.pods, pod)
        assert status in {201, 403}, answer
        return status == 201

    eventually("the API server knows the right", admitted)

    assert tenant.namespace.placed("watch-1").devices == "0,1,2,3"
    assert tenant.namespace.node_of("train-0") == "node1"


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
def test_a_workloads_pod_is_no_observer_either(tenant: Tenant) -> None:
    """The policy checks the account of the pod that the controller creates. The GPUWorkload reports the refusal."""
    body = gpu_workload("spy", pod_template(OBSERVER))
    assert tenant.call("POST", tenant.workloads, body)[0] == 201

    def reported() -> str:
        found = tenant.kube.get(f"{tenant.workloads}/spy") or {}
        return str(found.get("status", {}).get("message", ""))

    message = eventually("the workload says why it waits", reported, seconds=20)
    assert message.startswith(f"{REFUSED}observer: its service account default may not use observers.agentaflow.io")
    assert _pods(tenant) == []
