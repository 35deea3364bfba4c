"""The orderings: what each strategy prefers, term by term."""

from typing import Any

import pytest

from gpu_scheduler.core.nodes.inventory import DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.strategies.orderings import ORDERINGS
from tests.core.asking import World, asking, having, words
from tests.core.build import running

LEAST, BEST, PRIORITY, ROUND = Strategy
ALL = tuple(Strategy)


def load(*percent: int, used: int = 0) -> dict[int, DeviceReading]:
    """Readings of a node's cards, in their order."""
    return {index: DeviceReading(used, each) for index, each in enumerate(percent)}


def ill(*cards: int, how: Health = Health.DEGRADED) -> dict[int, DeviceReading]:
    """Readings of which these cards are not well."""
    return {card: DeviceReading(health=how) for card in cards}


Row = tuple[tuple[Strategy, ...], tuple[Node, ...], dict[str, Any], str, str]
# Which strategies, the nodes, what is asked for, where it goes, and what is said of it.
PREFERRED: dict[str, Row] = {
    "least_utilized takes the node whose cards are idle": (
        (LEAST,),
        (having("node1", readings=load(9, 9, 9, 9)), having("node2", readings=load(9, 5, 9, 9))),
        {},
        "node2:1",
        "5 % utilized, the least",
    ),
    "least_utilized adds up the cards that it would take": (
        (LEAST,),
        (having("node1", readings=load(1, 30, 30, 30)), having("node2", readings=load(10, 12, 30, 30))),
        {"count": 2},
        "node2:0,1",
        "22 % utilized, the least",
    ),
    "best_fit takes what is just enough": (
        (BEST,),
        (having("node1", 81920, 24576), having("node2", 16384, 40960)),
        {"memory": 20000},
        "node1:1",
        "24576 MiB free, the least that fits",
    ),
    "best_fit sees what others use, whoever they are": (
        (BEST,),
        (having("node1", 40960), having("node2", 40960, readings=load(0, used=9000))),
        {"memory": 20000},
        "node2:0",
        "31960 MiB free, the least that fits",
    ),
    "best_fit keeps nodes whole": (
        (BEST,),
        (having("node1", 8000, 8000, 8000), having("node2", 8000, 8000)),
        {},
        "node2:0",
        "1 GPU of the node left over, the fewest",
    ),
    "priority takes the roomiest card": (
        (PRIORITY,),
        (having("node1", 81920, 24576), having("node2", 16384, 40960)),
        {"memory": 20000},
        "node1:0",
        "81920 MiB free, the most",
    ),
    "priority goes where most is left": (
        (PRIORITY,),
        (having("node1", 8000, 8000), having("node2", 8000, 8000, 8000)),
        {},
        "node2:0",
        "2 GPUs of the node left over, the most",
    ),
    "round_robin begins with the first": (
        (ROUND,),
        (having("node2"), having("node1")),
        {},
        "node1:0",
        "the first by name",
    ),
    "all of them take degraded cards last, of a node": (
        ALL,
        (having("node1", 8000, 8000, readings=ill(0)),),
        {},
        "node1:1",
        "",
    ),
    "all of them take degraded cards last, of several nodes": (
        ALL,
        (having("node1", 8000, 8000, readings=ill(0)), having("node2", 8000, 8000, 9000)),
        {"count": 2},
        "node2:",
        "0 degraded GPUs, the fewest",
    ),
    "all of them take one if there is nothing else": (
        ALL,
        (having("node1", 8000, readings=ill(0)),),
        {},
        "node1:0",
        "",
    ),
    "all of them count numbers in names as numbers": (
        ALL,
        (having("node10"), having("node9"), having("node2")),
        {},
        "node2:0",
        "the first by name",
    ),
    "all of them know two names that count alike": (
        ALL,
        (having("node02"), having("node2")),
        {},
        "node02:0",
        "the first by name",
    ),
    "one node alone": ((LEAST,), (having(),), {}, "node1:0", "0 % utilized, the only node that fits"),
    "one node alone, roomy": ((BEST, PRIORITY), (having(),), {}, "node1:0", "40960 MiB free, the only node that fits"),
    "alike nodes": (
        (LEAST,),
        (having("node1"), having("node2")),
        {},
        "node1:0",
        "0 % utilized, the first by name of those alike",
    ),
}
ROWS = [
    pytest.param(strategy, *row[1:], id=f"{name}: {strategy}") for name, row in PREFERRED.items() for strategy in row[0]
]


@pytest.mark.parametrize(("strategy", "nodes", "given", "place", "why"), ROWS)
def test_what_is_preferred(
    strategy: Strategy, nodes: tuple[Node, ...], given: dict[str, Any], place: str, why: str
) -> None:
    """Each term decides where those before it are alike; the event says which did."""
    world = World(*nodes, strategy=strategy)
    pod = asking(**given)
    decision = world.decide(pod)

    assert decision is not None
    assert f"({strategy}: " in decision.message
    assert why in decision.message
    assert world.where(pod).startswith(place)


def shared(name: str, memory: int = 1000) -> Any:
    """A pod that leaves room for others."""
    return asking(name=name, memory=memory, exclusive="false")


