"""A Deployment with a map is updated: with a spare line it completes, without one the message names the remedy."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from tests.cluster.clusters import TESTS, Cluster
from tests.cluster.verify.pods import ASSIGNED, held_twice, runs, waiting_for
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json

    MakeWorkload = Callable[..., None]

NAME: Final = "updated"
TWO_LINES: Final = "0=node1:80\n1=node2:81"
SPARE_LINE: Final = "0=node1:80\n1=node2:81\n2=node3:82"
SURGE: Final = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
MAKES_ROOM: Final = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def _pods(cluster: Cluster) -> list[Json]:
    """Return the Deployment's pods. Fail if a GPU is held twice."""
    pods: list[Json] = cluster.get("pods", "-n", TESTS, "-l", f"app={NAME}")["items"]
    assert held_twice(pods) == {}
    return pods


def _updated(cluster: Cluster, old: set[str]) -> dict[str, Json] | None:
    """Return the two pods by their devices if both run and none of the old ones remains, otherwise None."""
    pods = _pods(cluster)
    done = len(pods) == 2 and all(runs(pod) for pod in pods) and not old & {pod["metadata"]["uid"] for pod in pods}
    return {pod["metadata"]["annotations"][f"{ASSIGNED}devices"]: pod for pod in pods} if done else None


def _start(cluster: Cluster, make_workload: MakeWorkload, text: str, strategy: Json) -> dict[str, str]:
    """Create a Deployment of two; return the names and uids of its running pods."""
    make_workload("Deployment", NAME, text, replicas=2, strategy=strategy)
    pods = eventually("two replicas", partial(_updated, cluster, set()), 30, 0.2)
    assert sorted(pods) == ["80", "81"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods.values()}


def _make_room(cluster: Cluster) -> None:
    """Apply the remedy of the message: let the Deployment stop an old pod first."""
    how = {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}}}
    cluster.kubectl("patch", "deployment", "-n", TESTS, NAME, "-p", json.dumps(how))


@pytest.mark.promise("index-19", "index-7", "index-17")
@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        pytest.param(SPARE_LINE, SURGE, id="a spare line"),
        pytest.param(TWO_LINES, MAKES_ROOM, id="an old pod stops first"),
    ],
)
def test_rolling_update_completes(cluster: Cluster, make_workload: MakeWorkload, text: str, strategy: Json) -> None:
    """With a spare line, or if an old pod stops first, both replicas are replaced, each with a line of its own."""
    old = _start(cluster, make_workload, text, strategy)
    cluster.kubectl("rollout", "restart", "-n", TESTS, f"deployment/{NAME}")
    pods = eventually("two new replicas", partial(_updated, cluster, set(old.values())), 30)

    assert len(pods) == 2
    for devices, pod in pods.items():
        assert {"80": "node1", "81": "node2", "82": "node3"}[devices] == pod["spec"]["nodeName"]
        assert cluster.environment(TESTS, pod["metadata"]["name"])["CUDA_VISIBLE_DEVICES"] == devices


@pytest.mark.promise("index-12", "index-18", "index-9", "wait-1")
def test_surge_pod_without_a_spare_line_waits(cluster: Cluster, make_workload: MakeWorkload) -> None:
    """With as many lines as replicas the surge pod waits. Its message names an old pod and remedies; one is applied."""
    old = _start(cluster, make_workload, TWO_LINES, SURGE)
    cluster.kubectl("rollout", "restart", "-n", TESTS, f"deployment/{NAME}")
    reported = eventually("the surge pod to wait", partial(waiting_for, cluster, f"app={NAME}", "NoFreeIndex"))

    assert any(f"{TESTS}/{name}" in reported for name in old), reported
    for remedy in ("spare", "maxUnavailable", "OnDelete"):
        assert remedy in reported
    assert set(old.values()) <= {pod["metadata"]["uid"] for pod in _pods(cluster)}

    _make_room(cluster)
    pods = eventually("two new replicas", partial(_updated, cluster, set(old.values())), 30)
    assert sorted(pods) == ["80", "81"]


@pytest.mark.promise("share-2", "hold-1", "fixed-2", "wait-1")
def test_surge_pod_with_another_map_waits_for_the_old_pods_gpu(cluster: Cluster, make_workload: MakeWorkload) -> None:
    """A template with the same GPUs on other lines is another workload: its first pod waits for the old pod's GPU."""
    old = _start(cluster, make_workload, TWO_LINES, SURGE)
    swapped = {"gpu-scheduling-map": "0=node2:81\n1=node1:80"}
    template = {"spec": {"template": {"metadata": {"annotations": swapped}}}}
    cluster.kubectl("patch", "deployment", "-n", TESTS, NAME, "-p", json.dumps(template))
    reported = eventually("the surge pod to wait", partial(waiting_for, cluster, f"app={NAME}", "GpuHeld"))

    assert any(f"is held by {TESTS}/{name}" in reported for name in old), reported
    assert set(old.values()) <= {pod["metadata"]["uid"] for pod in _pods(cluster)}

    _make_room(cluster)
    pods = eventually("two new replicas", partial(_updated, cluster, set(old.values())), 30)
    assert sorted(pods) == ["80", "81"]
