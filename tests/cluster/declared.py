"""Nodes whose monitors declare GPUs, and what the tests read and change of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.clusters import SYSTEM, Cluster
from tests.cluster.verify.pods import bound
from tests.placements import DEVICES, NODES

if TYPE_CHECKING:
    from tests.cluster.verify.pods import Json

MONITORS: Final = "gpu-scheduler-monitor"
INTERVAL: Final = 2
"""Seconds between two samples of a monitor. Short, because the tests wait for several."""
DECLARED: Final = {
    node: [{"count": DEVICES, "model": model, "memoryTotalMiB": memory}] for node, (model, memory) in NODES.items()
}


def written(node: Json) -> list[str]:
    """Return the labels and annotations that monitors wrote on the node."""
    meta = node["metadata"]
    return [key for key in (*meta["labels"], *meta["annotations"]) if key.startswith("agentaflow.gpu/")]


def known_devices(cluster: Cluster) -> list[Json]:
    """Return every device in the annotations of the nodes."""
    return [device for name in NODES for device in _devices(cluster, name)]


def _devices(cluster: Cluster, node: str) -> list[Json]:
    """Return the devices in the annotation of the node; none if it has no such annotation."""
    annotations = cluster.get("node", node)["metadata"]["annotations"]
    devices: list[Json] = json.loads(annotations.get("agentaflow.gpu/devices", "[]"))
    return devices


def idle(cluster: Cluster) -> bool:
    """Whether no pod uses any GPU, and every monitor has reported it."""
    listed = known_devices(cluster)
    busy = [device for device in listed if device.get("utilization") or device.get("memoryUsedMiB")]
    return len(listed) == DEVICES * len(NODES) and not busy


def asking(pod: Json, annotations: dict[str, str]) -> Json:
    """Return the pod with these annotations instead of a map."""
    pod["metadata"]["annotations"] = dict(annotations)
    return pod


def place(cluster: Cluster, name: str) -> str | None:
    """Return where a bound pod is, as NODE:GPUS; None if it is not bound."""
    pod = bound(cluster, name)
    if pod is None:
        return None
    return f"{pod['spec']['nodeName']}:{pod['metadata']['annotations']['agentaflow.gpu/assigned-devices']}"


def replicas(cluster: Cluster, number: int) -> None:
    """Scale the scheduler to `number` replicas and wait until they run."""
    cluster.kubectl("scale", "-n", SYSTEM, "deployment/gpu-scheduler", f"--replicas={number}")
    if number:
        cluster.kubectl("rollout", "status", "-n", SYSTEM, "deployment/gpu-scheduler", "--timeout=120s")
    else:
        selector = "app.kubernetes.io/component=scheduler"
        cluster.kubectl("wait", "--for=delete", "pod", "-n", SYSTEM, "-l", selector, "--timeout=60s")


def declare(cluster: Cluster, node: str, **more: Any) -> None:
    """Change the declared GPUs of the node, and make its kubelet update the file at once."""
    declared = {**DECLARED, node: [{**DECLARED[node][0], **more}]}
    patch = {"data": {"inventory.yaml": json.dumps(declared)}}
    cluster.kubectl("patch", "configmap", "-n", MONITORS, MONITORS, "--type=merge", "-p", json.dumps(patch))
    for pod in cluster.get("pods", "-n", MONITORS, f"--field-selector=spec.nodeName={node}")["items"]:
        # A kubelet updates a pod's files when the pod changes, otherwise only about once a minute.
        cluster.kubectl(
            "annotate", "pod", "-n", MONITORS, pod["metadata"]["name"], f"looked={time.time()}", "--overwrite"
        )


def uuids(cluster: Cluster, node: str) -> list[str]:
    """Return the UUIDs of the node's GPUs, by index, as its monitor reports them."""
    return [device["uuid"] for device in sorted(_devices(cluster, node), key=lambda device: device["index"])]
