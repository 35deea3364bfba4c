"""S7: a monitor's token is stolen. It tells of its node's GPUs, and of nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.attacks.house import refusal
from tests.integration.watched import LEASES, NAMESPACE
from tests.integration.workshop import API

if TYPE_CHECKING:
    from tests.attacks.house import House
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
    "drives everybody off": ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, ELSE),
    "cordons": ({"spec": {"unschedulable": True}}, ELSE),
    "becomes the control plane": (_labelled("node-role.kubernetes.io/control-plane", ""), ONLY),
    "draws in who trusts a label": (_labelled("node-restriction.kubernetes.io/secure", "yes"), ONLY),
    "takes another node's alias": (_labelled("gpu-node-name", "node2"), ONLY),
    "is another zone": (_labelled("topology.kubernetes.io/zone", "b"), ONLY),
    "misleads a driver": ({"metadata": {"annotations": {"csi.volume.kubernetes.io/nodeid": "{}"}}}, ONLY),
    "is never deleted": ({"metadata": {"finalizers": ["example.com/never"]}}, ELSE),
}


@pytest.mark.promise("guard-9")
@pytest.mark.parametrize("content", [MERGE, APPLY], ids=["merge", "apply"])
@pytest.mark.parametrize("what", WRITES)
def test_a_stolen_token_changes_nothing_but_readings(house: House, what: str, content: str) -> None:
    """Of the very node that it runs on."""
    body, told = WRITES[what]
    before = house.kube.get(NODE)
    full = {"apiVersion": "v1", "kind": "Node", **body} if content == APPLY else body

    refused = refusal(house.monitor("node1").call("PATCH", NODE + (QUERY if content == APPLY else ""), full, content))

    assert told in refused
    assert house.kube.get(NODE) == before


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
def test_a_stolen_token_speaks_of_no_other_node(house: House, what: str) -> None:
    """Neither in labels and annotations, nor in a GPUNode, nor by a Lease that would make it seem well."""
    path, body = ELSEWHERE[what]
    version, kind = KINDS[path.split("/")[-2]]
    before = house.kube.get(path)

    whole = {"apiVersion": version, "kind": kind, "metadata": {"name": "node2"}, **body}
    refused = refusal(house.monitor("node1").call("PATCH", path + QUERY, whole, APPLY))

    assert "as the monitor of node node1: a monitor writes its own node only" in refused
    assert house.kube.get(path) == before


BEYOND: Final[dict[str, tuple[str, str, Object | None]]] = {
    "the node's status": ("PATCH", f"{NODE}/status", {"status": {"capacity": {"nvidia.com/gpu": "8"}}}),
    "the node's end": ("DELETE", NODE, None),
    "another node's end": ("DELETE", "/api/v1/nodes/node2", None),
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
def test_a_stolen_token_has_no_other_right(house: House, what: str) -> None:
    """RBAC refuses the rest."""
    method, path, body = BEYOND[what]

    refused = refusal(
        house.monitor("node1").call(method, path, body, MERGE if method == "PATCH" else "application/json")
    )

    assert f'User "system:serviceaccount:{NAMESPACE}:{NAMESPACE}" cannot ' in refused


@pytest.mark.promise("guard-9", "monitor-1")
def test_the_monitor_tells_of_its_node(house: House) -> None:
    """What it is for: labels, annotations, GPUNode and Lease of its own node, again and again."""
    monitor = house.monitor("node3")
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

    labels = (house.kube.get("/api/v1/nodes/node3") or {})["metadata"]["labels"]
    assert labels["agentaflow.gpu/utilization-tier"] == "high"
