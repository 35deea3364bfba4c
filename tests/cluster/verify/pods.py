"""What the tests read of pods, from the pods alone: never from the scheduler's own state."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.cluster.clusters import TESTS, Cluster
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Json = dict[str, Any]
    MakePod = Callable[..., Json]

ASSIGNED = "agentaflow.gpu/assigned-"
NODES = ("node1", "node2", "node3", "node4")
# Seconds. The Lease of a killed leader is valid for up to 15 s more. Then all pods are bound, and start on few cores.
PATIENCE = 120
# In place of the value of a variable that refers to the pod's annotation.
REFERENCE = "reference"


def bound(cluster: Cluster, name: str) -> Json | None:
    """Return the pod if it is bound, otherwise None."""
    pod = cluster.find("pod", "-n", TESTS, name)
    return pod if pod is not None and pod["spec"].get("nodeName") else None


def waits(cluster: Cluster, name: str, reason: str) -> Json | None:
    """Return the pod's condition if it waits for that reason, otherwise None."""
    condition = cluster.condition(TESTS, name)
    return condition if condition.get("message", "").startswith(f"{reason}: ") else None


def selected(cluster: Cluster, selector: str, *, namespace: str = TESTS) -> list[Json]:
    """Return the pods with these labels."""
    pods: list[Json] = cluster.get("pods", "-n", namespace, "-l", selector)["items"]
    return pods


def runs(pod: Json) -> bool:
    """Whether every container of the pod is ready, and the pod is not terminating."""
    ready = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}.get("Ready")
    return ready == "True" and "deletionTimestamp" not in pod["metadata"]


def literals(pod: Json) -> set[str]:
    """Return the values of CUDA_VISIBLE_DEVICES in the pod's containers: one value if all agree."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return {_literal(container) for container in containers}


def _literal(container: Json) -> str:
    for entry in container.get("env", []):
        if entry["name"] == "CUDA_VISIBLE_DEVICES":
            # The API server omits an empty value.
            return REFERENCE if "valueFrom" in entry else entry.get("value", "")
    return "absent"


def held_twice(pods: Iterable[Json]) -> dict[str, list[str]]:
    """Return each GPU that two holders have, with their names. No map of these tests shares a GPU, so none may.

    A holder is a bound pod of ours that has not finished and is no observer; a terminating pod counts.
    """
    holders = defaultdict(list)
    for pod in pods:
        annotations, node = pod["metadata"].get("annotations", {}), pod["spec"].get("nodeName")
        if pod["spec"]["schedulerName"] != "gpu-scheduler" or annotations.get("agentaflow.gpu/observer") == "true":
            continue
        if not node or pod["status"]["phase"] in {"Succeeded", "Failed"}:
            continue
        devices = annotations[f"{ASSIGNED}devices"]
        assert literals(pod) in ({devices}, {REFERENCE}), pod["metadata"]["name"]
        assert node == annotations[f"{ASSIGNED}node"]
        for device in filter(None, devices.split(",")):
            holders[f"GPU {device} of {node}"].append(pod["metadata"]["name"])
    return {gpu: names for gpu, names in holders.items() if len(names) > 1}


def waiting_for(cluster: Cluster, selector: str, reason: str) -> str:
    """Return the condition's message of one of the pods that waits for that reason; empty if none does."""
    for pod in selected(cluster, selector):
        for condition in pod["status"].get("conditions", []):
            message: str = condition.get("message", "")
            if condition["type"] == "PodScheduled" and message.startswith(f"{reason}: "):
                return message
    return ""


def held_once(cluster: Cluster) -> list[Json]:
    """Return the pods of the tests' namespace. Fail if a GPU is held twice."""
    pods: list[Json] = cluster.get("pods", "-n", TESTS)["items"]
    assert held_twice(pods) == {}
    return pods


def running(cluster: Cluster, name: str, *, other_than: str = "") -> Json | None:
    """Return the pod if it runs and does not have the uid `other_than`, otherwise None. Fail if a GPU is held twice."""
    found = (pod for pod in held_once(cluster) if pod["metadata"]["name"] == name)
    return next((pod for pod in found if runs(pod) and pod["metadata"]["uid"] != other_than), None)


def place(pod: Json) -> tuple[str, str]:
    """Return where the pod runs, and with which devices."""
    return pod["spec"]["nodeName"], pod["metadata"]["annotations"][f"{ASSIGNED}devices"]


def start_pair(cluster: Cluster, make_workload: Callable[..., None], name: str, text: str) -> list[Json]:
    """Create a StatefulSet of two and return its running pods."""
    make_workload("StatefulSet", name, text, serviceName=name, replicas=2, podManagementPolicy="Parallel")
    return [eventually(f"{name}-{i} to run", partial(running, cluster, f"{name}-{i}"), 30, 0.2) for i in range(2)]


def node_is_ready(cluster: Cluster, node: str) -> bool:
    """Return whether the kubelet of the node reports it as ready."""
    conditions = cluster.get("node", node)["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def in_safety(cluster: Cluster) -> list[Json]:
    """Return all pods of the tests' namespace. Fail if a GPU is held twice anywhere in the cluster."""
    pods: list[Json] = cluster.get("pods", "-A")["items"]
    assert held_twice(pods) == {}
    return [pod for pod in pods if pod["metadata"]["namespace"] == TESTS]


def still_waits(cluster: Cluster, thief: str, keeper: str) -> None:
    """Check that the second pod still waits for the GPU that the first has held since before the crash."""
    condition = eventually(f"{thief} to have its reason", partial(waits, cluster, thief, "GpuHeld"))
    assert f"is held by {TESTS}/{keeper}" in condition["message"]
    assert bound(cluster, thief) is None
