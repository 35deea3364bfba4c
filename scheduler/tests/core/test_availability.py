from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.ledger.availability import NodeDevices, node_devices
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest
from gpu_scheduler.core.refs import PodRef
from tests.core.build import KEEP, PCI, container, ledger, node, nodes, running, visible

UUID = "GPU-00000000-0000-0000-0000-00000000000"
FOUR = Inventory(tuple(Device(index, f"{UUID}{index}", memory=40960) for index in range(4)))
PLUGIN: dict[str, Any] = {"inventory": counted(4), "advertised": 4, "allocatable": {names.GPU_RESOURCE: 4}}


def rack(node: Node, *pods: Pod, residents: int = 0) -> NodeDevices:
    """The node's cards, with these pods on it, and a stranger that has so many cards of the device plugin."""
    known = nodes(node)
    held = ledger(*pods, known=known)
    if residents:
        resource_request = ResourceRequest({names.GPU_RESOURCE: residents})
        held.apply_foreign_pod(ForeignPod(PodRef("other", "stranger", "1"), node.name, resource_request))
    return next(node_devices(known, held))


def holder(devices: str, name: str = "a") -> Pod:
    """A pod that holds these devices of node1."""
    return running(name, "node1", None, annotations=KEEP, containers=(container((visible(devices), PCI)),))


AVAILABLE = {
    "all cards of a node are free at first": (node(inventory=FOUR), (), 4),
    "a card that somebody holds is not": (node(inventory=FOUR), (holder("1"),), 3),
    "whatever name it is held by": (node(inventory=FOUR), (holder(f"{UUID}1"), holder("1", "b")), 3),
    "a card that is unhealthy is not": (
        node(inventory=FOUR, readings={2: DeviceReading(health=Health.UNHEALTHY)}),
        (),
        3,
    ),
    "a card that is degraded still is": (
        node(inventory=FOUR, readings={2: DeviceReading(health=Health.DEGRADED)}),
        (),
        4,
    ),
    "a node that is not Ready has none": (node(inventory=FOUR, ready=False), (), 0),
    "a node that is cordoned has none": (node(inventory=FOUR, unschedulable=True), (), 0),
    "a node whose monitor is silent has none": (node(inventory=FOUR, stale=True), (), 0),
    "a node that nobody has counted has none that is known": (node(), (), 0),
}


@pytest.mark.parametrize(("node", "pods", "available"), AVAILABLE.values(), ids=AVAILABLE)
def test_available_cards(node: Node, pods: tuple[Pod, ...], available: int) -> None:
    """What the next pod may have."""
    assert rack(node, *pods).available == available


PLUGINS = {
    "a device plugin's cards are free by number": (node(**PLUGIN), 0, (0, 4)),
    "and held by number, whoever has them": (node(**PLUGIN), 3, (3, 1)),
    "one that hands out fewer than there are has fewer": (
        node(**{**PLUGIN, "allocatable": {names.GPU_RESOURCE: 2}}),
        1,
        (1, 1),
    ),
    "one that restarts has none": (node(**{**PLUGIN, "allocatable": {}}), 1, (1, 0)),
}


@pytest.mark.parametrize(("node", "residents", "numbers"), PLUGINS.values(), ids=PLUGINS)
def test_cards_of_a_device_plugin(node: Node, residents: int, numbers: tuple[int, int]) -> None:
    """Held and available."""
    found = rack(node, residents=residents)
    assert (found.held, found.available) == numbers


def test_a_pod_with_a_limit_names_no_card_of_a_plugin() -> None:
    """What it sees counts from its container."""
    annotations = {names.COUNT: "1", names.ASSIGNED_DEVICES: "0"}
    resource_request = ResourceRequest({names.GPU_RESOURCE: 1})
    pod = running(
        "a", "node1", None, annotations=annotations, gpu_limits=(("main", 1),), resource_request=resource_request
    )

    found = rack(node(**PLUGIN), pod)

    assert (found.held, found.available) == (1, 3)
    assert all(not seat.holders for seat in found.seats)


def test_seats_name_their_holders_in_order() -> None:
    """Two pods on one card, and a device of neither kind."""
    found = rack(node(inventory=FOUR), holder("1", "b"), holder("1,7", "a"))

    assert [(seat.name, [str(each.ref) for each in seat.holders]) for seat in found.seats if seat.holders] == [
        ("1", ["default/a", "default/b"]),
        ("7", ["default/a"]),
    ]
    assert (found.total, found.held) == (4, 2)


def test_where_no_inventory_tells_only_what_is_held_is_known() -> None:
    """Maps work without a monitor, so their cards show without one."""
    found = rack(node(), holder("10,2"))

    assert (found.total, found.held) == (None, 2)
    assert [seat.name for seat in found.seats] == ["2", "10"]
    assert (found.monitored, found.utilization, found.health) == (False, None, None)


READ = {
    "a node's utilization is the mean of its cards'": (
        {0: DeviceReading(utilization=90), 1: DeviceReading(utilization=5)},
        24,
        "healthy",
    ),
    "a node is as well as its worst card": (
        {0: DeviceReading(health=Health.DEGRADED), 1: DeviceReading(health=Health.UNHEALTHY)},
        0,
        "unhealthy",
    ),
    "one that wears is told": ({3: DeviceReading(health=Health.DEGRADED)}, 0, "degraded"),
    "all is well where nothing else is read": ({}, 0, "healthy"),
}


@pytest.mark.parametrize(("readings", "utilization", "health"), READ.values(), ids=READ)
def test_what_is_read_of_a_node(readings: dict[int, DeviceReading], utilization: int, health: str) -> None:
    """Of a node with a monitor."""
    found = rack(node(inventory=FOUR, readings=readings))
    assert (found.utilization, found.health) == (utilization, health)


def test_nodes_come_in_the_order_in_which_people_count() -> None:
    """Numbers in names are numbers."""
    many = nodes(*(replace(node(), name=name) for name in ("node10", "node2", "a", "node2b", "10.0.0.9", "10.0.0.10")))

    found = [each.node.name for each in node_devices(many, ledger(known=many))]

    assert found == ["10.0.0.9", "10.0.0.10", "a", "node2", "node2b", "node10"]
