"""Which nodes changed since a generation, compared with a log of all changes."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod
from gpu_scheduler.core.refs import PodRef
from unit_tests.core.asking import ClusterState, asking
from unit_tests.core.build import bound, node

Event = tuple[Callable[[], object], list[str]]
NAMES = st.sampled_from([f"node{number}" for number in range(9)])
EVENTS = st.lists(st.tuples(st.sampled_from(["mark", "apply", "forget"]), NAMES), max_size=60)


@given(EVENTS, st.integers(0, 60))
def test_the_nodes_that_changed_since_a_generation_are_listed(events: list[tuple[str, str]], when: int) -> None:
    """Each node is listed once, the node that changed last is the first."""
    generations, number = NodeGenerations(), 0
    log: list[str] = []
    known: set[str] = set()
    for position, (what, name) in enumerate(events):
        if position == when:
            number, log = generations.now, []
        if what == "mark":
            generations.mark(name)
        elif what == "apply":
            generations.apply_node(node(name))
        else:
            generations.forget_node(name)
        if what == "mark" or (what == "apply") != (name in known):
            log.append(name)
        known = known | {name} if what == "apply" else known - {name} if what == "forget" else known

    assert generations.since(number) == list(dict.fromkeys(reversed(log)))


def test_a_heartbeat_is_no_change() -> None:
    """A node that is applied again without a change gets no new generation."""
    generations = NodeGenerations()
    generations.apply_node(node())
    before = generations.now
    generations.apply_node(node())
    generations.forget_node("node2")

    assert generations.since(before) == []
    generations.apply_node(node(stale=True))
    assert generations.since(before) == ["node1"]


def test_names_of_deleted_nodes_are_forgotten() -> None:
    """Few names are kept; a reader with an older generation has to read all nodes."""
    generations = NodeGenerations()
    generations.apply_node(node())
    for number in range(1000):
        generations.mark(f"gone-{number}")

    assert generations.since(0) is None
    assert generations.since(generations.now - 3) == ["gone-999", "gone-998", "gone-997"]
    assert len(generations.since(generations.now - 60) or ()) == 60
    assert not generations.too_many(66)
    assert generations.too_many(67)


POD = asking(memory=1)


def test_all_that_a_decision_reads_of_a_node_has_a_generation() -> None:
    """A changed hold, changed used resources and a changed node mark the node as changed."""
    state = ClusterState(node("node1"), node("node2"))
    generations, ledger = state.ledger.generations, state.ledger
    foreign_pod = ForeignPod(PodRef("other", "a", "1"), "node2", POD.resource_request)
    placement = Placement("node1", ("0",), None)
    shown = bound(POD, placement)
    events: dict[str, Event] = {
        "a pod is assumed": (lambda: ledger.assume(POD, placement), ["node1"]),
        "the pod is confirmed without a change": (lambda: ledger.apply(shown), []),
        "the pod is terminating": (
            lambda: ledger.apply(replace(shown, deleting_since="2026-11-21T01:00:00Z")),
            ["node1"],
        ),
        "the pod is assumed on another node": (
            lambda: ledger.assume(POD, replace(placement, node="node2")),
            ["node2", "node1"],
        ),
        "the pod is deleted": (lambda: ledger.forget(POD.ref.uid), ["node2"]),
        "the pod is deleted again": (lambda: ledger.forget(POD.ref.uid), []),
        "a foreign pod is applied": (lambda: ledger.apply_foreign_pod(foreign_pod), ["node2"]),
        "the foreign pod is applied again": (lambda: ledger.apply_foreign_pod(foreign_pod), []),
        "the foreign pod is deleted": (lambda: ledger.forget_foreign_pod(foreign_pod), ["node2"]),
        "a node changes": (lambda: ledger.apply_node(node("node2", ready=False)), ["node2"]),
        "a node is deleted": (lambda: ledger.forget_node("node2"), ["node2"]),
    }
    for what, (change, nodes) in events.items():
        before = generations.now
        change()
        assert generations.since(before) == nodes, what


def test_a_node_has_the_generation_of_its_last_change() -> None:
    """A forgotten name gets the newest forgotten generation, which may be later than its own."""
    generations = NodeGenerations()
    generations.mark("node1")
    assert (generations.last("node1"), generations.last("node2")) == (1, 0)
    for number in range(100):
        generations.mark(f"gone-{number}")

    assert generations.last("gone-99") == generations.now
    assert generations.last("node1") == generations.now - 64
