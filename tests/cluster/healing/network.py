"""Proves that pods reach each other across nodes and that every node resolves Services.

A restart of nodes breaks both.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.cluster.clusters import CHECK, SYSTEM, TESTS
from tests.cluster.healing import own_engine
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.cluster.clusters import Cluster, Json

SERVICE: Final = f"gpu-scheduler.{SYSTEM}.svc.cluster.local"
# The check service's replicas of the map's lines 0 to 3 run on node1 to node4.
ON_NODES: Final = {"node1": f"{CHECK}-0", "node2": f"{CHECK}-1", "node3": f"{CHECK}-2", "node4": f"{CHECK}-3"}

FETCH: Final = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
RESOLVE: Final = "import sys, socket; print(socket.getaddrinfo(sys.argv[1], 80)[0][4][0])"


def prove(cluster: Cluster) -> None:
    """Fetch a page from node1's pod to node4's and back, and look up a Service's name on all five nodes."""
    for here, there in (("node1", "node4"), ("node4", "node1")):
        address = cluster.get("pod", "-n", "default", ON_NODES[there])["status"]["podIP"]
        page = cluster.exec("default", ON_NODES[here], "python3", "-c", FETCH, f"http://{address}:8080/health")
        assert '"healthy"' in page, f"{here} to {there}: {page}"
    expected = cluster.get("service", "-n", SYSTEM, "gpu-scheduler")["spec"]["clusterIP"]
    found = {node: _resolve(cluster, "default", pod) for node, pod in ON_NODES.items()}
    found["control-plane"] = _resolve_on_control_plane(cluster)
    assert dict.fromkeys(found, expected) == found


def _resolve(cluster: Cluster, namespace: str, pod: str) -> str:
    return cluster.exec(namespace, pod, "python3", "-c", RESOLVE, SERVICE).strip()


def _resolve_on_control_plane(cluster: Cluster) -> str:
    """Resolve the name from a pod that the test creates: none of our pods runs on that node."""
    spec = cluster.get("statefulset", "-n", "default", CHECK)["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    _bring_to_control_plane(container["image"])
    command = {"name": "look-up", "image": container["image"], "command": ["python3", "-c", RESOLVE, SERVICE]}
    pod: Json = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "look-up", "namespace": TESTS},
        "spec": {
            "nodeName": f"{own_engine.NAME}-control-plane",
            "restartPolicy": "Never",
            "securityContext": spec["securityContext"],
            "containers": [{**command, "securityContext": container["securityContext"]}],
        },
    }
    cluster.kubectl("delete", "pod", "-n", TESTS, "look-up", "--ignore-not-found", "--wait")
    cluster.create(pod)
    try:
        eventually("look-up to end", partial(_ended, cluster), 60, 0.5)
        return cluster.kubectl("logs", "-n", TESTS, "look-up").stdout.strip()
    finally:
        cluster.kubectl("delete", "pod", "-n", TESTS, "look-up", "--wait")


def _ended(cluster: Cluster) -> bool:
    return cluster.get("pod", "-n", TESTS, "look-up")["status"]["phase"] in {"Succeeded", "Failed"}


def _bring_to_control_plane(image: str) -> None:
    node = f"{own_engine.NAME}-control-plane"
    if image in own_engine.docker("exec", node, "ctr", "--namespace=k8s.io", "images", "list", "--quiet"):
        return
    environment = {**os.environ, "DOCKER_HOST": f"unix://{own_engine.ENGINE}/docker.sock"}
    load = f"docker save {image} | docker exec -i {node} ctr --namespace=k8s.io images import -"
    subprocess.run(
        ("bash", "-o", "pipefail", "-c", load), env=environment, check=True, capture_output=True, timeout=120
    )
