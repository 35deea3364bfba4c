"""Nodes that go and come back: one is drained, and one is deleted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import bound, node_is_ready, place, running, start_pair, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.verify.pods import MakePod


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[str]:
    """Yield the node to drain; uncordon it afterwards."""
    yield "node3"
    cluster.kubectl("uncordon", "node3")


@pytest.mark.promise("fit-3", "wait-1", "map-1")
def test_drained_node_gets_its_pods_back(cluster: Cluster, make_workload: Callable[..., None], drained: str) -> None:
    """Pods of a drained node wait with NodeUnschedulable, and run on their GPUs again when it is uncordoned.

    Pods of other nodes do not change.
    """
    stays, goes = start_pair(cluster, make_workload, "drained", f"0=node1:70\n1={drained}:71,70")
    cluster.kubectl("drain", drained, "--pod-selector=app=drained", "--ignore-daemonsets", "--timeout=60s")
    name, old = goes["metadata"]["name"], goes["metadata"]["uid"]
    condition = eventually(f"{name} to wait", partial(waits, cluster, name, "NodeUnschedulable"))
    assert drained in condition["message"]
    assert bound(cluster, name) is None

    cluster.kubectl("uncordon", drained)
    back = eventually(f"{name} to run again", partial(running, cluster, name, other_than=old), 30, 0.2)

    assert place(back) == place(goes) == (drained, "71,70")
    assert cluster.environment(TESTS, name)["CUDA_VISIBLE_DEVICES"] == "71,70"
    assert running(cluster, stays["metadata"]["name"]) is not None
    assert cluster.get("pod", "-n", TESTS, stays["metadata"]["name"])["metadata"]["uid"] == stays["metadata"]["uid"]


@pytest.fixture
def away(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Delete a node's object, and return a function that restores it; the pods on it are not touched.

    The restored node has the same pod network as before: a kubelet that registers a new node gets another one, and its
    running pods would lose their network. The garbage collector deletes the pods of a missing node only after 40 s.
    """
    node = cluster.get("node", "node3")
    del node["status"], node["metadata"]["uid"], node["metadata"]["resourceVersion"]
    node["spec"].pop("taints", None)

    def come_back() -> None:
        cluster.create(node)
        cluster.on_node("node3", "systemctl", "restart", "kubelet")
        eventually("node3 to be ready", partial(node_is_ready, cluster, "node3"), 40, 0.5)

    cluster.kubectl("delete", "node", "node3")
    try:
        yield come_back
    finally:
        if cluster.kubectl("get", "node", "node3", check=False).returncode:
            come_back()


@pytest.mark.promise("fit-1", "fit-2", "wait-1")
def test_deleted_node_is_waited_for(cluster: Cluster, make_pod: MakePod, away: Callable[[], None]) -> None:
    """A pod whose node is deleted from the API waits with NodeNotFound, and runs when the node exists again."""
    before = {pod["metadata"]["uid"] for pod in cluster.get("pods", "-A")["items"]}
    cluster.create(make_pod("homeless-0", "0=node3:79"))
    condition = eventually("homeless-0 to wait", partial(waits, cluster, "homeless-0", "NodeNotFound"))
    assert "node3" in condition["message"]

    away()
    pod = eventually("homeless-0 to run", partial(running, cluster, "homeless-0"), 30, 0.2)

    assert place(pod) == ("node3", "79")
    assert before <= {pod["metadata"]["uid"] for pod in cluster.get("pods", "-A")["items"]}
