"""Placement by one leading scheduler, as the owner of a pod sees it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.command import Command
    from tests.integration.namespace import Namespace


@pytest.mark.promise("map-1", "env-6", "place-6")
def test_a_pod_is_placed_where_its_line_says(namespace: Namespace, scheduler: Command) -> None:
    """One Binding stores node, devices and index. The pod gets a Scheduled event."""
    namespace.node("node3")
    namespace.pod("train-2", "0=node1:0,1\n2=node3:0,1,2\n", "0,1,2")

    pod = namespace.wait_bound("train-2", "node3")

    annotations = pod["metadata"]["annotations"]
    assert annotations["agentaflow.gpu/assigned-devices"] == "0,1,2"
    assert annotations["agentaflow.gpu/assigned-index"] == "2"
    assert annotations["agentaflow.gpu/assigned-node"] == "node3"
    assert annotations["agentaflow.gpu/assigned-by"].startswith("scheduler-0_")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", annotations["agentaflow.gpu/assigned-at"])
    assert namespace.condition("train-2")["status"] == "True"
    event = namespace.wait_event("train-2", "Scheduled")
    assert (event["type"], event["action"]) == ("Normal", "Binding")
    assert event["reportingController"] == "gpu-scheduler"
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert scheduler.metric("gpu_scheduler_conflicts") == 0


@pytest.mark.promise("map-6", "text-1", "text-2", "text-3", "text-7")
def test_a_bad_map_is_shown_with_its_line(namespace: Namespace, scheduler: Command) -> None:
    """If an invalid map passed admission, condition and event have the parser's message."""
    namespace.node("node1")
    namespace.pod("train-0", "0=node1:0\n1=node9:x\n", "0")

    message = namespace.wait_message("train-0", "MapInvalid: ")

    assert "line 2" in message
    assert "1=node9:x" in message
    condition = namespace.condition("train-0")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    event = namespace.wait_event("train-0", "FailedScheduling")
    assert event["note"] == message
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")


@pytest.mark.promise("share-2", "hold-1", "wait-1")
def test_a_held_gpu_is_given_to_the_next_pod_when_its_holder_is_deleted(
    namespace: Namespace, scheduler: Command
) -> None:
    """The second pod waits with GpuHeld, and is bound after the first is deleted, with no other report in between."""
    namespace.node("node4")
    namespace.pod("first-0", "0=node4:3\n", "3")
    namespace.wait_bound("first-0", "node4")
    namespace.pod("second-0", "0=node4:3\n1=node4:4\n", "3")
    message = namespace.wait_message("second-0", "GpuHeld: ")
    assert f"{namespace.name}/first-0" in message

    namespace.delete("first-0")

    namespace.wait_bound("second-0", "node4")
    assert [event["reason"] for event in namespace.events("second-0")].count("FailedScheduling") == 1


@pytest.mark.promise("fit-1", "wait-1")
def test_a_pod_waits_for_a_missing_node(namespace: Namespace, scheduler: Command) -> None:
    """NodeNotFound names the node. The creation of the node requeues the pod."""
    namespace.pod("train-0", "0=later:0\n", "0")
    assert '"later"' in namespace.wait_message("train-0", "NodeNotFound: ")

    namespace.node("later")

    namespace.wait_bound("train-0", "later")


@pytest.mark.promise("map-10")
def test_a_node_may_be_named_by_its_label(namespace: Namespace, scheduler: Command) -> None:
    """The map names an alias. The pod is bound to the node that has the alias as label."""
    namespace.node("aks-pool-1-vmss000000", alias="gpu-a")
    namespace.pod("train-0", "0=gpu-a:0\n", "0")

    pod = namespace.wait_bound("train-0", "aks-pool-1-vmss000000")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-node"] == "aks-pool-1-vmss000000"


@pytest.mark.promise("fit-3", "wait-1")
def test_a_cordoned_node_gets_nothing_until_it_is_uncordoned(namespace: Namespace, scheduler: Command) -> None:
    """The API server does not check the node of a Binding, so the scheduler must."""
    namespace.node("node1", unschedulable=True)
    namespace.pod("train-0", "0=node1:0\n", "0")
    namespace.wait_message("train-0", "NodeUnschedulable: ")

    namespace.cordon("node1", cordoned=False)

    namespace.wait_bound("train-0", "node1")


@pytest.mark.promise("fit-2", "wait-1")
def test_a_node_that_is_not_ready_gets_nothing_until_it_is(namespace: Namespace, scheduler: Command) -> None:
    """A pod that is bound to such a node would wait for its kubelet without any message."""
    namespace.node("node1", ready=False)
    namespace.pod("train-0", "0=node1:0\n", "0")
    namespace.wait_message("train-0", "NodeNotReady: ")

    namespace.set_ready("node1", ready=True)

    namespace.wait_bound("train-0", "node1")


@pytest.mark.promise("gate-2")
def test_a_pod_without_its_environment_is_not_bound(namespace: Namespace, scheduler: Command) -> None:
    """Without the webhook's variables the pod would see all GPUs. It waits, and its message names the remedy."""
    namespace.node("node1")
    namespace.pod("train-0", "0=node1:0\n", None)

    namespace.wait_message("train-0", "EnvNotInjected: ")

    assert namespace.node_of("train-0") == ""


@pytest.mark.promise("place-1")
def test_pods_of_other_schedulers_are_not_scheduled(namespace: Namespace, scheduler: Command) -> None:
    """A pod of another scheduler with a map is not bound, gets no message and holds no device."""
    namespace.node("node1")
    namespace.pod("foreign-0", "0=node1:0\n", "0", scheduler="somebody-else")
    namespace.pod("ours-0", "0=node1:0\n", "0")

    namespace.wait_bound("ours-0", "node1")

    assert namespace.node_of("foreign-0") == ""
    assert namespace.condition("foreign-0") == {}
    assert namespace.events("foreign-0") == []


@pytest.mark.promise("place-3", "text-1")
def test_a_gated_pod_is_not_scheduled_until_its_gate_is_removed(namespace: Namespace, scheduler: Command) -> None:
    """The API server writes the condition of a gated pod. When the gate is removed, the pod is placed."""
    namespace.node("node1")
    namespace.pod("train-0", "0=node1:0\n", "0", gated=True)
    namespace.pod("other-1", "0=node1:0\n1=node1:1\n", "1")
    namespace.wait_bound("other-1", "node1")
    assert namespace.condition("train-0")["reason"] == "SchedulingGated"
    assert namespace.events("train-0") == []

    namespace.kube.patch(f"{namespace.pods}/train-0", {"spec": {"schedulingGates": []}})

    namespace.wait_bound("train-0", "node1")
