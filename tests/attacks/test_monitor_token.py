"""S7: a stolen monitor token writes its own node's GPUs, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.attacks.installed_cluster import NOBODYS, lacks, refusal
from tests.integration.monitored_node import LEASES, NAMESPACE
from tests.integration.policies import MONITOR
from tests.integration.workloads import API
from tests.messages import denial

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster, Request
    from tests.objects import Object

NODE: Final = "/api/v1/nodes/node1"
SPACE: Final = f"/api/v1/namespaces/{NAMESPACE}"
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
QUERY: Final = "?fieldManager=gpu-scheduler-monitor&force=true"
GPU_NODE: Final = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "spec": {"nodeName": "node2"}}
LEASE: Final = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "monitor"}}
ELSE: Final = denial("monitor", "a monitor writes another field of its node")
CSI: Final = "csi.volume.kubernetes.io/nodeid"


def _labelled(key: str, value: str | None) -> Object:
    return {"metadata": {"labels": {key: value}}}


def _only(kind: str, key: str) -> str:
    return denial("monitor", "a monitor writes a label or annotation of others", kind=kind, key=key, node="node1")


def _another(label: str, value: str) -> tuple[Object, str]:
    return _labelled(label, value), _only("label", label)


WRITES: Final[dict[str, tuple[Object, str]]] = {
    "adds a NoExecute taint": ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, ELSE),
    "cordons the node": ({"spec": {"unschedulable": True}}, ELSE),
    "adds the label of the control plane": _another("node-role.kubernetes.io/control-plane", ""),
    "adds a restricted label": _another("node-restriction.kubernetes.io/secure", "yes"),
    "adds the alias of another node": _another("gpu-node-name", "node2"),
    "changes the zone": _another("topology.kubernetes.io/zone", "b"),
    "changes an annotation of a CSI driver": ({"metadata": {"annotations": {CSI: "{}"}}}, _only("annotation", CSI)),
    "adds a finalizer": ({"metadata": {"finalizers": ["example.com/never"]}}, ELSE),
}


@pytest.mark.promise("guard-9")
@pytest.mark.parametrize("content", [MERGE, APPLY], ids=["merge", "apply"])
@pytest.mark.parametrize("what", WRITES)
def test_a_stolen_token_changes_nothing_but_readings(cluster: InstalledCluster, what: str, content: str) -> None:
    """Even of its own node, it writes only labels and annotations agentaflow.gpu/*."""
    body, reported = WRITES[what]
    before = cluster.kube.get(NODE)
    full = {"apiVersion": "v1", "kind": "Node", **body} if content == APPLY else body

    refused = refusal(cluster.monitor("node1").call("PATCH", NODE + (QUERY if content == APPLY else ""), full, content))

    assert refused.endswith(reported)
    assert cluster.kube.get(NODE) == before


@pytest.mark.promise("guard-9")
def test_a_stolen_token_removes_no_label(cluster: InstalledCluster) -> None:
    """Others may select nodes by it."""
    cluster.kube.patch(NODE, _labelled("zone", "a"))

    assert refusal(cluster.monitor("node1").merge(NODE, _labelled("zone", None))).endswith(_only("label", "zone"))


OWNER: Final = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}


@pytest.mark.promise("guard-9")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}),
        (NODE, {"metadata": {"ownerReferences": [OWNER]}}),
    ],
    ids=["a status", "an owner"],
)
def test_a_monitor_with_all_rights_writes_neither(cluster: InstalledCluster, path: str, body: Object) -> None:
    """Its RBAC does not allow it. The client here has all RBAC rights, and the policy refuses it too."""
    assert refusal(cluster.plane.client_as(MONITOR, "node1").merge(path, body)).endswith(ELSE)


NODES: Final = "/api/v1/nodes"
GPU_NODES: Final = f"{API}/gpunodes"
ELSEWHERE: Final[dict[str, tuple[str, str, Object]]] = {
    "writes another node": (
        "PATCH",
        NODES,
        {"apiVersion": "v1", "kind": "Node", "metadata": {"annotations": {"agentaflow.gpu/status": "idle"}}},
    ),
    "applies another node's GPUNode": ("PATCH", GPU_NODES, GPU_NODE),
    "creates another node's GPUNode": ("POST", GPU_NODES, GPU_NODE),
    "applies another node's Lease": ("PATCH", LEASES, LEASE),
    "creates another node's Lease": ("POST", LEASES, LEASE),
}


@pytest.mark.promise("guard-5", "guard-9", "monitor-6")
@pytest.mark.parametrize("what", ELSEWHERE)
@pytest.mark.parametrize("its", ["node node1", "no node"])
def test_a_stolen_token_reports_no_other_node(cluster: InstalledCluster, what: str, its: str) -> None:
    """It writes no labels, annotations, GPUNode or Lease of another node, whose monitor may, nor without a node."""
    method, collection, body = ELSEWHERE[what]
    spy = cluster.monitor("node1") if its == "node node1" else cluster.account(NAMESPACE, NAMESPACE)
    stored = f"{collection}/node2"
    path, content = (stored + QUERY, APPLY) if method == "PATCH" else (collection, "application/json")
    metadata = {**body.get("metadata", {}), "name": "node2"}
    done, answer = cluster.monitor("node2").call(method, path, {**body, "metadata": metadata}, content)
    assert done in {200, 201, 409}, answer

    forged = {**body, "metadata": {**metadata, "labels": {"agentaflow.gpu/spy": "yes"}}}
    refused = refusal(spy.call(method, path, forged, content))

    kind = "node" if collection == NODES else body["kind"]
    assert refused.endswith(denial("monitor", "a monitor writes another node", what=f"{kind} node2", its=its))
    # The controller writes the GPUNode's status meanwhile.
    assert "agentaflow.gpu/spy" not in str(cluster.kube.get(stored))
    if collection != NODES:
        cluster.kube.delete(stored)


RIGHTS: Final[dict[str, Request]] = {
    **NOBODYS,
    "writes its node's status": ("PATCH", f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}),
    "deletes its node": ("DELETE", NODE, None),
    "deletes another node": ("DELETE", "/api/v1/nodes/node2", None),
    "deletes its GPUNode": ("DELETE", f"{API}/gpunodes/node1", None),
    "deletes all GPUNodes": ("DELETE", f"{API}/gpunodes", None),
    "evicts a pod beside it": ("POST", f"{SPACE}/pods/any/eviction", {"metadata": {"name": "any"}}),
    "makes a pod": ("POST", f"{SPACE}/pods", {"metadata": {"name": "spy"}}),
    "reads Secrets beside it": ("GET", f"{SPACE}/secrets", None),
    "writes a workload's status": ("PATCH", f"{API}/namespaces/default/gpuworkloads/any/status", {"status": {}}),
    "makes a Lease elsewhere": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        {"metadata": {"name": "node1"}},
    ),
}


@pytest.mark.promise("guard-9")
@pytest.mark.parametrize("what", RIGHTS)
def test_a_stolen_token_has_no_other_right(cluster: InstalledCluster, what: str) -> None:
    """RBAC refuses all other requests."""
    lacks(cluster.monitor("node1"), RIGHTS[what], f"{NAMESPACE}:{NAMESPACE}")


@pytest.mark.promise("guard-9", "monitor-1")
def test_the_monitor_reports_its_node(cluster: InstalledCluster) -> None:
    """A monitor creates and updates labels, annotations, GPUNode and Lease of its own node."""
    monitor = cluster.monitor("node3")
    for reading in ("low", "high"):
        metadata = {
            "labels": {"agentaflow.gpu/utilization-tier": reading, "agentaflow.gpu/schedulable": "true"},
            "annotations": {"agentaflow.gpu/status": f"healthy: {reading}"},
        }
        lease: Object = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": reading}}
        gpus: Object = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "spec": {"nodeName": "node3"}}
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        writes = {"/api/v1/nodes/node3": node, f"{API}/gpunodes/node3": gpus, f"{LEASES}/node3": lease}
        for path, body in writes.items():
            body.setdefault("metadata", {})["name"] = "node3"
            status, answer = monitor.call("PATCH", path + QUERY, body, APPLY)
            assert status in {200, 201}, answer

    labels = (cluster.kube.get("/api/v1/nodes/node3") or {})["metadata"]["labels"]
    assert labels["agentaflow.gpu/utilization-tier"] == "high"
