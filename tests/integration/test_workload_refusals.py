"""What keeps a workload's pod from being made is told in its status, by a word of the list, and tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.served import Served
from tests.objects import pod_template
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders
    from tests.objects import Object


@pytest.mark.promise("order-6")
def test_a_name_that_is_taken_is_told_and_left_alone(controller: Command, orders: Orders) -> None:
    """A pod of that name that is not the workload's stays as it is; when it goes, the workload's comes."""
    orders.bench.make(order_of_somebody("train-0"))
    orders.place("train")
    told = orders.wait("train", "Pending", "RequestInvalid")
    assert "a pod of that name is there, and it is not this workload's" in told["message"]
    assert told["conditions"][0]["reason"] == "RequestInvalid"
    assert "ownerReferences" not in orders.bench.read("train-0")["metadata"]

    orders.bench.delete("train-0")
    eventually(
        "its own is there", lambda: "ownerReferences" in (orders.kube.get(pod_path(orders)) or EMPTY)["metadata"]
    )
    orders.wait("train", "Pending")


EMPTY: Object = {"metadata": {}}


def pod_path(orders: Orders) -> str:
    """Where the workload's pod is."""
    return f"{orders.bench.pods}/train-0"


def order_of_somebody(name: str) -> Object:
    """A pod of somebody else's."""
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}


RESTRICTED = "pod-security.kubernetes.io/enforce"


@pytest.mark.promise("order-6")
def test_a_pod_that_pod_security_refuses_is_told_and_made_later(controller: Command, orders: Orders) -> None:
    """The API server's own sentence, and another try when the namespace allows it; nothing is half-created."""
    space = f"/api/v1/namespaces/{orders.bench.namespace}"
    orders.kube.patch(space, {"metadata": {"labels": {RESTRICTED: "restricted"}}})
    orders.place("train")
    told = orders.wait("train", "Pending", "RequestInvalid")
    assert 'violates PodSecurity "restricted:latest"' in told["message"]
    assert (orders.pods(), told["attempts"]) == ([], 0)

    orders.kube.patch(space, {"metadata": {"labels": {RESTRICTED: None}}})
    orders.wait_pod("train-0")
    assert orders.wait("train", "Pending")["attempts"] == 1


@pytest.mark.promise("order-6")
def test_a_pod_that_the_quota_has_no_room_for_is_told_and_made_later(controller: Command, orders: Orders) -> None:
    """A shortage is no fault of the workload's."""
    quotas = f"/api/v1/namespaces/{orders.bench.namespace}/resourcequotas"
    orders.kube.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})
    orders.kube.patch(f"{quotas}/few/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    orders.place("train")
    told = orders.wait("train", "Pending", "InsufficientResources", seconds=20)
    assert "exceeded quota: few" in told["message"]

    orders.kube.delete(f"{quotas}/few")
    orders.wait_pod("train-0")


@pytest.mark.promise("order-6", "guard-1")
def test_a_template_cannot_forge_an_assignment(controller: Command, orders: Orders) -> None:
    """The controller makes pods, but it is not the scheduler: what only that one writes is refused, and told."""
    orders.place("forger", pod_template({"agentaflow.gpu/assigned-devices": "7"}))
    told = orders.wait("forger", "Pending", "RequestInvalid")

    assert told["message"].startswith("RequestInvalid: cannot write annotation agentaflow.gpu/assigned-devices as ")
    assert orders.pods() == []


@pytest.mark.promise("order-6", "guard-4")
def test_a_template_cannot_preset_its_node(controller: Command, orders: Orders) -> None:
    """Nor another scheduler: ours is written over it."""
    body = pod_template()
    body["spec"]["nodeName"] = "node1"
    orders.place("settled", body)
    assert "cannot create the pod on node node1" in orders.wait("settled", "Pending", "RequestInvalid")["message"]

    body = pod_template()
    body["spec"]["schedulerName"] = "another"
    orders.place("elsewhere", body)
    assert orders.wait_pod("elsewhere-0")["spec"]["schedulerName"] == "gpu-scheduler"


@pytest.mark.promise("order-6")
def test_what_our_webhook_refuses_is_told_by_its_word(
    controller: Command, kinds: ControlPlane, orders: Orders, tmp_path: Path
) -> None:
    """A limit that contradicts the count, a bad map: the sentence is the one that a pod would be refused with."""
    served = Served(kinds, tmp_path)
    try:
        orders.wait_asked()
        limits = {"limits": {"nvidia.com/gpu": "2"}}
        orders.place("torn", pod_template(resources=limits), gpuRequirements={"gpuCount": 1})
        orders.place("lost", pod_template({"gpu-scheduling-map": "0=node1:x"}))

        torn = orders.wait("torn", "Pending", "RequestInvalid")["message"]
        assert torn.startswith("RequestInvalid: cannot ")
        assert "nvidia.com/gpu" in torn
        assert orders.wait("lost", "Pending", "MapInvalid")["message"].startswith(
            "MapInvalid: cannot read placement map"
        )
        assert orders.pods() == []

        orders.place("well", pod_template(resources=limits), gpuRequirements={"gpuCount": 2})
        variables = orders.wait_pod("well-0")["spec"]["containers"][0]["env"]
        assert variables[0]["valueFrom"]["fieldRef"]["fieldPath"].endswith("['agentaflow.gpu/assigned-devices']")
    finally:
        served.unregister()
        served.command.process.stop()


@pytest.mark.promise("order-6")
def test_a_webhook_that_is_away_is_a_fault_of_the_cluster(
    controller: Command, kinds: ControlPlane, orders: Orders, tmp_path: Path
) -> None:
    """Told as such; the pod is made when it answers again, or is asked no more."""
    served = Served(kinds, tmp_path)
    served.command.kill()
    try:
        orders.place("train")
        told = orders.wait("train", "Pending", "SchedulerError", seconds=20)
        assert "failed calling webhook" in told["message"]
    finally:
        served.unregister()
    orders.wait_pod("train-0")
