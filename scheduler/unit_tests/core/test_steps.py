"""A decision's cost: as much in a cluster of 5,000 nodes as in a small one, and after 50,000 pods as before."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from random import Random

import pytest

from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.refs import Owner
from unit_tests.core.asking import ClusterState, asking, having
from unit_tests.core.build import decided, ledger, node, nodes, own, pod, running
from unit_tests.steps import Cost, Name, counted, repeated, same

PODS = 150
EVERY = 50
DEVICES = 16
SIZES = (8, 4, 2, 1)
LINES = 5_000


@cache
def decided_cluster(nodes: int, strategy: Strategy) -> ClusterState:
    """Return a cluster of nodes of different sizes, after a first decision, which may filter all of them."""
    state = ClusterState(
        *(having(f"node{number}", *(8000 + number % 7,) * 2) for number in range(nodes)), strategy=strategy
    )
    state.decide(asking(name="first"))
    return state


def steps(nodes: int, strategy: Strategy) -> list[Cost]:
    """Return the costs of PODS decisions and their assumptions, while nodes fill up."""
    state = decided_cluster(nodes, strategy)
    return [counted(partial(state.place, asking(name=f"pod-{number}"), confirmed=False)) for number in range(PODS)]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_decision_by_strategy_costs_the_same_in_a_large_cluster(strategy: Strategy) -> None:
    """The steps are at most 1.3 times as many, from the first decision to the last, with the assumptions."""
    small, large = steps(100, strategy), steps(5_000, strategy)
    early, late = small[:EVERY], small[-EVERY:]

    assert same(large, small, 1.3)
    assert lines(large) <= 1.3 * lines(small)
    assert lines(late) <= 1.3 * lines(early)


def lines(costs: list[Cost]) -> int:
    return sum(each.lines for each in costs)


def test_a_waiting_pod_costs_the_same_in_a_large_cluster() -> None:
    """This holds for a decision without a fitting node, and for the events that follow from a changed node."""

    def cost(nodes: int) -> tuple[int, int]:
        state = decided_cluster(nodes, Strategy.BEST_FIT)
        waits = [state.wait(asking(5, name="first"))]
        waiting = counted(lambda: waits.append(state.wait(asking(5)))).lines
        state.apply_nodes(having("node7", 1))
        events = counted(state.cluster.candidates.pop_events).lines
        return waiting, events

    for large, small in zip(cost(5_000), cost(100), strict=True):
        assert large <= 1.3 * small


def gpus(nodes: int) -> ClusterState:
    """Return a cluster of nodes with many GPUs; comparisons of their names count as lines."""
    return ClusterState(*(having(Name(f"n{number}"), *(40960,) * DEVICES) for number in range(nodes)))


def test_decisions_for_several_numbers_share_filter_results() -> None:
    """A bind changes its node for each number of GPUs; its devices are counted once for all numbers."""

    def cost(*numbers: int) -> int:
        state = gpus(100)
        for number in numbers:
            state.decide(asking(number))
        pods = [asking(number, f"pod-{number}-{turn}") for turn in range(12 // len(numbers)) for number in numbers]
        return lines([counted(partial(state.place, each, confirmed=False)) for each in pods])

    assert cost(*SIZES) <= 1.5 * cost(4)


class Workload:
    """Pods that take the lowest free line of a long map, and are created and deleted."""

    def __init__(self) -> None:
        self.state = gpus(-(-LINES // DEVICES))
        self.live: list[str] = []
        text = "".join(f"{number}=n{number // DEVICES}:{number % DEVICES}\n" for number in range(LINES))
        self._template = pod("web-bcdfg", text, generate_name="web-")
        self._made = 0
        self._chance = Random(5)  # noqa: S311 - a choice, no secret

    def create(self) -> None:
        """Place one more pod."""
        self._made += 1
        uid = f"uid-{self._made}"
        self.state.place(replace(self._template, ref=replace(self._template.ref, uid=uid)), confirmed=False)
        self.live.append(uid)

    def delete(self) -> None:
        """Delete one of the pods, chosen at random."""
        place = self._chance.randrange(len(self.live))
        self.live[place], self.live[-1] = self.live[-1], self.live[place]
        self.state.ledger.forget(self.live.pop())

    def create_and_delete(self) -> None:
        """Create and delete many pods, until most lines are taken."""
        for number in range(50_000):
            self.create()
            if number >= 0.9 * LINES:
                self.delete()

    def costs(self) -> list[Cost]:
        """Return the costs of the next EVERY pods."""
        return [counted(self.create) for _ in range(EVERY)]


def test_a_free_line_costs_the_same_after_50000_pods() -> None:
    """The cost of a line of a map of 5,000 lines is the same while most lines are taken, and when few are."""
    fresh, old = Workload(), Workload()
    repeated(old.create_and_delete)
    first = fresh.costs()
    contended = old.costs()
    while len(old.live) > EVERY:
        old.delete()

    assert same(contended, first)
    assert same(old.costs(), first)


UNKNOWN = nodes(node(allocatable={"pods": 1000, "cpu": 10**6, "memory": 2**40}))
"""A node without an inventory: any device may be there."""
ANY = {"agentaflow.gpu/sharing": "any"}


def gpus_of(number: int, first: int = 0) -> str:
    return ",".join(map(str, range(first, first + number)))


def crowded(number: int) -> Ledger:
    """Return a ledger of 12 pods that share so many GPUs."""
    text = gpus_of(number)
    return ledger(
        *(
            running(
                f"{name}-0", "node1", f"0=node1:{text}", annotations=ANY, containers=own(text), owner=Owner("Job", name)
            )
            for name in "abcdefghijkl"
        ),
        known=UNKNOWN,
    )


def beside_each_other(number: int) -> int:
    """Return the cost of looking for conflicts among pods that share so many GPUs."""
    return counted(crowded(number).conflicts).lines


def asked_for(number: int) -> int:
    """Return the cost of a pod that asks for so many GPUs, which others share."""
    return counted(partial(decided, pod("train-0", f"0=node1:{gpus_of(number)}"), crowded(number), UNKNOWN)).lines


def started_together(number: int) -> int:
    """Return the cost of 12 lines of so many GPUs, each of which names GPUs of the line before, to start together."""
    text = "".join(f"{index}=node1:{gpus_of(number, index)}\n" for index in range(12))
    pending = pod("train-0", text, annotations={"agentaflow.gpu/start": "together"})
    return counted(partial(decided, pending, ledger(known=UNKNOWN), UNKNOWN)).lines


@pytest.mark.parametrize("cost", [beside_each_other, asked_for, started_together])
def test_sixteen_times_as_many_gpus_cost_sixteen_times_as_much(cost: Callable[[int], int]) -> None:
    """Their names are never compared in pairs, which would cost 256 times as much (S1)."""
    assert cost(128) <= 16 * cost(8)
