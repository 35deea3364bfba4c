"""GPUNodes: the monitor's part and the controller's part of one status, each by its own hand."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.integration.workshop import API
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command
    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders
    from tests.objects import Object

NODE = f"{API}/gpunodes/node1"
DEVICES = [{"index": 0, "uuid": "GPU-a", "model": "A100", "memoryTotalMiB": 40960}, {"index": 1}]


@pytest.fixture
def monitored(kinds: ControlPlane, orders: Orders) -> Iterator[Orders]:
    """Node1 with a GPUNode that its monitor has just written."""
    orders.bench.node("node1")
    monitor(kinds, "", {"spec": {"nodeName": "node1"}})
    monitor(kinds, "/status", {"status": {"gpus": 2, "devices": DEVICES}})
    yield orders
    kinds.kube.delete(NODE)


def monitor(kinds: ControlPlane, part: str, body: Object) -> None:
    """Write as the monitor does."""
    whole = {"apiVersion": "agentaflow.io/v1", "kind": "GPUNode", "metadata": {"name": "node1"}, **body}
    status, answer = kinds.kube.raw(
        "PATCH",
        f"{NODE}{part}?fieldManager=gpu-scheduler-monitor&force=true",
        json.dumps(whole).encode(),
        "application/apply-patch+yaml",
    )
    assert status in {200, 201}, answer


def status(orders: Orders) -> Object:
    """Give the GPUNode's status."""
    found = orders.kube.get(NODE)
    assert found is not None
    told: Object = found["status"]
    return told


def wait(orders: Orders, allocated: int, ready: str = "True") -> Object:
    """Wait until so many cards are told as taken, and the node as ready or not."""

    def told() -> Object | None:
        found = status(orders)
        conditions = {each["type"]: each["status"] for each in found.get("conditions", [])}
        return found if (found.get("allocated"), conditions.get("Ready")) == (allocated, ready) else None

    return eventually(f"{allocated} taken, ready {ready}", told)


@pytest.mark.promise("order-9")
def test_who_has_which_card_is_told(controller: Command, kinds: ControlPlane, monitored: Orders) -> None:
    """Workloads' pods and pods with a map; each goes from the list when it ends. The monitor's part stays its own."""
    wait(monitored, 0)
    monitored.place("train", gpuMemoryRequired=8192)
    monitored.wait_pod("train-0")
    monitored.bind("train-0", "node1", "0")
    monitored.bench.pod("mapped-0", "0=node1:1\n", "1")
    monitored.bind("mapped-0", "node1", "1")

    space = monitored.bench.namespace
    told = wait(monitored, 2)
    assert told["allocations"] == [
        {"pod": f"{space}/mapped-0", "device": "1"},
        {"pod": f"{space}/train-0", "device": "0", "memoryMiB": 8192},
    ]
    monitor(kinds, "/status", {"status": {"gpus": 2, "devices": [DEVICES[0]]}})
    told = status(monitored)
    assert (told["devices"], told["allocated"], len(told["allocations"])) == ([DEVICES[0]], 2, 2)

    monitored.bench.finish("train-0")
    assert wait(monitored, 1)["allocations"] == [{"pod": f"{space}/mapped-0", "device": "1"}]
    monitored.bench.delete("mapped-0")
    assert wait(monitored, 0)["allocations"] == []


@pytest.mark.promise("order-9")
def test_a_node_that_is_not_ready_is_told(controller: Command, monitored: Orders) -> None:
    """As soon as the node says so, and when it is ready again."""
    wait(monitored, 0)
    monitored.bench.set_ready("node1", ready=False)
    (condition,) = wait(monitored, 0, "False")["conditions"]
    assert (condition["reason"], condition["observedGeneration"]) == ("NodeNotReady", 1)
    monitored.bench.set_ready("node1", ready=True)
    wait(monitored, 0)


@pytest.mark.promise("order-9")
def test_nothing_is_written_where_nothing_changed(controller: Command, monitored: Orders) -> None:
    """A node that only says that it is alive costs no write."""
    wait(monitored, 0)
    before = monitored.kube.get(NODE)
    assert before is not None
    for number in range(3):
        monitored.bench.patch_node("node1", {"metadata": {"annotations": {"beat": str(number)}}})
    time.sleep(1)
    after = monitored.kube.get(NODE)

    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
