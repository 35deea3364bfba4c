"""All schedulers crash in the middle of a rollout: every pod is still placed, and no GPU is assigned twice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.verify import system
from tests.cluster.verify.pods import ASSIGNED, NODES, PATIENCE, bound, in_safety, runs, selected, still_waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.verify.pods import Json, MakePod


def _new(cluster: Cluster, name: str, old: set[str]) -> list[Json]:
    """Return the workload's running pods that the rollout created. Fail if a GPU is held twice."""
    pods = [pod for pod in in_safety(cluster) if pod["metadata"].get("labels", {}).get("app") == name]
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
    still_waits(cluster, "thief-0", "keeper-0")
