"""What a kubelet ends and starts again: an evicted pod, and pods whose kubelet or container restarts."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import ASSIGNED, node_is_ready, place, running, runs, selected, start_pair, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json, MakePod


@pytest.mark.promise("hold-1", "hold-2", "index-9", "map-1")
def test_evicted_pod_comes_back_to_its_line(cluster: Cluster, make_workload: Callable[..., None]) -> None:
    """A pod evicted through the API is created again on its line, and at no time do two pods hold its GPU."""
    _, evicted = start_pair(cluster, make_workload, "evicted", "0=node1:72\n1=node2:73")
    name, old = evicted["metadata"]["name"], evicted["metadata"]["uid"]
    about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": TESTS}}
    path = f"/api/v1/namespaces/{TESTS}/pods/{name}/eviction"
    cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(about))
    # Each poll checks that no GPU is held twice.
    back = eventually(f"{name} to run again", partial(running, cluster, name, other_than=old), 30)

    assert place(back) == place(evicted) == ("node2", "73")
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
    pods.append(eventually("kept-0 to run", partial(running, cluster, "kept-0"), 30, 0.2))
    assert sorted(place(pod)[1] for pod in pods) == ["74,75", "76", "77"]

    cluster.on_node("node2", "systemctl", "restart", "kubelet")
    eventually("node2 to be ready", partial(node_is_ready, cluster, "node2"), 30, 0.5)
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
