"""S5: an account that may not create pods tries to get one created by the controller through a GPUWorkload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.integration.accounts import allow, rights
from tests.messages import denial
from tests.objects import gpu_workload
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Tenant
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


@pytest.fixture(scope="module")
def clerk(cluster: InstalledCluster, lasting_tenant: Tenant) -> KubeClient:
    """A client of an account that may write GPUWorkloads in the tenant's namespace, but no pods."""
    space = lasting_tenant.namespace.name
    allow(cluster.kube, space, "clerk", "clerk", rights("gpuworkloads", "get", "create", "update", "patch"))
    kube = cluster.account("clerk", space)
    eventually("the right is known", lambda: kube.call("GET", f"{lasting_tenant.workloads}/none")[0] == 404)
    return kube


def _refused(answer: tuple[int, Object], namespace: str) -> None:
    status, reported = answer
    assert status == 403, reported
    user = f"system:serviceaccount:{namespace}:clerk"
    said = denial("workloads", "an account that may not create pods writes a GPUWorkload", user=user, ns=namespace)
    assert reported["message"].endswith(said)


@pytest.mark.promise("guard-8")
@pytest.mark.parametrize(
    "template", [None, HOSTS, AS_ANOTHER], ids=["plain", "with access to the host", "as another account"]
)
@pytest.mark.parametrize("way", ["create", "apply"])
def test_an_account_that_may_not_create_pods_writes_no_workload(
    tenant: Tenant, clerk: KubeClient, template: Object | None, way: str
) -> None:
    """The request is refused, and neither GPUWorkload nor pod exists afterwards."""
    body = gpu_workload("deputy", template)
    path = f"{tenant.workloads}/deputy?fieldManager=clerk"

    answer = (
        clerk.call("POST", tenant.workloads, body)
        if way == "create"
        else clerk.call("PATCH", path, body, "application/apply-patch+yaml")
    )

    _refused(answer, tenant.namespace.name)
    assert tenant.kube.get(f"{tenant.workloads}/deputy") is None
    assert tenant.namespace.kube.call("GET", tenant.pods)[1]["items"] == []


CHANGES: Final[dict[str, dict[str, Any]]] = {
    "retry policy": {"retryPolicy": {"limit": 3}},
    "estimated duration": {"estimatedDuration": "1h"},
}


@pytest.mark.promise("guard-8")
@pytest.mark.parametrize("what", CHANGES)
def test_an_account_that_may_not_create_pods_changes_no_workload(tenant: Tenant, clerk: KubeClient, what: str) -> None:
    """A change of labels alone needs no right to create pods."""
    tenant.kube.create(tenant.workloads, gpu_workload("honest"))
    path = f"{tenant.workloads}/honest"
    before = (tenant.kube.get(path) or {})["spec"]

    _refused(clerk.call("PATCH", path, {"spec": CHANGES[what]}, "application/merge-patch+json"), tenant.namespace.name)

    assert (tenant.kube.get(path) or {})["spec"] == before
    label = {"metadata": {"labels": {"team": "a"}}}
    assert clerk.call("PATCH", path, label, "application/merge-patch+json")[0] == 200
    assert tenant.call("PATCH", path, {"spec": CHANGES[what]}, "merge-patch+json")[0] == 200


@pytest.mark.promise("guard-8")
def test_pod_security_holds_for_a_workloads_pod(new_tenant: Tenant) -> None:
    """In a namespace with Pod Security baseline, a GPUWorkload gets no pod with access to the host, and reports why."""
    tenant = new_tenant
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    tenant.cluster.kube.patch(f"/api/v1/namespaces/{tenant.namespace.name}", label)
    assert tenant.call("POST", tenant.workloads, gpu_workload("deputy", HOSTS))[0] == 201

    def reported() -> str:
        return str((tenant.kube.get(f"{tenant.workloads}/deputy") or {}).get("status", {}).get("message", ""))

    assert 'violates PodSecurity "baseline:latest"' in eventually("the workload waits", reported, seconds=20)
    assert tenant.namespace.kube.call("GET", tenant.pods)[1]["items"] == []
