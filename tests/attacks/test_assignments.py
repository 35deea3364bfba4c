"""A tenant forges assignments and chooses nodes; all are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests import objects
from tests.attacks.installed_cluster import refusal
from tests.messages import denial, says

if TYPE_CHECKING:
    from pathlib import Path

    from tests.attacks.installed_cluster import InstalledCluster, Tenant
    from tests.objects import Object

ASSIGNED: Final = "agentaflow.gpu/assigned-devices"
STRATEGIC: Final = "strategic-merge-patch+json"


@pytest.fixture
def placed(tenant: Tenant) -> Tenant:
    """A tenant with a bound pod."""
    tenant.kube.create(tenant.pods, objects.pod("train-0", "0=node2:0"))
    tenant.namespace.wait_bound("train-0", "node2")
    return tenant


def _binding(name: str) -> Object:
    target = {"apiVersion": "v1", "kind": "Node", "name": "node1"}
    metadata = {"name": name, "annotations": {ASSIGNED: "0,1,2,3"}}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


@pytest.mark.promise("guard-1", "guard-2")
@pytest.mark.parametrize("value", ["0,1,2,3", "", None], ids=["more", "empty", "none"])
@pytest.mark.parametrize("path", ["", "/status", "/ephemeralcontainers", "/resize"])
def test_no_assignment_is_changed(placed: Tenant, path: str, value: str | None) -> None:
    """Through any subresource. Some refuse the change; others ignore annotations."""
    before = placed.namespace.read("train-0")["metadata"]["annotations"]
    body = {"metadata": {"annotations": {ASSIGNED: value}}}

    status, answer = placed.call("PATCH", f"{placed.pods}/train-0{path}", body, STRATEGIC)

    assert status == 403 if path in {"", "/status"} else status in {200, 403, 422}, answer
    if not path:
        forged = "an account that is no scheduler writes an assignment"
        assert answer["message"].endswith(denial("assignments", forged, key=ASSIGNED, user=placed.user))
    assert placed.namespace.read("train-0")["metadata"]["annotations"] == before


@pytest.mark.promise("guard-3")
@pytest.mark.parametrize("path", ["pods/wait-0/binding", "bindings"])
def test_a_tenant_binds_nothing(tenant: Tenant, path: str) -> None:
    """A namespace's admin has no right to bind."""
    tenant.kube.create(tenant.pods, objects.pod("wait-0", "0=node9:0"))

    refused = refusal(tenant.call("POST", f"/api/v1/namespaces/{tenant.namespace.name}/{path}", _binding("wait-0")))

    assert "cannot create resource" in refused
    assert tenant.namespace.node_of("wait-0") == ""


@pytest.mark.promise("guard-4")
def test_a_tenant_chooses_no_node(tenant: Tenant) -> None:
    """A pod of ours with nodeName is refused: it could take devices that another pod holds."""
    refused = refusal(tenant.call("POST", tenant.pods, objects.pod("preset-0", "0=node1:0", nodeName="node1")))

    assert refused.endswith(denial("node-name", "a pod is created on a node", node="node1"))
    assert tenant.namespace.kube.get(f"{tenant.pods}/preset-0") is None


SHARED: Final = "0=node3:0\n1=node3:0\n"


@pytest.mark.promise("share-1")
def test_a_foreign_owner_reference_shares_no_gpu(tenant: Tenant, new_tenant: Tenant) -> None:
    """A pod that names the controller of another namespace, with the same map, belongs to another workload."""
    victim = new_tenant
    victim.kube.create(victim.pods, objects.pod("bank-0", SHARED, owner=("StatefulSet", "bank")))
    victim.namespace.wait_bound("bank-0", "node3")
    owner = victim.namespace.read("bank-0")["metadata"]["ownerReferences"]
    pod = objects.pod("bank-1", SHARED)
    pod["metadata"]["ownerReferences"] = owner

    status, answer = tenant.call("POST", tenant.pods, pod)

    assert status == 201, answer
    message = tenant.namespace.wait_message("bank-1", "GpuHeld: ")
    says(message, "GpuHeld", f"{victim.namespace.name}/bank-0")


@pytest.mark.parametrize(("method", "content"), [("PATCH", "merge-patch+json"), ("PUT", "json")])
def test_a_tenant_gives_no_node_an_alias(cluster: InstalledCluster, tenant: Tenant, method: str, content: str) -> None:
    """An alias directs other users' maps to a node, so it needs the right to write nodes."""
    before = cluster.kube.get("/api/v1/nodes/node1")
    body = {"metadata": {"name": "node1", "labels": {"gpu-node-name": "node2"}}}

    status, answer = tenant.call(method, "/api/v1/nodes/node1", body, content)

    assert status == 403, answer
    assert cluster.kube.get("/api/v1/nodes/node1") == before


@pytest.mark.promise("guard-5")
@pytest.mark.parametrize("path", ["", "/status"])
def test_a_kubelet_gives_its_node_no_alias(cluster: InstalledCluster, tmp_path: Path, path: str) -> None:
    """A kubelet may write its node, with its certificate; the pods of the other node's maps would be its own (S7)."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    name = f"kubelets{path.replace('/', '-')}"
    cluster.kube.create(bindings, {"metadata": {"name": name}, "roleRef": role, "subjects": [group]})
    kubelet = cluster.plane.user_client(tmp_path, "system:node:node1", "system:nodes")
    before = cluster.kube.get("/api/v1/nodes/node1")

    answered = kubelet.merge(f"/api/v1/nodes/node1{path}", {"metadata": {"labels": {"gpu-node-name": "node2"}}})
    assert refusal(answered).endswith(denial("node-alias", "a kubelet changes the alias of its node"))
    assert cluster.kube.get("/api/v1/nodes/node1") == before
    status, answer = kubelet.merge(f"/api/v1/nodes/node1{path}", objects.annotated({"example.com/rack": path or "7"}))
    assert status == 200, answer
