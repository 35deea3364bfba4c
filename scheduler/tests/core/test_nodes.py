from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.constraints import Taint
from gpu_scheduler.core.reasons import Reason, Unschedulable
from tests.core.build import nodes


def exists(*names: str) -> frozenset[NodeChanged]:
    return frozenset(NodeChanged(name, Aspect.IDENTITY) for name in names)


def only(aspect: Aspect) -> frozenset[NodeChanged]:
    return frozenset({NodeChanged("a", aspect)})


def test_a_heartbeat_wakes_nobody() -> None:
    """A node object that changed in nothing a placement asks about is no change."""
    assert frozenset() == nodes(Node("a")).apply(Node("a"))


TAINT = Taint("gpu", "", "NoSchedule")
OLD = Node("a", alias="old")
CHANGES = {
    "a new node": (Node("b"), exists("b")),
    "a new node with an alias": (Node("b", alias="gpus"), exists("b", "gpus")),
    "a node that is Ready no more": (replace(OLD, ready=False), only(Aspect.READY)),
    "a cordoned node": (replace(OLD, unschedulable=True), only(Aspect.UNSCHEDULABLE)),
    "a taint": (replace(OLD, taints=(TAINT,)), only(Aspect.TAINTS)),
    "a label": (replace(OLD, labels={"zone": "b"}), only(Aspect.LABELS)),
    "more room": (replace(OLD, allocatable={"pods": 250}), only(Aspect.ALLOCATABLE)),
    "an inventory": (replace(OLD, inventory=counted(4)), only(Aspect.INVENTORY)),
    "a device plugin": (replace(OLD, advertised=4), only(Aspect.INVENTORY)),
    "a card that is not well": (replace(OLD, readings={0: DeviceReading(health=Health.DEGRADED)}), only(Aspect.HEALTH)),
    "a monitor that fell silent": (replace(OLD, stale=True), only(Aspect.HEALTH)),
    "a card in use": (replace(OLD, readings={0: DeviceReading(used=512)}), only(Aspect.LOAD)),
    "a card that works": (replace(OLD, readings={0: DeviceReading(utilization=7)}), only(Aspect.LOAD)),
    "an alias that changes": (replace(OLD, alias="new"), exists("a", "old", "new")),
    "an alias that goes": (Node("a"), exists("a", "old")),
}


@pytest.mark.parametrize(("changed", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_wakes_whom_it_may_help(changed: Node, expected: frozenset[NodeChanged]) -> None:
    """Who waits for another aspect of the node is left alone."""
    assert expected == nodes(OLD).apply(changed)


HEALED = (DeviceReading(used=9, health=Health.UNHEALTHY), DeviceReading(used=9, health=Health.HEALTHY))


def test_a_card_that_heals_wakes_who_waits_for_that() -> None:
    """And nobody else: what it has in use is the same."""
    ill, well = (replace(OLD, readings={0: reading}) for reading in HEALED)

    assert only(Aspect.HEALTH) == nodes(ill).apply(well)


def test_the_same_readings_are_no_change() -> None:
    """A monitor that writes again what it wrote before wakes nobody."""
    assert frozenset() == nodes(replace(OLD, readings={0: DeviceReading(9, 9)})).apply(
        replace(OLD, readings={0: DeviceReading(9, 9)})
    )


def test_nodes_with_a_device_plugin_are_counted() -> None:
    """A limit of cards means something only where somebody hands cards out."""
    known = nodes(Node("a", advertised=4), Node("b", advertised=2), Node("c"))
    known.apply(Node("a"))

    assert known.advertising == 1
    known.forget("b")
    assert known.advertising == 0


def test_a_node_that_goes_wakes_too() -> None:
    """Its alias may be unambiguous from now on."""
    known = nodes(Node("a", alias="gpus"), Node("b", alias="gpus"))

    assert exists("a", "gpus") == known.forget("a")
    assert Node("b", alias="gpus") == known.resolve("gpus")


def test_an_unknown_node_that_goes_is_no_news() -> None:
    """A delete may be seen twice."""
    assert frozenset() == Nodes().forget("a")


def test_an_alias_that_moved_is_followed() -> None:
    """The label counts as it is now."""
    known = nodes(Node("a", alias="gpus"), Node("b"))
    known.apply(Node("a"))
    known.apply(Node("b", alias="gpus"))

    assert Node("b", alias="gpus") == known.resolve("gpus")


def test_an_alias_of_a_node_that_is_gone_is_unknown() -> None:
    """Nothing is remembered of nodes that are gone."""
    known = nodes(Node("a", alias="gpus"))
    known.forget("a")
    answer = known.resolve("gpus")

    assert isinstance(answer, Unschedulable)
    assert answer.reason is Reason.NODE_NOT_FOUND
