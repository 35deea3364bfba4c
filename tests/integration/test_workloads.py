"""GPUWorkloads from order to end: one pod, and a status that says what is the case."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.command import start_alone
from tests.integration.served import Served
from tests.integration.workshop import example, waits
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders
    from tests.objects import Object

HELD = "GpuHeld: GPU 0 of node1 is held by default/train-0; wait"


@pytest.mark.promise("order-3", "order-4")
def test_a_workload_from_order_to_end(controller: Command, orders: Orders) -> None:
    """One pod as it was asked for; its scheduler's and its kubelet's words show in the status, each written once."""
    body = example()
    body["metadata"]["namespace"] = orders.bench.namespace
    made = orders.kube.create(orders.path, body)
    pod = orders.wait_pod("my-training-job-0")

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

    waiting = orders.wait("my-training-job", "Pending")
    assert (waiting["attempts"], waiting["podName"], waiting["observedGeneration"]) == (1, "my-training-job-0", 1)
    orders.say("my-training-job-0", conditions=waits(HELD))
    assert orders.wait("my-training-job", "Pending", "GpuHeld")["message"] == HELD

    orders.bench.node("node1")
    orders.bind("my-training-job-0", "node1", "0")
    placed = orders.wait("my-training-job", "Scheduled")
    assert (placed["node"], placed["devices"], placed["uuids"]) == ("node1", ["0"], ["GPU-a"])

    orders.say("my-training-job-0", phase="Running", startTime="2026-11-21T12:00:00Z")
    assert orders.wait("my-training-job", "Running")["startTime"] == "2026-11-21T12:00:00Z"
    orders.say("my-training-job-0", phase="Succeeded", containerStatuses=ended(0))
    done = orders.wait("my-training-job", "Succeeded")
    assert done["completionTime"] == "2026-11-21T12:30:00Z"
    conditions = {each["type"]: (each["status"], each["reason"]) for each in done["conditions"]}
    assert conditions == {"Scheduled": ("True", "Scheduled"), "Completed": ("True", "Succeeded")}

    # A kubelet's pod object may go; the workload's word stays, and nothing is made again.
    orders.bench.delete("my-training-job-0")
    time.sleep(0.5)
    assert (orders.pods(), orders.status("my-training-job")["phase"]) == ([], "Succeeded")
    # Pending, held, scheduled, running, succeeded: no word twice.
    assert orders.writes("my-training-job", made["metadata"]["resourceVersion"]) == 5


def ended(code: int, **more: str) -> list[Object]:
    """How a kubelet tells that the container has ended."""
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
def test_a_failed_pod_is_followed_by_as_many_as_are_allowed(controller: Command, orders: Orders) -> None:
    """Each under its own number, after a pause; then the workload has failed, for the last pod's reason."""
    orders.bench.node("node1")
    orders.place("train", retryPolicy={"limit": 1})
    for number in (0, 1):
        orders.wait_pod(f"train-{number}")
        orders.bind(f"train-{number}", "node1", "0")
        orders.say(f"train-{number}", phase="Failed", containerStatuses=ended(3, reason="Error"))
    told = orders.wait("train", "Failed", "Error")

    assert told["message"].startswith("Error: container main ended with exit code 3; see kubectl logs -n orders-")
    assert (told["attempts"], told["podName"], told["node"]) == (2, "train-1", "node1")
    assert orders.pods() == ["train-0", "train-1"]

    # Another try that is granted later is made.
    orders.kube.patch(f"{orders.path}/train", {"spec": {"retryPolicy": {"limit": 2}}})
    orders.wait_pod("train-2")
    assert orders.wait("train", "Pending")["attempts"] == 3


@pytest.mark.promise("order-5")
def test_a_deleted_pod_is_made_again(controller: Command, orders: Orders) -> None:
    """Under the same name: a drain takes no try away."""
    orders.place("train")
    before = orders.wait_pod("train-0")["metadata"]["uid"]
    orders.bench.delete("train-0")

    def again() -> bool:
        pod = orders.kube.get(f"{orders.bench.pods}/train-0")
        return pod is not None and pod["metadata"]["uid"] != before

    eventually("it is there again", again)
    eventually("it is told", lambda: orders.wait("train", "Pending")["attempts"] == 1)


@pytest.mark.promise("order-7")
@pytest.mark.parametrize("way", ["Foreground", "Background"])
def test_a_deleted_workload_gets_no_more_pods(controller: Command, orders: Orders, way: str) -> None:
    """In either order of going; that its pods go with it is the garbage collector's work, by their owner references."""
    made = orders.place("train")
    pod = orders.wait_pod("train-0")
    orders.wait("train", "Pending")
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["blockOwnerDeletion"]) == (made["metadata"]["uid"], True)

    orders.kube.call("DELETE", f"{orders.path}/train", {"propagationPolicy": way})
    found = orders.kube.get(f"{orders.path}/train")
    assert (found is None) == (way == "Background")
    orders.bench.delete("train-0")
    time.sleep(1.5)
    assert orders.pods() == []

    if found is not None:
        orders.kube.patch(f"{orders.path}/train", {"metadata": {"finalizers": None}})
    # One of the same name is another workload.
    orders.place("train")
    orders.wait_pod("train-0")


def test_a_long_name_will_do(controller: Command, orders: Orders) -> None:
    """As long as Kubernetes lets an object's name be; its pod's name and its label are shorter."""
    name = "a" * 100 + "." + "b" * 100
    orders.place(name)
    (pod,) = eventually("its pod is there", orders.pods)

    assert len(pod) <= 63
    assert orders.wait(name, "Pending")["podName"] == pod


@pytest.mark.promise("order-4")
def test_the_scheduler_gives_a_workload_its_gpu(
    controller: Command, kinds: ControlPlane, orders: Orders, tmp_path: Path
) -> None:
    """All of us together: one that fits has its cards, one that is too large is told so by its reason."""
    served = Served(kinds, tmp_path)
    scheduler = start_alone(kinds, tmp_path, "scheduler")
    try:
        orders.wait_asked()
        scheduler.wait_ready()
        cards = [{"index": number, "memoryTotalMiB": 40960, "health": "healthy"} for number in range(2)]
        orders.bench.node("node1", annotations={"agentaflow.gpu/devices": json.dumps(cards)})
        orders.place("large", gpuMemoryRequired=50000)
        orders.place("pair", gpuMemoryRequired=8192, gpuRequirements={"gpuCount": 2})

        assert orders.wait("pair", "Scheduled", seconds=20)["devices"] == ["0", "1"]
        told = orders.wait("large", "Pending", "InsufficientGpuMemory")
        assert told["message"].startswith("InsufficientGpuMemory: ")
    finally:
        scheduler.process.stop()
        served.unregister()
        served.command.process.stop()
