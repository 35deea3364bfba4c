"""Nodes whose monitors declare GPUs, and what the tests ask about them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

from tests.cluster.clusters import SYSTEM, Cluster
from tests.cluster.verify.pods import bound
from tests.placements import CARDS, NODES

if TYPE_CHECKING:
    from tests.cluster.verify.pods import Json

MONITORS: Final = "gpu-scheduler-monitor"
INTERVAL: Final = 2
"""Seconds between two looks of a monitor: the cases wait for some."""
DECLARED: Final = {
    node: [{"count": CARDS, "model": model, "memoryTotalMiB": memory}] for node, (model, memory) in NODES.items()
}


def written(node: Json) -> list[str]:
    """Return what monitors wrote on the node."""
    meta = node["metadata"]
    return [key for key in (*meta["labels"], *meta["annotations"]) if key.startswith("agentaflow.gpu/")]


def cards(cluster: Cluster) -> list[Json]:
    """Return every GPU as its node's annotation tells it."""
    told = [cluster.get("node", name)["metadata"]["annotations"].get("agentaflow.gpu/devices", "[]") for name in NODES]
    return [card for text in told for card in json.loads(text)]


def idle(cluster: Cluster) -> bool:
    """No pod uses any GPU, and every monitor has told so."""
    told = cards(cluster)
    busy = [card for card in told if card.get("utilization") or card.get("memoryUsedMiB")]
    return len(told) == CARDS * len(NODES) and not busy


def asking(pod: Json, annotations: dict[str, str]) -> Json:
    """Return the pod with these wishes instead of a map."""
    pod["metadata"]["annotations"] = dict(annotations)
    return pod


def place(cluster: Cluster, name: str) -> str | None:
    """Return where the pod is, as NODE:GPUS, once it is bound."""
    pod = bound(cluster, name)
    if pod is None:
        return None
    return f"{pod['spec']['nodeName']}:{pod['metadata']['annotations']['agentaflow.gpu/assigned-devices']}"


def replicas(cluster: Cluster, number: int) -> None:
    """Have so many schedulers, and wait until it is so."""
    cluster.kubectl("scale", "-n", SYSTEM, "deployment/gpu-scheduler", f"--replicas={number}")
    if number:
        cluster.kubectl("rollout", "status", "-n", SYSTEM, "deployment/gpu-scheduler", "--timeout=120s")
    else:
        selector = "app.kubernetes.io/component=scheduler"
        cluster.kubectl("wait", "--for=delete", "pod", "-n", SYSTEM, "-l", selector, "--timeout=60s")


def declare(cluster: Cluster, node: str, **more: Any) -> None:
    """Change what is declared of the node, and let its kubelet hand the file over at once."""
    declared = {**DECLARED, node: [{**DECLARED[node][0], **more}]}
    patch = {"data": {"inventory.yaml": json.dumps(declared)}}
    cluster.kubectl("patch", "configmap", "-n", MONITORS, MONITORS, "--type=merge", "-p", json.dumps(patch))
    for pod in cluster.get("pods", "-n", MONITORS, f"--field-selector=spec.nodeName={node}")["items"]:
        # A kubelet looks at a pod's files when the pod changes, else only now and then.
        cluster.kubectl(
            "annotate", "pod", "-n", MONITORS, pod["metadata"]["name"], f"looked={time.time()}", "--overwrite"
        )


def health(cluster: Cluster, node: str, index: int) -> str:
    """Return what the monitor says of one GPU."""
    cards = json.loads(cluster.get("node", node)["metadata"]["annotations"]["agentaflow.gpu/devices"])
    health: str = next(card for card in cards if card["index"] == index)["health"]
    return health
