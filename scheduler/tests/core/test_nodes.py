import pytest

from gpu_scheduler.core.model import Node
from gpu_scheduler.core.nodes import Nodes
from gpu_scheduler.core.reasons import NodeChanged, Obstacle, Reason
from tests.core.build import nodes


def wakes(*names: str) -> frozenset[NodeChanged]:
    return frozenset(map(NodeChanged, names))


def test_a_heartbeat_wakes_nobody() -> None:
    """A node object that changed in nothing a placement asks about is no change."""
    assert frozenset() == nodes(Node("a")).apply(Node("a"))


CHANGES = {
    "a new node": (Node("b"), wakes("b")),
    "a new node with an alias": (Node("b", alias="gpus"), wakes("b", "gpus")),
    "a node that is Ready no more": (Node("a", ready=False, alias="old"), wakes("a", "old")),
    "a cordoned node": (Node("a", unschedulable=True, alias="old"), wakes("a", "old")),
    "an alias that changes": (Node("a", alias="new"), wakes("a", "old", "new")),
    "an alias that goes": (Node("a"), wakes("a", "old")),
}


@pytest.mark.parametrize(("node", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_wakes_whom_it_may_help(node: Node, expected: frozenset[NodeChanged]) -> None:
    """Who waits for the node by its name or by an alias it had or has is woken."""
    assert expected == nodes(Node("a", alias="old")).apply(node)


def test_a_node_that_goes_wakes_too() -> None:
    """Its alias may be unambiguous from now on."""
    known = nodes(Node("a", alias="gpus"), Node("b", alias="gpus"))

    assert wakes("a", "gpus") == known.forget("a")
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

    assert isinstance(answer, Obstacle)
    assert answer.reason is Reason.NODE_NOT_FOUND
