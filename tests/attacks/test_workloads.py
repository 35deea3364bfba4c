"""S5: GPUWorkload as a deputy: an account that may not create pods has the controller make one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.attacks.house import RBAC
from tests.objects import gpu_workload
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.house import House, Tenant
    from tests.kube_client import KubeClient
    from tests.objects import Object

HOSTS: Final[Object] = {
    "spec": {
        "containers": [{"name": "main", "image": "none"}],
        "hostPID": True,
        "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
    }
}
AS_ANOTHER: Final[Object] = {
    "spec": {"containers": [{"name": "main", "image": "none"}], "serviceAccountName": "tenant"},
}


@pytest.fixture
def clerk(house: House, tenant: Tenant) -> KubeClient:
    """Who may write GPUWorkloads in the tenant's namespace, and no pods."""
    space, roles = tenant.namespace, f"{RBAC}/namespaces/{tenant.namespace}"
    rule = {
        "apiGroups": ["agentaflow.io"],
        "resources": ["gpuworkloads"],
        "verbs": ["get", "create", "update", "patch"],
    }
    house.kube.create(f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": "clerk"}})
    house.kube.create(f"{roles}/roles", {"metadata": {"name": "clerk"}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "clerk"}
    of = {"kind": "ServiceAccount", "name": "clerk", "namespace": space}
    house.kube.create(f"{roles}/rolebindings", {"metadata": {"name": "clerk"}, "roleRef": role, "subjects": [of]})
    kube = house.account("clerk", space)
    eventually("the right is known", lambda: kube.call("GET", f"{tenant.workloads}/none")[0] == 404)
    return kube


def _refused(answer: tuple[int, Object], namespace: str) -> None:
    status, told = answer
    assert status == 403, told
    assert (
        f"RequestInvalid: cannot write the spec of a GPUWorkload as system:serviceaccount:{namespace}:clerk: its pod is"
        f" made for who writes it, and that user may not create pods in namespace {namespace}"
    ) in told["message"]


@pytest.mark.promise("guard-8")
@pytest.mark.parametrize("template", [None, HOSTS, AS_ANOTHER], ids=["plain", "the host's", "as another account"])
@pytest.mark.parametrize("way", ["create", "apply"])
def test_who_may_not_create_pods_writes_no_workload(
    tenant: Tenant, clerk: KubeClient, template: Object | None, way: str
) -> None:
    """No GPUWorkload is there afterwards, and no pod."""
    body = gpu_workload("deputy", template)
    path = f"{tenant.workloads}/deputy?fieldManager=clerk"

    answer = (
        clerk.call("POST", tenant.workloads, body)
        if way == "create"
        else clerk.call("PATCH", path, body, "application/apply-patch+yaml")
    )

    _refused(answer, tenant.namespace)
    assert tenant.kube.get(f"{tenant.workloads}/deputy") is None
    assert tenant.bench.kube.call("GET", tenant.pods)[1]["items"] == []


CHANGES: Final[dict[str, dict[str, Any]]] = {
    "tries": {"retryPolicy": {"limit": 3}},
    "time": {"estimatedDuration": "1h"},
}


@pytest.mark.promise("guard-8")
@pytest.mark.parametrize("what", CHANGES)
def test_who_may_not_create_pods_changes_no_workload(tenant: Tenant, clerk: KubeClient, what: str) -> None:
    """What changes nothing of the spec needs no right to create pods."""
    tenant.kube.create(tenant.workloads, gpu_workload("honest"))
    path = f"{tenant.workloads}/honest"
    before = (tenant.kube.get(path) or {})["spec"]

    _refused(clerk.call("PATCH", path, {"spec": CHANGES[what]}, "application/merge-patch+json"), tenant.namespace)

    assert (tenant.kube.get(path) or {})["spec"] == before
    label = {"metadata": {"labels": {"team": "a"}}}
    assert clerk.call("PATCH", path, label, "application/merge-patch+json")[0] == 200
    assert tenant.call("PATCH", path, {"spec": CHANGES[what]}, "merge-patch+json")[0] == 200


@pytest.mark.promise("guard-8")
def test_pod_security_holds_for_a_workloads_pod(tenant: Tenant) -> None:
    """Where pods that reach the host are refused, the tenant gets none by a GPUWorkload, and reads why."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    tenant.house.kube.patch(f"/api/v1/namespaces/{tenant.namespace}", label)
    assert tenant.call("POST", tenant.workloads, gpu_workload("deputy", HOSTS))[0] == 201

    def told() -> str:
        return str((tenant.kube.get(f"{tenant.workloads}/deputy") or {}).get("status", {}).get("message", ""))

    assert 'violates PodSecurity "baseline:latest"' in eventually("the workload waits", told, seconds=20)
    assert tenant.bench.kube.call("GET", tenant.pods)[1]["items"] == []
