"""GPUWorkloads from creation to completion: their pods and their status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.barrier import settle
from tests.integration.command import start_alone
from tests.integration.webhook_process import RegisteredWebhook
from tests.integration.workloads import example, waits
from tests.messages import text_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workloads import Workloads
    from tests.objects import Object

HELD = "GpuHeld: GPU 0 of node1 is held by default/train-0; wait"


@pytest.mark.promise("order-3", "order-4", "order-10")
def test_a_workload_is_run_from_creation_to_completion(controller: Command, workloads: Workloads) -> None:
    """One pod is created as requested. The status follows the pod's condition and phase, and is written once a step."""
    body = example()
    body["metadata"]["namespace"] = workloads.namespace.name
    made = workloads.kube.create(workloads.path, body)
    pod = workloads.wait_pod("my-training-job-0")

    assert pod["metadata"]["annotations"] == {
        "agentaflow.gpu/count": "1",
        "agentaflow.gpu/memory": "8192",
        "agentaflow.gpu/priority": "5",
        "agentaflow.gpu/scheduling-strategy": "least_utilized",
    }
    assert pod["metadata"]["labels"] == {"agentaflow.gpu/workload": "my-training-job"}
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "agentaflow.io/v1",
            "kind": "GPUWorkload",
            "name": "my-training-job",
            "uid": made["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert (pod["spec"]["schedulerName"], pod["spec"]["restartPolicy"]) == ("gpu-scheduler", "Never")

    waiting = workloads.wait("my-training-job", "Pending")
    assert (waiting["attempts"], waiting["podName"], waiting["observedGeneration"]) == (1, "my-training-job-0", 1)
    workloads.set_status("my-training-job-0", conditions=waits(HELD))
    assert workloads.wait("my-training-job", "Pending", "GpuHeld")["message"] == HELD

    workloads.namespace.node("node1")
    workloads.bind("my-training-job-0", "node1", "0")
    placed = workloads.wait("my-training-job", "Scheduled")
    assert (placed["node"], placed["devices"], placed["uuids"]) == ("node1", ["0"], ["GPU-a"])

    workloads.set_status("my-training-job-0", phase="Running", startTime="2026-11-21T12:00:00Z")
    assert workloads.wait("my-training-job", "Running")["startTime"] == "2026-11-21T12:00:00Z"
    workloads.set_status("my-training-job-0", phase="Succeeded", containerStatuses=ended(0))
    done = workloads.wait("my-training-job", "Succeeded")
    assert done["completionTime"] == "2026-11-21T12:30:00Z"
    conditions = {each["type"]: (each["status"], each["reason"]) for each in done["conditions"]}
    assert conditions == {"Scheduled": ("True", "Scheduled"), "Completed": ("True", "Succeeded")}

    # A finished pod may be deleted. The workload's status stays, and no pod is created again.
    workloads.namespace.delete("my-training-job-0")
    settle(workloads.namespace, controller)
    assert (workloads.pods(), workloads.status("my-training-job")["phase"]) == ([], "Succeeded")
    reasons = [event["reason"] for event in workloads.events("my-training-job")]
    assert reasons == ["SuccessfulCreate", "FailedScheduling", "Scheduled", "Started", "Completed"]
    # One write each for pending, held, scheduled, running and succeeded.
    assert workloads.writes("my-training-job", made["metadata"]["resourceVersion"]) == 5


def ended(code: int, **more: str) -> list[Object]:
    """Return the container status that a kubelet writes when the container has ended."""
    terminated = {"exitCode": code, "finishedAt": "2026-11-21T12:30:00Z", **more}
    return [
        {
            "name": "main",
            "image": "none",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": terminated},
        }
    ]


@pytest.mark.promise("order-5")
def test_a_failed_pod_is_followed_by_as_many_as_are_allowed(controller: Command, workloads: Workloads) -> None:
    """Each pod has its own number and follows after a pause. Then the workload fails with the last pod's reason."""
    workloads.namespace.node("node1")
    workloads.place("train", retryPolicy={"limit": 1})
    for number in (0, 1):
        workloads.wait_pod(f"train-{number}")
        workloads.bind(f"train-{number}", "node1", "0")
        workloads.set_status(f"train-{number}", phase="Failed", containerStatuses=ended(3, reason="Error"))
    reported = workloads.wait("train", "Failed", "Error")

    ended_by = text_of("a container ended with an error", container="main", code=3)
    assert reported["message"].startswith(f"Error: {ended_by}; see kubectl logs -n orders-")
    assert (reported["attempts"], reported["podName"], reported["node"]) == (2, "train-1", "node1")
    assert workloads.pods() == ["train-0", "train-1"]

    # A limit that is raised later allows another pod.
    workloads.kube.patch(f"{workloads.path}/train", {"spec": {"retryPolicy": {"limit": 2}}})
    workloads.wait_pod("train-2")
    assert workloads.wait("train", "Pending")["attempts"] == 3


@pytest.mark.promise("order-7")
@pytest.mark.parametrize("way", ["Foreground", "Background"])
def test_a_deleted_workload_gets_no_more_pods(controller: Command, workloads: Workloads, way: str) -> None:
    """With both propagation policies no pod is created again. Deleting the pods is left to the garbage collector."""
    made = workloads.place("train")
    pod = workloads.wait_pod("train-0")
    workloads.wait("train", "Pending")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["blockOwnerDeletion"]) == (made["metadata"]["uid"], True)

    workloads.kube.call("DELETE", f"{workloads.path}/train", {"propagationPolicy": way})
    found = workloads.kube.get(f"{workloads.path}/train")
    assert (found is None) == (way == "Background")
    workloads.namespace.delete("train-0")
    settle(workloads.namespace, controller)
    assert workloads.pods() == []

    if found is not None:
        workloads.kube.patch(f"{workloads.path}/train", {"metadata": {"finalizers": None}})
    # A new GPUWorkload of the same name is another workload.
    workloads.place("train")
    workloads.wait_pod("train-0")


def test_a_long_name_is_accepted(controller: Command, workloads: Workloads) -> None:
    """An object's name may be longer than a pod's name and a label may be. The controller shortens these."""
    name = "a" * 100 + "." + "b" * 100
    workloads.place(name)
    (pod,) = eventually("its pod is there", workloads.pods)

    assert len(pod) <= 63
    assert workloads.wait(name, "Pending")["podName"] == pod


@pytest.mark.promise("order-4")
def test_the_scheduler_gives_a_workload_its_gpu(
    controller: Command, kinds: ControlPlane, workloads: Workloads, tmp_path: Path
) -> None:
    """Webhook, controller and scheduler run together. A workload that fits gets devices, a larger one the reason."""
    registered = RegisteredWebhook(kinds, tmp_path)
    scheduler = start_alone(kinds, tmp_path, "scheduler")
    try:
        workloads.wait_asked()
        scheduler.wait_ready()
        devices = [{"index": number, "memoryTotalMiB": 40960, "health": "healthy"} for number in range(2)]
        workloads.namespace.node("node1", annotations={"agentaflow.gpu/devices": json.dumps(devices)})
        workloads.place("large", gpuMemoryRequired=50000)
        workloads.place("pair", gpuMemoryRequired=8192, gpuRequirements={"gpuCount": 2})

        assert workloads.wait("pair", "Scheduled", seconds=20)["devices"] == ["0", "1"]
        reported = workloads.wait("large", "Pending", "InsufficientGpuMemory")
        assert reported["message"].startswith("InsufficientGpuMemory: ")
    finally:
        scheduler.process.stop()
        registered.unregister()
        registered.command.process.stop()
