"""Which nodes changed, against a list of everything that happened."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod
from gpu_scheduler.core.refs import PodRef
from tests.core.asking import World, asking
from tests.core.build import bound, node

Event = tuple[Callable[[], object], list[str]]
NAMES = st.sampled_from([f"node{number}" for number in range(9)])
EVENTS = st.lists(st.tuples(st.sampled_from(["mark", "learn", "unlearn"]), NAMES), max_size=60)


@given(EVENTS, st.integers(0, 60))
def test_what_changed_since(events: list[tuple[str, str]], when: int) -> None:
    """Every node that changed after a moment, once, the last first."""
    touched, number = NodeGenerations(), 0
    log: list[str] = []
    there: set[str] = set()
    for position, (what, name) in enumerate(events):
        if position == when:
            number, log = touched.now, []
        if what == "mark":
            touched.mark(name)
        elif what == "learn":
            touched.apply_node(node(name))
        else:
            touched.forget_node(name)
        if what == "mark" or (what == "learn") != (name in there):
            log.append(name)
        there = there | {name} if what == "learn" else there - {name} if what == "unlearn" else there

    assert touched.since(number) == list(dict.fromkeys(reversed(log)))


def test_a_heartbeat_is_no_change() -> None:
    """A node that is shown again as it was costs nobody anything."""
    touched = NodeGenerations()
    touched.apply_node(node())
    before = touched.now
    touched.apply_node(node())
    touched.forget_node("node2")

    assert touched.since(before) == []
    touched.apply_node(node(stale=True))
    assert touched.since(before) == ["node1"]


def test_nodes_that_are_gone_are_forgotten() -> None:
    """However many names come and go, few are kept; who looks after that has to look at all nodes."""
    touched = NodeGenerations()
    touched.apply_node(node())
    for number in range(1000):
        touched.mark(f"gone-{number}")

    assert touched.since(0) is None
    assert touched.since(touched.now - 3) == ["gone-999", "gone-998", "gone-997"]
    assert len(touched.since(touched.now - 60) or ()) == 60
    assert not touched.crowded(66)
    assert touched.crowded(67)


POD = asking(memory=1)


def test_whatever_a_decision_reads_of_a_node_touches_it() -> None:
    """Holds, whatever pods take, and the node itself."""
    world = World(node("node1"), node("node2"))
    touched, ledger = world.ledger.touched, world.ledger
    stranger = ForeignPod(PodRef("other", "a", "1"), "node2", POD.resource_request)
    placement = Placement("node1", ("0",), None)
    shown = bound(POD, placement)
    events: dict[str, Event] = {
        "a pod is assumed": (lambda: ledger.assume(POD, placement), ["node1"]),
        "it is confirmed: nothing is new": (lambda: ledger.apply(shown), []),
        "it is terminating": (lambda: ledger.apply(replace(shown, deleting_since="2026-11-21T01:00:00Z")), ["node1"]),
        "it is assumed elsewhere": (lambda: ledger.assume(POD, replace(placement, node="node2")), ["node2", "node1"]),
        "it is gone": (lambda: ledger.forget(POD.ref.uid), ["node2"]),
        "it is gone again": (lambda: ledger.forget(POD.ref.uid), []),
        "another scheduler's pod is seen": (lambda: ledger.apply_foreign_pod(stranger), ["node2"]),
        "it is seen again": (lambda: ledger.apply_foreign_pod(stranger), []),
        "it is gone as well": (lambda: ledger.forget_foreign_pod(stranger), ["node2"]),
        "a node changes": (lambda: ledger.apply_node(node("node2", ready=False)), ["node2"]),
        "a node goes": (lambda: ledger.forget_node("node2"), ["node2"]),
    }
    for what, (happen, nodes) in events.items():
        before = touched.now
        happen()
        assert touched.since(before) == nodes, what


def test_when_a_node_changed_last() -> None:
    """Nobody takes what was forgotten for older than it may be."""
    touched = NodeGenerations()
    touched.mark("node1")
    assert (touched.last("node1"), touched.last("node2")) == (1, 0)
    for number in range(100):
        touched.mark(f"gone-{number}")

    assert touched.last("gone-99") == touched.now
    assert touched.last("node1") == touched.now - 64
