"""Failures of nodes: a drain, a restarted kubelet, an eviction, and a node that is deleted and comes back."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import ASSIGNED, bound, held_twice, runs, selected, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.verify.pods import Json, MakePod

# A StatefulSet with two lines on two nodes; the test damages the second node.
SET = {"replicas": 2, "podManagementPolicy": "Parallel"}


def _place(pod: Json) -> tuple[str, str]:
    """Return where the pod runs, and with which devices."""
    return pod["spec"]["nodeName"], pod["metadata"]["annotations"][f"{ASSIGNED}devices"]


def _running(cluster: Cluster, name: str, *, other_than: str = "") -> Json | None:
    """Return the pod if it runs and does not have the uid `other_than`, otherwise None."""
    found = [pod for pod in _ours(cluster) if pod["metadata"]["name"] == name]
    return next((pod for pod in found if runs(pod) and pod["metadata"]["uid"] != other_than), None)


def _ours(cluster: Cluster) -> list[Json]:
    """Return the pods of the tests' namespace. Fail if a GPU is held twice."""
    pods: list[Json] = cluster.get("pods", "-n", TESTS)["items"]
    assert held_twice(pods) == {}
    return pods


def _start(cluster: Cluster, make_workload: Callable[..., None], name: str, text: str) -> list[Json]:
    """Create a StatefulSet of two and return its running pods."""
    make_workload("StatefulSet", name, text, serviceName=name, **SET)
    return [eventually(f"{name}-{i} to run", partial(_running, cluster, f"{name}-{i}"), 30, 0.2) for i in range(2)]


def _node_is_ready(cluster: Cluster, node: str) -> bool:
    conditions = cluster.get("node", node)["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


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
    stays, goes = _start(cluster, make_workload, "drained", f"0=node1:70\n1={drained}:71,70")
    cluster.kubectl("drain", drained, "--pod-selector=app=drained", "--ignore-daemonsets", "--timeout=60s")
    name, old = goes["metadata"]["name"], goes["metadata"]["uid"]
    condition = eventually(f"{name} to wait", partial(waits, cluster, name, "NodeUnschedulable"))
    assert drained in condition["message"]
    assert bound(cluster, name) is None

    cluster.kubectl("uncordon", drained)
    back = eventually(f"{name} to run again", partial(_running, cluster, name, other_than=old), 30, 0.2)

    assert _place(back) == _place(goes) == (drained, "71,70")
    assert cluster.environment(TESTS, name)["CUDA_VISIBLE_DEVICES"] == "71,70"
    assert _running(cluster, stays["metadata"]["name"]) is not None
    assert cluster.get("pod", "-n", TESTS, stays["metadata"]["name"])["metadata"]["uid"] == stays["metadata"]["uid"]


@pytest.mark.promise("hold-1", "hold-2", "index-9", "map-1")
def test_evicted_pod_comes_back_to_its_line(cluster: Cluster, make_workload: Callable[..., None]) -> None:
    """A pod evicted through the API is created again on its line, and at no time do two pods hold its GPU."""
    _, evicted = _start(cluster, make_workload, "evicted", "0=node1:72\n1=node2:73")
    name, old = evicted["metadata"]["name"], evicted["metadata"]["uid"]
    about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": TESTS}}
    path = f"/api/v1/namespaces/{TESTS}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(about))
    # Each poll checks that no GPU is held twice.
    back = eventually(f"{name} to run again", partial(_running, cluster, name, other_than=old), 30)

    assert _place(back) == _place(evicted) == ("node2", "73")
    assert cluster.environment(TESTS, name)["CUDA_VISIBLE_DEVICES"] == "73"


def _restarted(cluster: Cluster, name: str, times: int) -> bool:
    pod = cluster.get("pod", "-n", TESTS, name)
    (status,) = pod["status"]["containerStatuses"]
    return bool(status["restartCount"] == times and runs(pod))


def _answers(cluster: Cluster, name: str) -> bool:
    """Return whether the pod's kubelet knows it: after a restart the node is Ready before that."""
    return cluster.kubectl("exec", "-n", TESTS, name, "--", "true", check=False).returncode == 0


def _kept(cluster: Cluster, before: list[Json]) -> None:
    """Check that the pods are still the same ones, with the same index, devices and environment."""
    for old in before:
        name, notes = old["metadata"]["name"], old["metadata"]["annotations"]
        now = cluster.get("pod", "-n", TESTS, name)
        assert now["metadata"]["uid"] == old["metadata"]["uid"]
        assert now["metadata"]["annotations"] == notes
        eventually(f"{name} to be known to its kubelet", partial(_answers, cluster, name), 30, 0.5)
        assert cluster.environment(TESTS, name)["CUDA_VISIBLE_DEVICES"] == notes[f"{ASSIGNED}devices"]


def _replicas(cluster: Cluster, name: str) -> list[Json]:
    """Return the Deployment's two pods if both run, otherwise an empty list."""
    pods = selected(cluster, f"app={name}")
    return pods if len(pods) == 2 and all(runs(pod) for pod in pods) else []


@pytest.mark.promise("index-16")
def test_restarted_kubelet_and_container_change_nothing(
    cluster: Cluster, make_pod: MakePod, make_workload: Callable[..., None]
) -> None:
    """Pods keep index, devices and environment when their kubelet restarts, and when their container does.

    So do pods that got their index from the scheduler; and a pod that requests a held GPU still waits.
    """
    cluster.create(make_pod("kept-0", "0=node2:74,75"))
    make_workload("Deployment", "shared-out", "0=node2:76\n1=node2:77", replicas=2)
    pods = eventually("the replicas to run", partial(_replicas, cluster, "shared-out"), 30, 0.2)
    pods.append(eventually("kept-0 to run", partial(_running, cluster, "kept-0"), 30, 0.2))
    assert sorted(_place(pod)[1] for pod in pods) == ["74,75", "76", "77"]

    cluster.on_node("node2", "systemctl", "restart", "kubelet")
    eventually("node2 to be ready", partial(_node_is_ready, cluster, "node2"), 30, 0.5)
    _kept(cluster, pods)
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in _replicas(cluster, "shared-out")] == [0, 0]

    for pod in pods:
        # The container ends on SIGTERM; the kubelet starts it again.
        cluster.exec(TESTS, pod["metadata"]["name"], "sh", "-c", "kill 1")
    for pod in pods:
        name = pod["metadata"]["name"]
        eventually(f"{name} to have restarted", partial(_restarted, cluster, name, 1), 30, 0.2)
    _kept(cluster, pods)
    cluster.create(make_pod("rival-0", "0=node2:75\n1=node2:78"))
    condition = eventually("rival-0 to have its reason", partial(waits, cluster, "rival-0", "GpuHeld"))
    assert f"{TESTS}/kept-0" in condition["message"]


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
        eventually("node3 to be ready", partial(_node_is_ready, cluster, "node3"), 40, 0.5)

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
    pod = eventually("homeless-0 to run", partial(_running, cluster, "homeless-0"), 30, 0.2)

    assert _place(pod) == ("node3", "79")
    assert before <= {pod["metadata"]["uid"] for pod in cluster.get("pods", "-A")["items"]}
