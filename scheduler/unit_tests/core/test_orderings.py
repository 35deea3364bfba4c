"""The orderings: which devices each strategy prefers, criterion by criterion."""

from typing import Any

import pytest

from gpu_scheduler.core.nodes.inventory import DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from tests.messages import text_of
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import running

LEAST, BEST, PRIORITY, ROUND = Strategy
ALL = tuple(Strategy)
LEFT = "strategy: GPUs left over"
LEAST_THAT_FITS, ONLY, BY_NAME, ALIKE = (
    text_of(f"strategy: the {each}") for each in ("least that fits", "only node", "first by name", "first of equals")
)


def load(*percent: int, used: int = 0) -> dict[int, DeviceReading]:
    """Return readings with these utilizations in percent, in the order of the node's devices."""
    return {index: DeviceReading(used, each) for index, each in enumerate(percent)}


def degraded(*devices: int) -> dict[int, DeviceReading]:
    return {device: DeviceReading(health=Health.DEGRADED) for device in devices}


Row = tuple[tuple[Strategy, ...], tuple[Node, ...], dict[str, Any], str, str]


def row(strategies: tuple[Strategy, ...], place: str, why: str, *nodes: Node, **request: Any) -> Row:
    """Return the placement of a pod with this request by these strategies, and a part of its message."""
    return strategies, nodes, request, place, why


PREFERRED: dict[str, Row] = {
    "least_utilized takes the node with idle devices": row(
        (LEAST,),
        "node2:1",
        "5 % utilized, the least",
        having("node1", readings=load(9, 9, 9, 9)),
        having("node2", readings=load(9, 5, 9, 9)),
    ),
    "least_utilized adds up the devices that it would take": row(
        (LEAST,),
        "node2:0,1",
        "22 % utilized, the least",
        having("node1", readings=load(1, 30, 30, 30)),
        having("node2", readings=load(10, 12, 30, 30)),
        count=2,
    ),
    "best_fit takes the device with the least memory that is enough": row(
        (BEST,),
        "node1:1",
        f"24576 MiB free, {LEAST_THAT_FITS}",
        having("node1", 81920, 24576),
        having("node2", 16384, 40960),
        memory=20000,
    ),
    "best_fit counts memory that other processes use": row(
        (BEST,),
        "node2:0",
        f"31960 MiB free, {LEAST_THAT_FITS}",
        having("node1", 40960),
        having("node2", 40960, readings=load(0, used=9000)),
        memory=20000,
    ),
    "best_fit keeps nodes whole": row(
        (BEST,),
        "node2:0",
        f"{text_of(LEFT, gpus='1 GPU')}, the fewest",
        having("node1", 8000, 8000, 8000),
        having("node2", 8000, 8000),
    ),
    "priority takes the device with the most memory": row(
        (PRIORITY,),
        "node1:0",
        "81920 MiB free, the most",
        having("node1", 81920, 24576),
        having("node2", 16384, 40960),
        memory=20000,
    ),
    "priority takes the node with the most devices left": row(
        (PRIORITY,),
        "node2:0",
        f"{text_of(LEFT, gpus='2 GPUs')}, the most",
        having("node1", 8000, 8000),
        having("node2", 8000, 8000, 8000),
    ),
    "round_robin begins with the first node": row((ROUND,), "node1:0", BY_NAME, having("node2"), having("node1")),
    "every strategy takes degraded devices of a node last": row(
        ALL, "node1:1", "", having("node1", 8000, 8000, readings=degraded(0))
    ),
    "every strategy takes degraded devices of several nodes last": row(
        ALL,
        "node2:",
        "0 degraded GPUs, the fewest",
        having("node1", 8000, 8000, readings=degraded(0)),
        having("node2", 8000, 8000, 9000),
        count=2,
    ),
    "every strategy takes a degraded device if there is no other": row(
        ALL, "node1:0", "", having("node1", 8000, readings=degraded(0))
    ),
    "every strategy sorts numbers in names as numbers": row(
        ALL, "node2:0", BY_NAME, having("node10"), having("node9"), having("node2")
    ),
    "every strategy sorts two names with equal numbers": row(
        ALL, "node02:0", BY_NAME, having("node02"), having("node2")
    ),
    "one node alone": row((LEAST,), "node1:0", f"0 % utilized, {ONLY}", having()),
    "one node alone, by memory": row((BEST, PRIORITY), "node1:0", f"40960 MiB free, {ONLY}", having()),
    "equal nodes": row((LEAST,), "node1:0", f"0 % utilized, {ALIKE}", having("node1"), having("node2")),
}
ROWS = [
    pytest.param(strategy, *row[1:], id=f"{name}: {strategy}") for name, row in PREFERRED.items() for strategy in row[0]
]


@pytest.mark.parametrize(("strategy", "nodes", "given", "place", "why"), ROWS)
def test_a_strategy_prefers_a_device(
    strategy: Strategy, nodes: tuple[Node, ...], given: dict[str, Any], place: str, why: str
) -> None:
    """Each criterion decides among those that are equal by the criteria before; the event says which one decided."""
    state = ClusterState(*nodes, strategy=strategy)
    pod = asking(**given)
    decision = state.decide(pod)

    assert decision is not None
    assert f"({strategy}: " in decision.message
    assert why in decision.message
    assert state.where(pod).startswith(place)


