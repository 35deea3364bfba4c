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


@pytest.mark.promise("map-10")
def test_a_node_may_be_named_by_its_label(namespace: Namespace, scheduler: Command) -> None:
    """The map names an alias. The pod is bound to the node that has the alias as label."""
    namespace.node("aks-pool-1-vmss000000", alias="gpu-a")
    namespace.pod("train-0", "0=gpu-a:0\n", "0")

    pod = namespace.wait_bound("train-0", "aks-pool-1-vmss000000")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-node"] == "aks-pool-1-vmss000000"


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
