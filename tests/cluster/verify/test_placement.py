"""Checks in the cluster itself, not in the playbook's output: where each replica runs and what it sees."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.clusters import SYSTEM, TESTS, Cluster
from tests.cluster.verify.pods import bound, waits
from tests.messages import quotes, says
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

EXPECTED = {
    ("default", "gpu-scheduler-check-0"): ("node1", "0,1"),
    ("default", "gpu-scheduler-check-1"): ("node2", "2"),
    ("default", "gpu-scheduler-check-2"): ("node3", "0,1,2"),
    ("default", "gpu-scheduler-check-3"): ("node4", "3"),
    ("default", "gpu-scheduler-check-4"): ("node4", "3"),
    (TESTS, "webhook-test-0"): ("node1", "0,1"),
    (TESTS, "webhook-test-1"): ("node2", "2"),
    (TESTS, "webhook-test-2"): ("node3", "0,1,2"),
}


@pytest.mark.promise("up-1")
def test_nodes_are_named_as_the_map_says(cluster: Cluster) -> None:
    """The four workers have the names node1 to node4, not just such labels."""
    nodes = {node["metadata"]["name"] for node in cluster.get("nodes")["items"]}

    assert {"node1", "node2", "node3", "node4"} < nodes
    assert len(nodes) == 5


@pytest.mark.parametrize(("namespace", "pod"), EXPECTED, ids=[name for _, name in EXPECTED])
@pytest.mark.promise("map-1", "up-2")
def test_replica_runs_on_its_node_and_sees_its_devices(cluster: Cluster, namespace: str, pod: str) -> None:
    """Each replica runs on the node of its line, and its first process sees that line's devices, in PCI order."""
    node, devices = EXPECTED[namespace, pod]
    found = cluster.get("pod", "-n", namespace, pod)
    environment = cluster.environment(namespace, pod)

    assert node == found["spec"]["nodeName"]
    assert devices == environment["CUDA_VISIBLE_DEVICES"]
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert found["metadata"]["annotations"]["agentaflow.gpu/assigned-devices"] == devices
    assert found["metadata"]["annotations"]["agentaflow.gpu/assigned-node"] == node


def _scheduled(cluster: Cluster, uid: str) -> list[dict[str, Any]]:
    """Return the events of the pod's binding."""
    about = f"reason=Scheduled,regarding.uid={uid}"
    events: list[dict[str, Any]] = cluster.get("events.events.k8s.io", "-n", TESTS, "--field-selector", about)["items"]
    return events


