from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.ledger.availability import NodeDevices, node_devices
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod, Pod, ResourceRequest
from gpu_scheduler.core.refs import PodRef
from unit_tests.core.build import (
    KEEP,
    PCI,
    bound,
    claimed,
    container,
    device_id,
    isolated,
    ledger,
    limit,
    node,
    nodes,
    running,
    visible,
)

UUID = "GPU-00000000-0000-0000-0000-00000000000"
FOUR = Inventory(tuple(Device(index, f"{UUID}{index}", memory=40960) for index in range(4)))
PLUGIN: dict[str, Any] = {"inventory": counted(4), "advertised": 4, "allocatable": {names.GPU_RESOURCE: 4}}


def devices_of(node: Node, *pods: Pod, foreign_devices: int = 0) -> NodeDevices:
    """Return the node's devices, with these pods, and a foreign pod with so many devices of the device plugin."""
    known = nodes(node)
    held = ledger(*pods, known=known)
    if foreign_devices:
        resource_request = ResourceRequest({names.GPU_RESOURCE: foreign_devices})
        held.apply_foreign_pod(ForeignPod(PodRef("other", "foreign", "1"), node.name, resource_request))
    return next(node_devices(known, held))


def holder(devices: str, name: str = "a") -> Pod:
    """Return a pod that holds these devices of node1."""
    return running(name, "node1", None, annotations=KEEP, containers=(container((visible(devices), PCI)),))


AVAILABLE = {
    "all devices of a node without pods are available": (node(inventory=FOUR), (), 4),
    "a held device is not available": (node(inventory=FOUR), (holder("1"),), 3),
    "a device that is held by its UUID is not available": (
        node(inventory=FOUR),
        (holder(f"{UUID}1"), holder("1", "b")),
        3,
    ),
    "an unhealthy device is not available": (
        node(inventory=FOUR, readings={2: DeviceReading(health=Health.UNHEALTHY)}),
        (),
        3,
    ),
    "a degraded device is available": (
        node(inventory=FOUR, readings={2: DeviceReading(health=Health.DEGRADED)}),
        (),
        4,
    ),
    "a node that is not Ready has no available device": (node(inventory=FOUR, ready=False), (), 0),
    "a cordoned node has no available device": (node(inventory=FOUR, unschedulable=True), (), 0),
    "a node whose monitor is stale has no available device": (node(inventory=FOUR, stale=True), (), 0),
    "a node without an inventory has no available device": (node(), (), 0),
}


@pytest.mark.parametrize(("node", "pods", "available"), AVAILABLE.values(), ids=AVAILABLE)
def test_devices_are_available(node: Node, pods: tuple[Pod, ...], available: int) -> None:
    """A device is available when the next pod may hold it."""
    assert devices_of(node, *pods).available == available


PLUGINS = {
    "devices of a device plugin are available by number": (node(**PLUGIN), 0, (0, 4)),
    "devices of a device plugin are held by number, by any pod": (node(**PLUGIN), 3, (3, 1)),
    "a plugin that allocates fewer devices than it advertised has fewer available": (
        node(**{**PLUGIN, "allocatable": {names.GPU_RESOURCE: 2}}),
        1,
        (1, 1),
    ),
    "a plugin that restarts has no available device": (node(**{**PLUGIN, "allocatable": {}}), 1, (1, 0)),
}


@pytest.mark.parametrize(("node", "foreign_devices", "numbers"), PLUGINS.values(), ids=PLUGINS)
def test_devices_of_a_device_plugin_are_counted(node: Node, foreign_devices: int, numbers: tuple[int, int]) -> None:
    """`numbers` are the held and the available devices."""
    found = devices_of(node, foreign_devices=foreign_devices)
    assert (found.held, found.available) == numbers


def test_a_pod_with_a_limit_names_no_device_of_a_plugin() -> None:
    """The numbers that the pod sees count from 0 in its container."""
    annotations = {names.COUNT: "1", names.ASSIGNED_DEVICES: "0"}
    pod = running("a", "node1", None, annotations=annotations, **limit())

    found = devices_of(node(**PLUGIN), pod)

    assert (found.held, found.available) == (1, 3)
    assert all(not state.holders for state in found.devices)


