"""No replica of the webhook runs: our pods are refused until one does, other pods are not affected."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.verify import system
from tests.cluster.verify.pods import literals, runs, selected
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.verify.pods import Json, MakePod

NAME = "gpu-scheduler-webhook"
CONFIGURATIONS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


@pytest.fixture
def restore(cluster: Cluster, healthy: None) -> Iterator[Callable[[], None]]:
    """Scale the webhook to 0, and return a function that scales it back."""

    def scale(count: int) -> None:
        cluster.kubectl("scale", "deployment", "-n", SYSTEM, NAME, f"--replicas={count}")

    try:
        scale(0)
        eventually("no replica is left", lambda: not system.replicas(cluster, system.WEBHOOK), 60)
        yield partial(scale, 2)
    finally:
        scale(2)


def _refused(cluster: Cluster, kind: str, name: str) -> bool:
    """Return whether the controller's create of a pod was refused because the webhook did not answer."""
    uid = cluster.get(kind, "-n", TESTS, name)["metadata"]["uid"]
    about = f"reason=FailedCreate,involvedObject.uid={uid}"
    events = cluster.get("events", "-n", TESTS, "--field-selector", about)["items"]
    return any("mutate.gpu-scheduler.agentaflow.io" in event["message"] for event in events)


def _four_run(cluster: Cluster, selector: str) -> list[Json] | None:
    pods = selected(cluster, selector)
    return pods if len(pods) == 4 and all(runs(pod) for pod in pods) else None


@pytest.mark.timeout(400)
@pytest.mark.promise("hook-1", "hook-2")
def test_webhook_outage_refuses_our_pods_and_no_others(
    cluster: Cluster,
    make_pod: MakePod,
    make_workload: Callable[..., None],
    restore: Callable[[], None],
) -> None:
    """Without a replica of the webhook our pods are refused, and controllers create them once it is back.

    Meanwhile a pod of the default scheduler with the same annotation is created and runs.
    """
    refused = cluster.create(make_pod("early-0", "0=node1:42"), check=False)
    assert refused.returncode != 0
    assert 'failed calling webhook "mutate.gpu-scheduler.agentaflow.io"' in refused.stderr

    made = {"StatefulSet": "held-set", "ReplicaSet": "held-replicas", "Job": "held-job"}
    make_workload("StatefulSet", "held-set", "0=node1:43\n1=node2:43", replicas=2, serviceName="held")
    # A ReplicaSet's pods have no index of their own.
    index = {"agentaflow.gpu/index": "0"}
    make_workload("ReplicaSet", "held-replicas", "0=node3:43", replicas=1, annotations=index)
    make_workload("Job", "held-job", "0=node4:43", completions=1, completionMode="Indexed")
    cluster.create(make_pod("foreign-1", "0=node1:43", scheduler="default-scheduler"))
    for kind, name in made.items():
        eventually(f"{name} to be refused its pod", partial(_refused, cluster, kind, name), 30)
    foreign = partial(lambda: runs(cluster.get("pod", "-n", TESTS, "foreign-1")))
    eventually("the pod of the default scheduler to run", foreign, 30)
    held = "app in (held-set,held-replicas,held-job)"
    assert selected(cluster, held) == []

    restore()
    # Each controller retries with a growing back-off.
    pods = eventually("all four pods to run", partial(_four_run, cluster, held), 120, 0.5)

    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["node1", "node2", "node3", "node4"]
    assert [literals(pod) for pod in pods] == [{"43"}] * 4