def shared(name: str, memory: int = 1000) -> Any:
    """Return a pod that shares its device."""
    return asking(name=name, memory=memory, exclusive="false")


def test_least_utilized_prefers_devices_with_fewer_pods() -> None:
    """Idle devices come first, then devices with fewer pods, whatever their memory."""
    state = ClusterState(having("node1", 8000, 8000), having("node2", 9000))

    assert [state.where(shared(name)) for name in "abcde"] == ["node1:0", "node2:0", "node1:1", "node1:0", "node1:1"]
    decision = state.decide(shared("f"))
    assert decision is not None
    assert decision.message.endswith("to node2 with GPU 0 (least_utilized: shared with 1 pod, the fewest)")


def test_least_utilized_spreads_over_nodes() -> None:
    """Of idle devices, those of the node with fewer held devices come first."""
    state = ClusterState(having("node1", 8000, 8000, 8000), having("node2", 8000, 8000))

    assert [state.where(asking(name=name)) for name in "abc"] == ["node1:0", "node2:0", "node1:1"]


class Turns:
    """A cluster with strategy round_robin."""

    def __init__(self, *nodes: Node, policy: Policy | None = None) -> None:
        self.state = ClusterState(*nodes, strategy=ROUND, policy=policy or Policy(sharing=Sharing.ANY))

    def places(self, *counts: int) -> list[str]:
        """Place pods with these counts one after the other; return their placements."""
        return [self.state.where(asking(count, f"turn-{self.state.binds}")) for count in counts]


def test_round_robin_begins_again() -> None:
    """Device after device, node after node, and again from the beginning."""
    turns = Turns(having("node1", 1, 1), having("node10", 1), having("node2", 1, 1))

    assert turns.places(*[1] * 7) == ["node1:0", "node1:1", "node2:0", "node2:1", "node10:0", "node1:0", "node1:1"]


def test_round_robin_with_several_devices() -> None:
    """A pod gets devices after the last placed one; where too few are left, those of the next node."""
    turns = Turns(having("node1", 1, 1, 1, 1), having("node2", 1, 1, 1))

    assert turns.places(2, 1, 2, 2, 3) == ["node1:0,1", "node1:2", "node2:0,1", "node1:0,1", "node2:0,1,2"]


def test_round_robin_on_one_node() -> None:
    """A pod gets devices after the last placed one, and again the first ones only where no other node fits."""
    turns = Turns(having("node1", 1, 1, 1))

    assert turns.places(2, 2, 1, 3, 2) == ["node1:0,1", "node1:0,2", "node1:0", "node1:0,1,2", "node1:0,1"]


def test_round_robin_takes_degraded_devices_last() -> None:
    """A degraded device is placed when no other is left."""
    exclusive = Policy()
    turns = Turns(
        having("node1", 1, 1, readings=degraded(1)), having("node2", 1, 1, readings=degraded(0)), policy=exclusive
    )

    assert turns.places(1, 1, 1, 1) == ["node1:0", "node2:1", "node1:1", "node2:0"]


def test_round_robin_continues_after_the_newest_pod() -> None:
    """The newest running pod says where: after a restart, and after a pod with a map."""
    state = ClusterState(
        having("node1", 1, 1, 1), having("node2", 1, 1), strategy=ROUND, policy=Policy(sharing=Sharing.ANY)
    )
    state.place(asking(name="a"), confirmed=False)
    decision = state.decide(asking(name="b"))
    assert decision is not None
    assert decision.message.endswith("(round_robin: the next after GPU 0 of node1)")

    pinned = running("train-0", "node2", "0=node2:0", annotations=words(assigned_at="2026-11-21T01:00:00.000000Z"))
    state.ledger.apply(pinned)
    assert state.where(asking(name="c")) == "node1:1"
    state.end(asking(name="a"))
    state.end(asking(name="c"))
    assert state.where(asking(name="d")) == "node2:1"
    state.end(asking(name="d"))
    state.end(pinned)
    assert state.where(asking(name="e")) == "node1:0"


def test_round_robin_continues_after_a_node_with_unknown_devices() -> None:
    """After devices of a plugin, or with a name that no inventory has, the next device is unknown."""
    plugin = having("node1", 1, 1, advertised=2, allocatable={"pods": 9, "cpu": 9, "nvidia.com/gpu": 2})
    limit = {"gpu_limits": (("main", 1),)}
    state = ClusterState(plugin, having("node2", 1), strategy=ROUND)
    assert state.where(asking(name="a", others=limit)) == "node1:0"
    decision = state.decide(asking(name="b", others=limit))
    assert decision is not None
    assert decision.message.endswith("to node2 with GPU 0 (round_robin: the next after node1)")

    unknown = running("x", "node1", "0=node1:7", annotations=words(index=0))
    state = ClusterState(having("node1", 1, 1), having("node2", 1), strategy=ROUND)
    state.ledger.apply(unknown)
    assert state.where(asking(name="a")) == "node2:0"