def test_device_states_name_their_holders_in_order() -> None:
    """Two pods hold one device; one of them also holds a device that the inventory does not list."""
    found = devices_of(node(inventory=FOUR), holder("1", "b"), holder("1,7", "a"))

    assert [(state.name, [str(each.ref) for each in state.holders]) for state in found.devices if state.holders] == [
        ("1", ["default/a", "default/b"]),
        ("7", ["default/a"]),
    ]
    assert (found.total, found.held) == (4, 2)


A, B = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
TWO = Inventory((Device(0, A), Device(1, B)))
BY_CLAIM = bound(isolated("a-0", "0=node1:1"), Placement("node1", (B,), 0, (B,)))
OWN = AllocatedClaim("default", BY_CLAIM.resource_claims[0], "uid-of-own", (device_id("node1", B),))
UNPUBLISHED = replace(OWN, namespace="team", devices=(device_id("node1", "GPU-cccc"),))
CLAIMS: dict[str, tuple[Node, tuple[Pod, ...], AllocatedClaim, list[tuple[str, list[str]]]]] = {
    "of a pod and its claim the pod": (node(inventory=TWO), (BY_CLAIM,), OWN, [("1", ["default/a-0"])]),
    "a claim whose pods are gone": (node(inventory=TWO), (), OWN, [("1", [f"ResourceClaim default/{OWN.name}"])]),
    "a claim of others beside a pod": (
        node(inventory=TWO),
        (BY_CLAIM,),
        replace(OWN, namespace="team"),
        [("1", ["default/a-0", f"ResourceClaim team/{OWN.name}"])],
    ),
    "a claim of a device that no driver publishes, of a node without an inventory": (
        node(),
        (),
        UNPUBLISHED,
        [(UNPUBLISHED.devices[0].device, [f"ResourceClaim team/{OWN.name}"])],
    ),
}


@pytest.mark.promise("isolate-11")
@pytest.mark.parametrize(("there", "pods", "claim", "holders"), CLAIMS.values(), ids=CLAIMS)
def test_a_claim_holds_a_device_unless_its_pod_does(
    there: Node, pods: tuple[Pod, ...], claim: AllocatedClaim, holders: list[tuple[str, list[str]]]
) -> None:
    """A reader knows the pod, and asks who has a claim that no pod of ours has."""
    known = nodes(there)
    (found,) = node_devices(known, claimed(ledger(*pods, known=known), known, claim))

    shown = [(state.name, [each.holder for each in state.holders]) for state in found.devices if state.holders]
    assert shown == holders
    assert found.held == 1


def test_a_node_without_an_inventory_has_only_held_devices() -> None:
    """Maps work without a monitor, so their devices are listed without a monitor."""
    found = devices_of(node(), holder("10,2"))

    assert (found.total, found.held) == (None, 2)
    assert [state.name for state in found.devices] == ["2", "10"]
    assert (found.monitored, found.utilization, found.health) == (False, None, None)


READ = {
    "a node's utilization is the mean over its devices": (
        {0: DeviceReading(utilization=90), 1: DeviceReading(utilization=5)},
        24,
        "healthy",
    ),
    "a node's health is the health of its worst device": (
        {0: DeviceReading(health=Health.DEGRADED), 1: DeviceReading(health=Health.UNHEALTHY)},
        0,
        "unhealthy",
    ),
    "a degraded device makes the node degraded": ({3: DeviceReading(health=Health.DEGRADED)}, 0, "degraded"),
    "a node without readings is healthy": ({}, 0, "healthy"),
}


@pytest.mark.parametrize(("readings", "utilization", "health"), READ.values(), ids=READ)
def test_a_node_has_utilization_and_health(readings: dict[int, DeviceReading], utilization: int, health: str) -> None:
    """The node has a monitor."""
    found = devices_of(node(inventory=FOUR, readings=readings))
    assert (found.utilization, found.health) == (utilization, health)


def test_nodes_are_in_natural_order() -> None:
    """Numbers in names are ordered as numbers."""
    many = nodes(*(replace(node(), name=name) for name in ("node10", "node2", "a", "node2b", "10.0.0.9", "10.0.0.10")))

    found = [each.node.name for each in node_devices(many, ledger(known=many))]

    assert found == ["10.0.0.9", "10.0.0.10", "a", "node2", "node2b", "node10"]
