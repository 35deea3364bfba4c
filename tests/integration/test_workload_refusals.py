"""If a pod cannot be created, the status of its GPUWorkload has the reason, and the controller tries again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.webhook_process import RegisteredWebhook
from tests.messages import says, text_of
from tests.objects import pod, pod_template

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workloads import Workloads


@pytest.mark.promise("order-6")
def test_a_pod_of_the_same_name_is_reported_and_unchanged(controller: Command, workloads: Workloads) -> None:
    """A pod of that name without the workload as owner is unchanged. After its deletion the workload's is created."""
    workloads.namespace.make(pod("train-0", scheduler="another"))
    workloads.place("train")
    reported = workloads.wait("train", "Pending", "RequestInvalid")
    taken = f"{workloads.namespace.name}/train-0"
    assert reported["message"] == text_of("another pod has the name of a GPUWorkload's", pod=taken)
    assert reported["conditions"][0]["reason"] == "RequestInvalid"
    assert "ownerReferences" not in workloads.namespace.read("train-0")["metadata"]

    workloads.namespace.delete("train-0")
    assert "ownerReferences" in workloads.wait_pod("train-0")["metadata"]
    workloads.wait("train", "Pending")


@pytest.mark.promise("order-6")
def test_a_pod_that_the_quota_has_no_room_for_is_reported_and_made_later(
    controller: Command, workloads: Workloads
) -> None:
    """The reason is InsufficientResources, since the workload itself is valid."""
    quotas = f"/api/v1/namespaces/{workloads.namespace.name}/resourcequotas"
    workloads.kube.create(quotas, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}})
    workloads.kube.patch(f"{quotas}/few/status", {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    workloads.place("train")
    reported = workloads.wait("train", "Pending", "InsufficientResources", seconds=20)
    assert "exceeded quota: few" in reported["message"]

    workloads.kube.delete(f"{quotas}/few")
    workloads.wait_pod("train-0")


@pytest.mark.promise("order-6", "guard-4")
def test_a_template_cannot_preset_its_node(controller: Command, workloads: Workloads) -> None:
    """A preset node is refused, and another schedulerName is overwritten with ours."""
    body = pod_template()
    body["spec"]["nodeName"] = "node1"
    workloads.place("settled", body)
    reported = workloads.wait("settled", "Pending", "RequestInvalid")
    assert reported["message"] == text_of("a pod is created on a node", node="node1")

    body = pod_template()
    body["spec"]["schedulerName"] = "another"
    workloads.place("elsewhere", body)
    assert workloads.wait_pod("elsewhere-0")["spec"]["schedulerName"] == "gpu-scheduler"


@pytest.mark.promise("order-6")
def test_a_refusal_of_the_webhook_is_reported_with_its_reason(
    controller: Command, kinds: ControlPlane, workloads: Workloads, tmp_path: Path
) -> None:
    """For a limit that contradicts the count and for an invalid map, the status has the webhook's message."""
    registered = RegisteredWebhook(kinds, tmp_path)
    try:
        workloads.wait_asked()
        limits = {"limits": {"nvidia.com/gpu": "2"}}
        workloads.place("torn", pod_template(resources=limits), gpuRequirements={"gpuCount": 1})
        workloads.place("lost", pod_template({"gpu-scheduling-map": "0=node1:x"}))

        cut_reply = workloads.wait("torn", "Pending", "RequestInvalid")["message"]
        says(cut_reply, "RequestInvalid")
        assert "nvidia.com/gpu" in cut_reply
        says(workloads.wait("lost", "Pending", "MapInvalid")["message"], "MapInvalid")
        assert workloads.pods() == []

        workloads.place("well", pod_template(resources=limits), gpuRequirements={"gpuCount": 2})
        variables = workloads.wait_pod("well-0")["spec"]["containers"][0]["env"]
        assert variables[0]["valueFrom"]["fieldRef"]["fieldPath"].endswith("['agentaflow.gpu/assigned-devices']")
    finally:
        registered.unregister()
        registered.command.process.stop()


@pytest.mark.promise("order-6")
def test_an_unavailable_webhook_is_reported_as_scheduler_error(
    controller: Command, kinds: ControlPlane, workloads: Workloads, tmp_path: Path
) -> None:
    """The reason is SchedulerError. The pod is created when the API server does not call the webhook any more."""
    registered = RegisteredWebhook(kinds, tmp_path)
    registered.command.kill()
    try:
        workloads.place("train")
        reported = workloads.wait("train", "Pending", "SchedulerError", seconds=20)
        assert "failed calling webhook" in reported["message"]
    finally:
        registered.unregister()
    workloads.wait_pod("train-0")
