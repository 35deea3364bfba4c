"""One leading scheduler and bare nodes: what a pod's owner sees, case by case."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.waiting import limit

if TYPE_CHECKING:
    from tests.integration.bench import Bench
    from tests.integration.command import Command


@pytest.mark.promise("map-1", "env-6", "place-6")
def test_a_pod_lands_where_its_line_says(bench: Bench, scheduler: Command) -> None:
    """Node, devices and index become durable in the one write of the Binding, and the owner reads a Scheduled event."""
    bench.node("node3")
    bench.pod("train-2", "0=node1:0,1\n2=node3:0,1,2\n", "0,1,2")

    pod = bench.wait_bound("train-2", "node3")

    annotations = pod["metadata"]["annotations"]
    assert annotations["agentaflow.gpu/assigned-devices"] == "0,1,2"
    assert annotations["agentaflow.gpu/assigned-index"] == "2"
    assert annotations["agentaflow.gpu/assigned-node"] == "node3"
    assert annotations["agentaflow.gpu/assigned-by"].startswith("scheduler-0_")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", annotations["agentaflow.gpu/assigned-at"])
    assert bench.condition("train-2")["status"] == "True"
    event = bench.wait_event("train-2", "Scheduled")
    assert (event["type"], event["action"]) == ("Normal", "Binding")
    assert event["reportingController"] == "gpu-scheduler"
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert scheduler.metric("gpu_scheduler_conflicts") == 0


@pytest.mark.promise("map-6", "text-1", "text-2", "text-3", "text-7")
def test_a_bad_map_is_shown_with_its_line(bench: Bench, scheduler: Command) -> None:
    """Where a malformed map slipped by admission, condition and event carry the parser's sentence."""
    bench.node("node1")
    bench.pod("train-0", "0=node1:0\n1=node9:x\n", "0")

    message = bench.wait_message("train-0", "MapInvalid: ")

    assert "line 2" in message
    assert "1=node9:x" in message
    condition = bench.condition("train-0")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    event = bench.wait_event("train-0", "FailedScheduling")
    assert event["note"] == message
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")


@pytest.mark.promise("share-2", "hold-1", "wait-1")
def test_a_held_gpu_is_given_on_when_its_holder_goes(bench: Bench, scheduler: Command) -> None:
    """The second pod waits with GpuHeld naming the first, and is bound within seconds of its deletion."""
    bench.node("node4")
    bench.pod("first-0", "0=node4:3\n", "3")
    bench.wait_bound("first-0", "node4")
    bench.pod("second-0", "0=node4:3\n1=node4:4\n", "3")
    message = bench.wait_message("second-0", "GpuHeld: ")
    assert f"{bench.namespace}/first-0" in message

    gone = time.monotonic()
    bench.delete("first-0")

    bench.wait_bound("second-0", "node4")
    assert time.monotonic() - gone < limit(4)
    assert [event["reason"] for event in bench.events("second-0")].count("FailedScheduling") == 1


@pytest.mark.promise("fit-1", "wait-1")
def test_a_missing_node_may_still_come(bench: Bench, scheduler: Command) -> None:
    """NodeNotFound names the node; its arrival is what wakes the pod."""
    bench.pod("train-0", "0=later:0\n", "0")
    assert '"later"' in bench.wait_message("train-0", "NodeNotFound: ")

    bench.node("later")

    bench.wait_bound("train-0", "later")


@pytest.mark.promise("map-10")
def test_a_node_may_be_named_by_its_label(bench: Bench, scheduler: Command) -> None:
    """The map names an alias; the pod lands on the real node."""
    bench.node("aks-pool-1-vmss000000", alias="gpu-a")
    bench.pod("train-0", "0=gpu-a:0\n", "0")

    pod = bench.wait_bound("train-0", "aks-pool-1-vmss000000")

    assert pod["metadata"]["annotations"]["agentaflow.gpu/assigned-node"] == "aks-pool-1-vmss000000"


@pytest.mark.promise("fit-3", "wait-1")
def test_a_cordoned_node_gets_nothing_until_it_is_uncordoned(bench: Bench, scheduler: Command) -> None:
    """The API server checks nothing about the node of a Binding: this promise is ours alone."""
    bench.node("node1", unschedulable=True)
    bench.pod("train-0", "0=node1:0\n", "0")
    bench.wait_message("train-0", "NodeUnschedulable: ")

    bench.cordon("node1", cordoned=False)

    bench.wait_bound("train-0", "node1")


@pytest.mark.promise("fit-2", "wait-1")
def test_a_node_that_is_not_ready_gets_nothing_until_it_is(bench: Bench, scheduler: Command) -> None:
    """A pod bound to a dead node would wait for its kubelet in silence."""
    bench.node("node1", ready=False)
    bench.pod("train-0", "0=node1:0\n", "0")
    bench.wait_message("train-0", "NodeNotReady: ")

    bench.set_ready("node1", ready=True)

    bench.wait_bound("train-0", "node1")


@pytest.mark.promise("gate-2")
def test_a_pod_without_its_environment_is_not_bound(bench: Bench, scheduler: Command) -> None:
    """Where the webhook was not there, the pod would run on all GPUs: it waits with the cure."""
    bench.node("node1")
    bench.pod("train-0", "0=node1:0\n", None)

    bench.wait_message("train-0", "EnvNotInjected: ")

    assert bench.node_of("train-0") == ""


@pytest.mark.promise("place-1")
def test_other_schedulers_pods_are_left_alone(bench: Bench, scheduler: Command) -> None:
    """A map on a pod of another scheduler means nothing to us: not bound, not told, not counted."""
    bench.node("node1")
    bench.pod("foreign-0", "0=node1:0\n", "0", scheduler="somebody-else")
    bench.pod("ours-0", "0=node1:0\n", "0")

    bench.wait_bound("ours-0", "node1")

    assert bench.node_of("foreign-0") == ""
    assert bench.condition("foreign-0") == {}
    assert bench.events("foreign-0") == []


@pytest.mark.promise("place-3", "text-1")
def test_a_gated_pod_is_left_alone_until_its_gate_opens(bench: Bench, scheduler: Command) -> None:
    """A gated pod's condition belongs to the API server; when the gate is gone the pod is placed."""
    bench.node("node1")
    bench.pod("train-0", "0=node1:0\n", "0", gated=True)
    bench.pod("other-1", "0=node1:0\n1=node1:1\n", "1")
    bench.wait_bound("other-1", "node1")
    assert bench.condition("train-0")["reason"] == "SchedulingGated"
    assert bench.events("train-0") == []

    bench.kube.patch(f"{bench.pods}/train-0", {"spec": {"schedulingGates": []}})

    bench.wait_bound("train-0", "node1")
