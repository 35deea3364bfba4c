from dataclasses import replace
from typing import Any

from gpu_scheduler.controller.gpu_node_status import Allocation, GpuNode, derive_allocations
from gpu_scheduler.controller.gpu_workload import StatusCondition
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.refs import PodRef
from tests.core.build import node

NOW, EARLIER = "2026-11-21T12:00:00Z", "2026-11-21T11:00:00Z"
UUID, SLICE = "GPU-8c1b6f2e-1f2a-4f8e-9a55-6d1c2b7e9f10", "MIG-8c1b6f2e-1f2a-4f8e-9a55-6d1c2b7e9f10"
TOLD = GpuNode("node1", 1)


def holder(name: str, *devices: str, **others: Any) -> Hold:
    """A pod that has these devices of node1."""
    made = Hold(PodRef("default", name, name), "node1", devices, (), 0, None, None, False, None, False)
    return replace(made, **others)


def test_who_has_what_in_order_of_name() -> None:
    """A line for each device of each pod, with its memory where the pod says so."""
    found = derive_allocations(TOLD, node("node1"), [holder("b", "2"), holder("a", "1", "0", memory=8192)], NOW)

    assert found.allocated == 3
    assert found.allocations == (
        Allocation("default/a", "1", memory=8192),
        Allocation("default/a", "0", memory=8192),
        Allocation("default/b", "2"),
    )


def test_a_card_is_counted_once_whoever_shares_it_and_whatever_it_is_called() -> None:
    """Index, UUID and slice of one card; a name that the inventory lacks is a card of its own."""
    known = node("node1", inventory=Inventory((Device(0, UUID, (SLICE,)), Device(1))))
    holders = [holder("a", "0"), holder("b", UUID), holder("c", SLICE), holder("d", "7")]

    assert derive_allocations(TOLD, known, holders, NOW).allocated == 2
    assert derive_allocations(TOLD, None, holders, NOW).allocated == 4


def test_cards_that_a_device_plugin_chose_have_no_names() -> None:
    """The names in such a pod count from its container."""
    plugin = node("node1", advertised=4)
    holders = [holder("a", "0", "1", limit=2), holder("b")]

    found = derive_allocations(TOLD, plugin, holders, NOW)
    assert (found.allocated, found.allocations) == (2, (Allocation("default/a", unnamed=2),))
    # Where no plugin answers, a limit is only a count.
    assert derive_allocations(TOLD, node("node1"), holders, NOW).allocations[0] == Allocation("default/a", "0")


def test_ready_is_what_the_node_is() -> None:
    """And since when: a condition keeps its time while its status stands."""
    ready = derive_allocations(GpuNode("node1", 3), node("node1"), [], EARLIER)
    assert ready.conditions == (StatusCondition("Ready", "True", "NodeReady", "the node is ready", 3, EARLIER),)

    told = GpuNode("node1", 3, ready)
    assert derive_allocations(told, node("node1"), [], NOW) == ready
    (down,) = derive_allocations(told, node("node1", ready=False), [], NOW).conditions
    assert (down.status, down.reason, down.since) == ("False", "NodeNotReady", NOW)
    (gone,) = derive_allocations(told, None, [], NOW).conditions
    assert (gone.status, gone.reason) == ("False", "NodeNotFound")
