"""The parts of the system that these tests damage: pods, leader, webhook; and the wait until all are healthy."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.cluster.clusters import SYSTEM, Cluster, Json
from tests.cluster.verify.pods import runs, selected
from tests.waiting import eventually

SCHEDULER: Final = "app.kubernetes.io/name=gpu-scheduler,app.kubernetes.io/component=scheduler"
WEBHOOK: Final = "app.kubernetes.io/name=gpu-scheduler,app.kubernetes.io/component=webhook"


def replicas(cluster: Cluster, component: str) -> list[Json]:
    """Return the component's pods, terminating ones included."""
    return selected(cluster, component, namespace=SYSTEM)


def wait_healthy(cluster: Cluster) -> None:
    """Wait until each component has two ready replicas and no terminating ones."""
    for component in (SCHEDULER, WEBHOOK):
        eventually(f"two healthy replicas of {component}", partial(_stands_twice, cluster, component), 90, 0.5)


def _stands_twice(cluster: Cluster, component: str) -> bool:
    pods = replicas(cluster, component)
    return len(pods) == 2 and all(runs(pod) for pod in pods)


def lease(cluster: Cluster) -> Json:
    """Return the spec of the Lease: the leader and its times."""
    spec: Json = cluster.get("lease", "-n", SYSTEM, "gpu-scheduler")["spec"]
    return spec


def leader_process(cluster: Cluster) -> tuple[str, str]:
    """Return the node on which the leader's process runs, and its PID there."""
    name, _, _ = lease(cluster)["holderIdentity"].rpartition("_")
    pod = cluster.get("pod", "-n", SYSTEM, name)
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    node: str = pod["spec"]["nodeName"]
    tasks = cluster.on_node(node, "ctr", "--namespace=k8s.io", "tasks", "list").splitlines()
    (pid,) = (line.split()[1] for line in tasks if line.startswith(container))
    return node, pid