@pytest.mark.promise("place-6")
def test_bound_pod_has_a_scheduled_event(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """A bind has the same event as kube-scheduler's: Normal, reason `Scheduled`, reported by our scheduler."""
    # A pod of its own: a cluster deletes events after an hour.
    cluster.create(make_pod("told-0", "0=node3:9"))
    pod = eventually("told-0 to be bound", partial(bound, cluster, "told-0"))
    (event,) = eventually("told-0 to have an event", partial(_scheduled, cluster, pod["metadata"]["uid"]))

    assert event["type"] == "Normal"
    assert event["reportingController"] == "gpu-scheduler"
    assert "node3" in event["note"]


@pytest.mark.promise("map-6", "text-6")
def test_bad_map_is_refused_at_admission(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """A pod with a malformed map is not created: the message names the line, the value, the rule and an example."""
    refused = cluster.create(make_pod("bad-map-0", "0=node1:0\n1=node2:x"), check=False)

    assert refused.returncode != 0
    quotes(refused.stderr, "MapInvalid", "line 2")
    assert "example: " in refused.stderr
    assert cluster.kubectl("get", "pod", "-n", TESTS, "bad-map-0", check=False).returncode != 0


@pytest.mark.promise("place-1")
def test_other_schedulers_pods_are_untouched(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """A pod of the default scheduler with the same annotation gets neither variable nor annotation from us."""
    cluster.create(make_pod("foreign-0", "0=node1:0,1", scheduler="default-scheduler"))
    pod = eventually("foreign-0 to be bound", partial(bound, cluster, "foreign-0"))

    assert not any(key.startswith("agentaflow.gpu/") for key in pod["metadata"]["annotations"])
    assert [entry["name"] for entry in pod["spec"]["containers"][0]["env"]] == ["NODE_NAME"]


@pytest.fixture
def rivals(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield two pods of different workloads, no observers, that request one GPU and are decided in direct succession.

    Both wait for a cordoned node. Its uncordon requeues both, and the second is decided before the API server has
    confirmed the first bind. So only the scheduler's own assumption keeps the GPU from being assigned twice.
    """
    cluster.kubectl("cordon", "node4")
    try:
        # Different maps make different workloads; no other pod requests GPU 7 of node4.
        for name, text in (("first-0", "0=node4:7"), ("second-0", "0=node4:7\n1=node4:6")):
            cluster.create(make_pod(name, text))
            eventually(f"{name} to wait for node4", partial(waits, cluster, name, "NodeUnschedulable"))
        # Longer than the first back-off, so that both pods can be decided when the node is uncordoned.
        time.sleep(2)
        cluster.kubectl("uncordon", "node4")
        yield "first-0", "second-0"
    finally:
        cluster.kubectl("uncordon", "node4")


@pytest.mark.promise("share-2", "hold-1", "wait-1")
def test_held_gpu_waits_for_its_holder(cluster: Cluster, rivals: tuple[str, str]) -> None:
    """Of two workloads that request one GPU the second waits, naming the first, and is bound within 10 s of its end."""
    first, second = rivals
    eventually(f"{first} to be bound", partial(bound, cluster, first))
    condition = eventually(f"{second} to have its reason", partial(waits, cluster, second, "GpuHeld"))

    assert condition["reason"] == "Unschedulable"
    says(condition["message"], "GpuHeld", "GPU 7", "node4", f"{TESTS}/{first}")
    assert "nodeName" not in cluster.get("pod", "-n", TESTS, second)["spec"]

    cluster.kubectl("delete", "pod", "-n", TESTS, first, "--wait")
    pod = eventually(f"{second} to be bound", partial(bound, cluster, second))

    assert pod["spec"]["nodeName"] == "node4"


@pytest.mark.promise("fit-1", "text-11")
def test_missing_node_is_reported_and_blocks_no_other_pod(
    cluster: Cluster, make_pod: Callable[..., dict[str, Any]]
) -> None:
    """A pod whose map names an unknown node waits with NodeNotFound; the next pod is still placed."""
    cluster.create(make_pod("lost-0", "0=node9:0"))
    condition = eventually("lost-0 to have its reason", partial(waits, cluster, "lost-0", "NodeNotFound"))
    cluster.create(make_pod("found-0", "0=node2:6"))
    pod = eventually("found-0 to be bound", partial(bound, cluster, "found-0"))

    assert "node9" in condition["message"]
    assert pod["spec"]["nodeName"] == "node2"


@pytest.mark.parametrize("component", ["scheduler", "webhook"])
@pytest.mark.promise("up-2", "safe-1")
def test_component_has_two_replicas_on_two_nodes(cluster: Cluster, component: str) -> None:
    """Two replicas of each component, on different nodes, without root, on a read-only root."""
    selector = f"app.kubernetes.io/name=gpu-scheduler,app.kubernetes.io/component={component}"
    pods = cluster.get("pods", "-n", SYSTEM, "-l", selector, "--field-selector=status.phase=Running")["items"]
    (first, second) = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])

    assert first["spec"]["nodeName"] != second["spec"]["nodeName"]
    for pod in (first, second):
        (container,) = pod["spec"]["containers"]
        assert container["name"] == component
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        status = cluster.exec(SYSTEM, pod["metadata"]["name"], "cat", "/proc/1/status")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        assert fields["Uid"].split() == ["1000"] * 4
        assert int(fields["CapEff"], 16) == 0
        resident_mib = int(fields["VmRSS"].split()[0]) / 1024
        assert resident_mib <= 90


def test_webhook_logs_what_it_injected(cluster: Cluster, make_pod: Callable[..., dict[str, Any]]) -> None:
    """The webhook's log has one line for each injection, as the users' guides show it."""
    cluster.create(make_pod("logged-0", "0=node1:9,8"))
    selector = "app.kubernetes.io/name=gpu-scheduler,app.kubernetes.io/component=webhook"
    logs = cluster.kubectl("logs", "-n", SYSTEM, "-l", selector, "-c", "webhook", "--tail=-1").stdout

    assert "Injecting CUDA_VISIBLE_DEVICES=9,8 for pod logged-0 (index 0)" in logs
