from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.constraints import Taint
from gpu_scheduler.core.reasons import Reason, Unschedulable
from unit_tests.core.build import nodes


def exists(*names: str) -> frozenset[NodeChanged]:
    return frozenset(NodeChanged(name, Aspect.IDENTITY) for name in names)


def only(aspect: Aspect) -> frozenset[NodeChanged]:
    return frozenset({NodeChanged("a", aspect)})


TAINT = Taint("gpu", "", "NoSchedule")
OLD = Node("a", alias="old")
CHANGES = {
    "a new node": (Node("b"), exists("b")),
    "a new node with an alias": (Node("b", alias="gpus"), exists("b", "gpus")),
    "a node that is no longer Ready": (replace(OLD, ready=False), only(Aspect.READY)),
    "a cordoned node": (replace(OLD, unschedulable=True), only(Aspect.UNSCHEDULABLE)),
    "a taint": (replace(OLD, taints=(TAINT,)), only(Aspect.TAINTS)),
    "a label": (replace(OLD, labels={"zone": "b"}), only(Aspect.LABELS)),
    "more room": (replace(OLD, allocatable={"pods": 250}), only(Aspect.ALLOCATABLE)),
    "an inventory": (replace(OLD, inventory=counted(4)), only(Aspect.INVENTORY)),
    "a device plugin": (replace(OLD, advertised=4), only(Aspect.INVENTORY)),
    "a degraded device": (replace(OLD, readings={0: DeviceReading(health=Health.DEGRADED)}), only(Aspect.HEALTH)),
    "a stale monitor": (replace(OLD, stale=True), only(Aspect.HEALTH)),
    "a device with used memory": (replace(OLD, readings={0: DeviceReading(used=512)}), only(Aspect.LOAD)),
    "a utilized device": (replace(OLD, readings={0: DeviceReading(utilization=7)}), only(Aspect.LOAD)),
    "an alias that changes": (replace(OLD, alias="new"), exists("a", "old", "new")),
    "an alias that is removed": (Node("a"), exists("a", "old")),
}


@pytest.mark.promise("fit-1", "wait-1", "wait-2")
@pytest.mark.parametrize(("changed", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_requeues_the_pods_that_wait_for_it(changed: Node, expected: frozenset[NodeChanged]) -> None:
    """The event names the aspect that changed: pods that wait for another aspect stay unschedulable."""
    assert expected == nodes(OLD).apply(changed)


ILL, WELL = (replace(OLD, readings={0: DeviceReading(9, 9, health)}) for health in (Health.UNHEALTHY, Health.HEALTHY))
SAME_LOAD = {
    "a heartbeat": (Node("a"), Node("a"), frozenset()),
    "the same readings": (WELL, replace(WELL), frozenset()),
    "a device that becomes healthy": (ILL, WELL, only(Aspect.HEALTH)),
}


@pytest.mark.parametrize(("before", "after", "expected"), SAME_LOAD.values(), ids=SAME_LOAD)
def test_what_has_not_changed_requeues_no_pod(before: Node, after: Node, expected: frozenset[NodeChanged]) -> None:
    """Pods that wait for another aspect stay unschedulable: the used memory is the same."""
    assert nodes(before).apply(after) == expected


def test_nodes_with_a_device_plugin_are_counted() -> None:
    """A limit of devices matters only on nodes with a device plugin."""
    known = nodes(Node("a", advertised=4), Node("b", advertised=2), Node("c"))
    known.apply(Node("a"))

    assert known.advertising == 1
    known.forget("b")
    assert known.advertising == 0


def test_a_deleted_node_requeues_pods() -> None:
    """Its alias may now be unambiguous."""
    known = nodes(Node("a", alias="gpus"), Node("b", alias="gpus"))

    assert exists("a", "gpus") == known.forget("a")
    assert Node("b", alias="gpus") == known.resolve("gpus")


def test_an_unknown_deleted_node_is_no_cluster_event() -> None:
    """A deletion may be received twice."""
    assert frozenset() == Nodes().forget("a")


def test_an_alias_that_moved_names_the_new_node() -> None:
    """The node's present label counts."""
    known = nodes(Node("a", alias="gpus"), Node("b"))
    known.apply(Node("a"))
    known.apply(Node("b", alias="gpus"))

    assert Node("b", alias="gpus") == known.resolve("gpus")


def test_an_alias_of_a_node_that_is_gone_is_unknown() -> None:
    """Deleted nodes are forgotten."""
    known = nodes(Node("a", alias="gpus"))
    known.forget("a")
    answer = known.resolve("gpus")

    assert isinstance(answer, Unschedulable)
    assert answer.reason is Reason.NODE_NOT_FOUND
