from dataclasses import replace
from typing import Any

from gpu_scheduler.controller.gpu_node_status import Allocation, GpuNode, derive_allocations
from gpu_scheduler.controller.gpu_workload import StatusCondition
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.refs import PodRef
from unit_tests.core.build import node

NOW, EARLIER = "2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z"
UUID, MIG = "GPU-8c1b6f2e-1f2a-4f8e-9a55-6d1c2b7e9f10", "MIG-8c1b6f2e-1f2a-4f8e-9a55-6d1c2b7e9f10"
GPU_NODE = GpuNode("node1", 1)


def holder(name: str, *devices: str, **others: Any) -> Hold:
    made = Hold(PodRef("default", name, name), "node1", devices, (), 0, None, None, False, None, False)
    return replace(made, **others)


def test_allocations_are_sorted_by_pod() -> None:
    """One entry for each device of each pod, with its memory if the pod requests memory."""
    found = derive_allocations(GPU_NODE, node("node1"), [holder("b", "2"), holder("a", "1", "0", memory=8192)], NOW)

    assert found.allocated == 3
    assert found.allocations == (
        Allocation("default/a", "1", memory=8192),
        Allocation("default/a", "0", memory=8192),
        Allocation("default/b", "2"),
    )


def test_a_shared_device_is_counted_once_under_all_its_names() -> None:
    """Index, UUID and MIG device of one device. A name that the inventory does not have is its own device."""
    known = node("node1", inventory=Inventory((Device(0, UUID, (MIG,)), Device(1))))
    holders = [holder("a", "0"), holder("b", UUID), holder("c", MIG), holder("d", "7")]

    assert derive_allocations(GPU_NODE, known, holders, NOW).allocated == 2
    assert derive_allocations(GPU_NODE, None, holders, NOW).allocated == 4


def test_devices_of_a_device_plugin_have_no_names() -> None:
    """The indices in such a pod count within its container."""
    plugin = node("node1", advertised=4)
    holders = [holder("a", "0", "1", limit=2), holder("b")]

    found = derive_allocations(GPU_NODE, plugin, holders, NOW)
    assert (found.allocated, found.allocations) == (2, (Allocation("default/a", unnamed=2),))
    # On a node without a device plugin a limit is only a count.
    assert derive_allocations(GPU_NODE, node("node1"), holders, NOW).allocations[0] == Allocation("default/a", "0")


def test_condition_ready_follows_the_node() -> None:
    """The condition keeps its time while its status does not change."""
    ready = derive_allocations(GpuNode("node1", 3), node("node1"), [], EARLIER)
    assert ready.conditions == (StatusCondition("Ready", "True", "NodeReady", "the node is ready", 3, EARLIER),)

    known = GpuNode("node1", 3, ready)
    assert derive_allocations(known, node("node1"), [], NOW) == ready
    (down,) = derive_allocations(known, node("node1", ready=False), [], NOW).conditions
    assert (down.status, down.reason, down.since) == ("False", "NodeNotReady", NOW)
    (gone,) = derive_allocations(known, None, [], NOW).conditions
    assert (gone.status, gone.reason) == ("False", "NodeNotFound")
