"""All schedulers crash in the middle of a rollout: every pod is still placed, and no GPU is assigned twice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.verify import system
from tests.cluster.verify.pods import ASSIGNED, bound, held_twice, runs, selected, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json, MakePod

NODES = ("node1", "node2", "node3", "node4")
# Seconds. The Lease of a killed leader is valid for up to 15 s more. Then all pods are bound, and start on few cores.
PATIENCE = 120


def _safe(cluster: Cluster) -> list[Json]:
    """Return all pods of the tests' namespace. Fail if a GPU is held twice anywhere in the cluster."""
    pods: list[Json] = cluster.get("pods", "-A")["items"]
    assert held_twice(pods) == {}
    return [pod for pod in pods if pod["metadata"]["namespace"] == TESTS]


def _held(cluster: Cluster, thief: str, keeper: str) -> None:
    """Check that the second pod still waits for the GPU that the first has held since before the crash."""
    condition = eventually(f"{thief} to have its reason", partial(waits, cluster, thief, "GpuHeld"))
    assert f"is held by {TESTS}/{keeper}" in condition["message"]
    assert bound(cluster, thief) is None


def _new(cluster: Cluster, name: str, old: set[str]) -> list[Json]:
    """Return the workload's running pods that the rollout created. Fail if a GPU is held twice."""
    pods = [pod for pod in _safe(cluster) if pod["metadata"].get("labels", {}).get("app") == name]
    return [pod for pod in pods if runs(pod) and pod["metadata"]["uid"] not in old]


@pytest.mark.timeout(400)
@pytest.mark.promise("lead-4", "hold-8")
def test_a_rollout_completes_after_every_scheduler_is_killed(
    cluster: Cluster,
    healthy: None,
    make_pod: MakePod,
    make_workload: Callable[..., None],
) -> None:
    """All schedulers are killed in the middle of a rollout: each replica is still placed, no GPU is held twice.

    A new pod that requests a GPU held since before waits for its holder: the new leader knows every hold.
    """
    lines = {f"rolled-{i}": (NODES[i % 4], str(50 + i)) for i in range(6)}
    text = "\n".join(f"{i}={node}:{device}" for i, (node, device) in enumerate(lines.values()))
    make_workload("StatefulSet", "rolled", text, replicas=6, serviceName="rolled", podManagementPolicy="Parallel")
    cluster.create(make_pod("keeper-0", "0=node1:60"))
    eventually("keeper-0 to be bound", partial(bound, cluster, "keeper-0"))
    eventually("six replicas", lambda: len(_new(cluster, "rolled", set())) == 6, PATIENCE, 0.5)
    old = {pod["metadata"]["uid"] for pod in selected(cluster, "app=rolled")}

    cluster.kubectl("rollout", "restart", "-n", TESTS, "statefulset/rolled")
    eventually("the first new replica", lambda: _new(cluster, "rolled", old), 60)
    before = system.lease(cluster)["holderIdentity"]
    cluster.kubectl("delete", "pods", "-n", SYSTEM, "-l", system.SCHEDULER, "--force", "--grace-period=0")
    assert len(_new(cluster, "rolled", old)) < 6
    cluster.create(make_pod("thief-0", "0=node1:60\n1=node1:61"))
    eventually("six new replicas", lambda: len(_new(cluster, "rolled", old)) == 6, PATIENCE, 0.5)

    placed = {pod["metadata"]["name"]: pod for pod in selected(cluster, "app=rolled")}
    devices = {name: pod["metadata"]["annotations"][f"{ASSIGNED}devices"] for name, pod in placed.items()}
    assert lines == {name: (pod["spec"]["nodeName"], devices[name]) for name, pod in placed.items()}
    assert system.lease(cluster)["holderIdentity"] not in {before, ""}
    _held(cluster, "thief-0", "keeper-0")
