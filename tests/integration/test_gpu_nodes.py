"""GPUNodes: monitor and controller each write their part of the status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.integration.barrier import settle
from tests.integration.workloads import API
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workloads import Workloads
    from tests.objects import Object

NODE = f"{API}/gpunodes/node1"
DEVICES = [{"index": 0, "uuid": "GPU-a", "model": "A100", "memoryTotalMiB": 40960}, {"index": 1}]


@pytest.fixture
def monitored(kinds: ControlPlane, workloads: Workloads) -> Iterator[Workloads]:
    """Node1 with a GPUNode as its monitor writes it."""
    workloads.namespace.node("node1")
    monitor(kinds, "", {"spec": {"nodeName": "node1"}})
    monitor(kinds, "/status", {"status": {"gpus": 2, "devices": DEVICES}})
    yield workloads
    kinds.kube.delete(NODE)


def monitor(kinds: ControlPlane, part: str, body: Object) -> None:
    """Apply this part of the GPUNode, as the monitor does."""
    whole = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "metadata": {"name": "node1"}, **body}
    status, answer = kinds.kube.raw(
        "PATCH",
        f"{NODE}{part}?fieldManager=gpu-scheduler-monitor&force=true",
        json.dumps(whole).encode(),
        "application/apply-patch+yaml",
    )
    assert status in {200, 201}, answer


def status(workloads: Workloads) -> Object:
    """Return the GPUNode's status."""
    found = workloads.kube.get(NODE)
    assert found is not None
    reported: Object = found["status"]
    return reported


def wait(workloads: Workloads, allocated: int, ready: str = "True") -> Object:
    """Wait until the status has this number of allocated devices and this Ready condition. Return the status."""

    def reported() -> Object | None:
        found = status(workloads)
        conditions = {each["type"]: each["status"] for each in found.get("conditions", [])}
        return found if (found.get("allocated"), conditions.get("Ready")) == (allocated, ready) else None

    return eventually(f"{allocated} taken, ready {ready}", reported)


@pytest.mark.promise("order-9")
def test_the_holder_of_each_device_is_reported(controller: Command, kinds: ControlPlane, monitored: Workloads) -> None:
    """Pods of GPUWorkloads and pods with a map are listed until they end. The monitor's part is unchanged."""
    wait(monitored, 0)
    monitored.place("train", gpuMemoryRequired=8192)
    monitored.wait_pod("train-0")
    monitored.bind("train-0", "node1", "0")
    monitored.namespace.pod("mapped-0", "0=node1:1\n", "1")
    monitored.bind("mapped-0", "node1", "1")

    space = monitored.namespace.name
    reported = wait(monitored, 2)
    assert reported["allocations"] == [
        {"pod": f"{space}/mapped-0", "device": "1"},
        {"pod": f"{space}/train-0", "device": "0", "memoryMiB": 8192},
    ]
    monitor(kinds, "/status", {"status": {"gpus": 2, "devices": [DEVICES[0]]}})
    reported = status(monitored)
    assert (reported["devices"], reported["allocated"], len(reported["allocations"])) == ([DEVICES[0]], 2, 2)

    monitored.namespace.finish("train-0")
    assert wait(monitored, 1)["allocations"] == [{"pod": f"{space}/mapped-0", "device": "1"}]
    monitored.namespace.delete("mapped-0")
    assert wait(monitored, 0)["allocations"] == []


@pytest.mark.promise("order-9")
def test_nothing_is_written_where_nothing_changed(controller: Command, monitored: Workloads) -> None:
    """A change of another annotation of the node, like a heartbeat, causes no write."""
    wait(monitored, 0)
    before = monitored.kube.get(NODE)
    assert before is not None
    for number in range(3):
        monitored.namespace.patch_node("node1", {"metadata": {"annotations": {"beat": str(number)}}})
    settle(monitored.namespace, controller)
    after = monitored.kube.get(NODE)

    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
