"""The leader crashes while pods are created: every pod is still placed, and no GPU is assigned twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.verify import system
from tests.cluster.verify.pods import ASSIGNED, NODES, PATIENCE, bound, in_safety, runs, selected, still_waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.clusters import Cluster
    from tests.cluster.verify.pods import Json, MakePod


def _fifty_run(cluster: Cluster) -> list[Json] | None:
    """Return the pods if all 50 run, otherwise None. Fail if a GPU is held twice."""
    pods = [pod for pod in in_safety(cluster) if pod["metadata"].get("labels", {}).get("app") == "storm"]
    return pods if len(pods) == 50 and all(runs(pod) for pod in pods) else None


@pytest.mark.timeout(400)
@pytest.mark.promise("lead-1", "lead-3", "lead-4")
def test_killed_leader_is_succeeded_while_fifty_pods_are_created(
    cluster: Cluster, healthy: None, make_pod: MakePod, describe_many: Callable[..., Json]
) -> None:
    """The leader's process gets SIGKILL on its node while 50 pods that request GPUs are being created: all 50 run.

    The new leader has another identity and writes it into its binds. GPUs that the old leader assigned stay assigned.
    """
    text = "\n".join(f"{i}={NODES[i % 4]}:{100 + i}" for i in range(50))
    first, rest = (describe_many("storm", numbers, lambda _: text) for numbers in (range(5), range(5, 50)))
    old = system.lease(cluster)["holderIdentity"]
    node, pid = system.leader_process(cluster)
    cluster.create(first)
    eventually("the first five to be bound", lambda: all(bound(cluster, f"storm-{i}") for i in range(5)))

    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(cluster.create, rest)
        eventually("more to be created", lambda: len(selected(cluster, "app=storm")) > 5)
        cluster.on_node(node, "kill", "-KILL", pid)
        assert len(selected(cluster, "app=storm")) < 50
        creating.result()
    # Requests the GPU of storm-0, as a pod of another workload.
    cluster.create(make_pod("thief-1", "1=node1:100"))
    found = eventually("50 pods to run", partial(_fifty_run, cluster), PATIENCE, 0.5)

    lease = system.lease(cluster)
    new = lease["holderIdentity"]
    reported = {pod["metadata"]["name"]: pod["metadata"]["annotations"] for pod in found}
    later = {name for name, notes in reported.items() if notes[f"{ASSIGNED}at"] > lease["acquireTime"]}
    assert new not in {old, ""}
    assert {reported[f"storm-{i}"][f"{ASSIGNED}by"] for i in range(5)} == {old}
    assert {reported[name][f"{ASSIGNED}by"] for name in later} == {new}
    assert new not in {reported[name][f"{ASSIGNED}by"] for name in reported.keys() - later}
    still_waits(cluster, "thief-1", "storm-0")
