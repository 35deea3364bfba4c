"""S7: a stolen monitor token writes its own node's GPUs, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.attacks.installed_cluster import refusal
from tests.integration.monitored_node import LEASES, NAMESPACE
from tests.integration.workloads import API

if TYPE_CHECKING:
    from tests.attacks.installed_cluster import InstalledCluster
    from tests.objects import Object

NODE: Final = "/api/v1/nodes/node1"
MERGE: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
QUERY: Final = "?fieldManager=gpu-scheduler-monitor&force=true"
ONLY: Final = "a monitor writes labels and annotations agentaflow.gpu/* only"
ELSE: Final = "cannot change a node as its monitor but for its labels and annotations agentaflow.gpu/*"


def _labelled(key: str, value: str | None) -> Object:
    return {"metadata": {"labels": {key: value}}}


WRITES: Final[dict[str, tuple[Object, str]]] = {
    "adds a NoExecute taint": ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, ELSE),
    "cordons the node": ({"spec": {"unschedulable": True}}, ELSE),
    "adds the label of the control plane": (_labelled("node-role.kubernetes.io/control-plane", ""), ONLY),
    "adds a restricted label": (_labelled("node-restriction.kubernetes.io/secure", "yes"), ONLY),
    "adds the alias of another node": (_labelled("gpu-node-name", "node2"), ONLY),
    "changes the zone": (_labelled("topology.kubernetes.io/zone", "b"), ONLY),
    "changes an annotation of a CSI driver": (
        {"metadata": {"annotations": {"csi.volume.kubernetes.io/nodeid": "{}"}}},
        ONLY,
    ),
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

    assert reported in refused
    assert cluster.kube.get(NODE) == before


ELSEWHERE: Final[dict[str, tuple[str, Object]]] = {
    "another node": ("/api/v1/nodes/node2", {"metadata": {"annotations": {"agentaflow.gpu/devices": "[]"}}}),
    "another node's GPUNode": (f"{API}/gpunodes/node2", {"spec": {"nodeName": "node2"}}),
    "another node's Lease": (f"{LEASES}/node2", {"spec": {"holderIdentity": "spy"}}),
}
KINDS: Final = {
    "nodes": ("v1", "Node"),
    "gpunodes": ("agentaflow.io/v1", "GPUNode"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}


@pytest.mark.promise("guard-5", "guard-9", "monitor-6")
@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_stolen_token_reports_no_other_node(cluster: InstalledCluster, what: str) -> None:
    """It writes no labels, annotations, GPUNode or Lease of another node."""
    path, body = ELSEWHERE[what]
    version, kind = KINDS[path.split("/")[-2]]
    before = cluster.kube.get(path)

    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "node2"}, **body}
    refused = refusal(cluster.monitor("node1").call("PATCH", path + QUERY, whole, APPLY))

    assert "as the monitor of node node1: a monitor writes its own node only" in refused
    assert cluster.kube.get(path) == before


BEYOND: Final[dict[str, tuple[str, str, Object | None]]] = {
    "the node's status": ("PATCH", f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}),
    "deletion of its node": ("DELETE", NODE, None),
    "deletion of another node": ("DELETE", "/api/v1/nodes/node2", None),
    "deletion of its GPUNode": ("DELETE", f"{API}/gpunodes/node1", None),
    "deletion of all GPUNodes": ("DELETE", f"{API}/gpunodes", None),
    "an eviction": ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/any/eviction", {"metadata": {"name": "any"}}),
    "a pod": ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", {"metadata": {"name": "spy"}}),
    "secrets": ("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets", None),
    "a workload's status": ("PATCH", f"{API}/namespaces/default/gpuworkloads/any/status", {"status": {}}),
    "a Lease elsewhere": (
        "POST",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        {"metadata": {"name": "node1"}},
    ),
}


@pytest.mark.promise("guard-9")
@pytest.mark.parametrize("what", BEYOND)
def test_a_stolen_token_has_no_other_right(cluster: InstalledCluster, what: str) -> None:
    """RBAC refuses all other requests."""
    method, path, body = BEYOND[what]

    refused = refusal(
        cluster.monitor("node1").call(method, path, body, MERGE if method == "PATCH" else "application/json")
    )

    assert f'User "system:serviceaccount:{NAMESPACE}:{NAMESPACE}" cannot ' in refused


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
