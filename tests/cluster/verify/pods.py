"""What the tests ask about pods, read from the pods alone: never from the scheduler's own books."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from tests.cluster.clusters import TESTS, Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Json = dict[str, Any]
    MakePod = Callable[..., Json]

ASSIGNED = "agentaflow.gpu/assigned-"
# Stands for the value of a variable that refers to the pod's annotation.
REFERENCE = "reference"


def bound(cluster: Cluster, name: str) -> Json | None:
    """Return the pod once it has a node."""
    pod = cluster.find("pod", "-n", TESTS, name)
    return pod if pod is not None and pod["spec"].get("nodeName") else None


def waits(cluster: Cluster, name: str, reason: str) -> Json | None:
    """Return the pod's condition once it says that it waits for that reason."""
    condition = cluster.condition(TESTS, name)
    return condition if condition.get("message", "").startswith(f"{reason}: ") else None


def selected(cluster: Cluster, selector: str, *, namespace: str = TESTS) -> list[Json]:
    """Return the pods with these labels."""
    pods: list[Json] = cluster.get("pods", "-n", namespace, "-l", selector)["items"]
    return pods


def runs(pod: Json) -> bool:
    """Every container of the pod runs, and nobody has asked it to go."""
    ready = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}.get("Ready")
    return ready == "True" and "deletionTimestamp" not in pod["metadata"]


def literals(pod: Json) -> set[str]:
    """Return what CUDA_VISIBLE_DEVICES is in the pod's containers: one value, where all is well."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return {_literal(container) for container in containers}


def _literal(container: Json) -> str:
    for entry in container.get("env", []):
        if entry["name"] == "CUDA_VISIBLE_DEVICES":
            # The API server leaves an empty value out.
            return REFERENCE if "valueFrom" in entry else entry.get("value", "")
    return "absent"


def held_twice(pods: Iterable[Json]) -> dict[str, list[str]]:
    """Return each GPU that two live claimants hold, with their names; none may, as no map of these tests shares one.

    A claimant is a bound pod of ours that has not finished and is no observer; a terminating one counts.
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
    """Return what one of the pods is told once it waits for that reason."""
    for pod in selected(cluster, selector):
        for condition in pod["status"].get("conditions", []):
            message: str = condition.get("message", "")
            if condition["type"] == "PodScheduled" and message.startswith(f"{reason}: "):
                return message
    return ""