def test_least_utilized_prefers_cards_with_fewer_pods() -> None:
    """First idle cards, then those that fewer share, whatever their memory."""
    world = World(having("node1", 8000, 8000), having("node2", 9000))

    assert [world.where(shared(name)) for name in "abcde"] == ["node1:0", "node2:0", "node1:1", "node1:0", "node1:1"]
    decision = world.decide(shared("f"))
    assert decision is not None
    assert decision.message.endswith("to node2 with GPU 0 (least_utilized: shared with 1 pod, the fewest)")


def test_least_utilized_spreads_over_nodes() -> None:
    """Of idle cards, those of the node where fewer are held."""
    world = World(having("node1", 8000, 8000, 8000), having("node2", 8000, 8000))

    assert [world.where(asking(name=name)) for name in "abc"] == ["node1:0", "node2:0", "node1:1"]


ORDERED = {
    LEAST: ["degraded cards", "utilization", "pods on the cards", "busy cards of the node"],
    BEST: ["degraded cards", "free memory", "spare cards of the node"],
    PRIORITY: ["degraded cards", "free memory", "spare cards of the node"],
    ROUND: ["degraded cards"],
}


def test_the_table_of_orderings() -> None:
    """What counts, and what counts more; priority is best_fit turned round."""
    assert {strategy: [term.name for term in ordering.terms] for strategy, ordering in ORDERINGS.items()} == ORDERED
    turned = {strategy: [term.turned for term in ordering.terms] for strategy, ordering in ORDERINGS.items()}
    assert (turned[BEST], turned[PRIORITY]) == ([False, False, False], [False, True, True])


class Turns:
    """A cluster in which pods take turns."""

    def __init__(self, *nodes: Node, policy: Policy | None = None) -> None:
        self.world = World(*nodes, strategy=ROUND, policy=policy or Policy(sharing=Sharing.ANY))

    def places(self, *counts: int) -> list[str]:
        """Where pods that ask for so many go, one after the other."""
        return [self.world.where(asking(count, f"turn-{self.world.binds}")) for count in counts]


def test_round_robin_goes_round() -> None:
    """Card after card, node after node, and again from the beginning."""
    turns = Turns(having("node1", 1, 1), having("node10", 1), having("node2", 1, 1))

    assert turns.places(*[1] * 7) == ["node1:0", "node1:1", "node2:0", "node2:1", "node10:0", "node1:0", "node1:1"]


def test_round_robin_with_several_cards() -> None:
    """All of them behind the last one; where too few are left, the next node's."""
    turns = Turns(having("node1", 1, 1, 1, 1), having("node2", 1, 1, 1))

    assert turns.places(2, 1, 2, 2, 3) == ["node1:0,1", "node1:2", "node2:0,1", "node1:0,1", "node2:0,1,2"]


def test_round_robin_on_one_node() -> None:
    """Behind the last card, and round the corner only where no other node fits."""
    turns = Turns(having("node1", 1, 1, 1))

    assert turns.places(2, 2, 1, 3, 2) == ["node1:0,1", "node1:0,2", "node1:0", "node1:0,1,2", "node1:0,1"]


def test_round_robin_leaves_worn_cards_for_last() -> None:
    """A degraded card has its turn when no other is left."""
    exclusive = Policy()
    turns = Turns(having("node1", 1, 1, readings=ill(1)), having("node2", 1, 1, readings=ill(0)), policy=exclusive)

    assert turns.places(1, 1, 1, 1) == ["node1:0", "node2:1", "node1:1", "node2:0"]


def test_round_robin_goes_on_where_it_was() -> None:
    """The newest pod that lives says where: after a restart, and after a pod with a map."""
    world = World(having("node1", 1, 1, 1), having("node2", 1, 1), strategy=ROUND, policy=Policy(sharing=Sharing.ANY))
    world.place(asking(name="a"), confirmed=False)
    decision = world.decide(asking(name="b"))
    assert decision is not None
    assert decision.message.endswith("(round_robin: the next after GPU 0 of node1)")

    pinned = running("train-0", "node2", "0=node2:0", annotations=words(assigned_at="2026-11-21T01:00:00.000000Z"))
    world.ledger.apply(pinned)
    assert world.where(asking(name="c")) == "node1:1"
    world.end(asking(name="a"))
    world.end(asking(name="c"))
    assert world.where(asking(name="d")) == "node2:1"
    world.end(asking(name="d"))
    world.end(pinned)
    assert world.where(asking(name="e")) == "node1:0"


def test_round_robin_passes_a_node_that_it_cannot_count_on() -> None:
    """Of a device plugin's choice, or of a name that no inventory knows, nobody can say which card comes next."""
    plugin = having("node1", 1, 1, advertised=2, allocatable={"pods": 9, "cpu": 9, "nvidia.com/gpu": 2})
    limit = {"gpu_limits": (("main", 1),)}
    world = World(plugin, having("node2", 1), strategy=ROUND)
    assert world.where(asking(name="a", others=limit)) == "node1:0"
    decision = world.decide(asking(name="b", others=limit))
    assert decision is not None
    assert decision.message.endswith("to node2 with GPU 0 (round_robin: the next after node1)")

    unknown = running("x", "node1", "0=node1:7", annotations=words(index=0))
    world = World(having("node1", 1, 1), having("node2", 1), strategy=ROUND)
    world.ledger.apply(unknown)
    assert world.where(asking(name="a")) == "node2:0"
