"""What a decision costs: as much in a cluster of 5,000 nodes as in a small one, and after 50,000 pods as before."""

from dataclasses import replace
from functools import cache, partial
from random import Random

import pytest

from gpu_scheduler.core.pods.count_request import Strategy
from tests.core.asking import World, asking, having
from tests.core.build import pod
from tests.steps import Cost, Name, counted, repeated, same

PODS = 150
EVERY = 50
CARDS = 16
SIZES = (8, 4, 2, 1)
LINES = 5_000


@cache
def cluster(nodes: int, strategy: Strategy) -> World:
    """Nodes of different sizes, and a first decision: that one may look at all of them."""
    world = World(*(having(f"node{number}", *(8000 + number % 7,) * 2) for number in range(nodes)), strategy=strategy)
    world.decide(asking(name="first"))
    return world


def steps(nodes: int, strategy: Strategy) -> list[Cost]:
    """Of some decisions and their binds, while nodes fill up."""
    world = cluster(nodes, strategy)
    return [counted(partial(world.place, asking(name=f"pod-{number}"), confirmed=False)) for number in range(PODS)]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_decision_by_strategy_costs_the_same_in_a_large_cluster(strategy: Strategy) -> None:
    """At most 1.3 times the steps, from the first to the last, binds included."""
    small, large = steps(100, strategy), steps(5_000, strategy)
    early, late = small[:EVERY], small[-EVERY:]

    assert same(large, small, 1.3)
    assert lines(large) <= 1.3 * lines(small)
    assert lines(late) <= 1.3 * lines(early)


def lines(costs: list[Cost]) -> int:
    """Of all of them."""
    return sum(each.lines for each in costs)


def test_who_waits_looks_at_no_more_nodes_in_a_large_cluster() -> None:
    """Neither does a decision that nothing fits cost more, nor the news about it."""

    def cost(nodes: int) -> tuple[int, int]:
        world = cluster(nodes, Strategy.BEST_FIT)
        waits = [world.wait(asking(5, name="first"))]
        waiting = counted(lambda: waits.append(world.wait(asking(5)))).lines
        world.show(having("node7", 1))
        news = counted(world.cluster.candidates.news).lines
        return waiting, news

    for large, small in zip(cost(5_000), cost(100), strict=True):
        assert large <= 1.3 * small


def gpus(nodes: int) -> World:
    """Nodes with many GPUs, whose names notice when they are compared."""
    return World(*(having(Name(f"n{number}"), *(40960,) * CARDS) for number in range(nodes)))


def test_a_first_decision_looks_at_what_was_seen_for_another_number() -> None:
    """All nodes are looked at once for pods that differ in nothing but how many GPUs they ask for."""
    world = gpus(100)
    first, *others = [counted(partial(world.decide, asking(number))).lines for number in SIZES]

    assert max(others) <= first / 5


def test_decisions_for_several_numbers_share_what_they_find() -> None:
    """A bind makes its node another for each of the numbers; its cards are counted once for all of them."""

    def cost(*numbers: int) -> int:
        world = gpus(100)
        for number in numbers:
            world.decide(asking(number))
        pods = [asking(number, f"pod-{number}-{turn}") for turn in range(12 // len(numbers)) for number in numbers]
        return lines([counted(partial(world.place, each, confirmed=False)) for each in pods])

    assert cost(*SIZES) <= 1.5 * cost(4)


def test_a_decision_by_map_costs_the_same_in_a_large_cluster() -> None:
    """The node is named: at 5,000 of them a decision and its bind take what they take at 10."""

    def costs(nodes: int) -> list[Cost]:
        world = gpus(nodes)
        given = [pod(f"w{number}-0", f"0=n{nodes - 1}:{number}\n") for number in range(CARDS)]
        return [counted(partial(world.place, each)) for each in given]

    assert same(costs(5_000), costs(10))


class Workload:
    """Pods that take the lowest free line of a long map; they come and go."""

    def __init__(self) -> None:
        self.world = gpus(-(-LINES // CARDS))
        self.live: list[str] = []
        text = "".join(f"{number}=n{number // CARDS}:{number % CARDS}\n" for number in range(LINES))
        self._template = pod("web-bcdfg", text, generate_name="web-")
        self._made = 0
        self._chance = Random(5)  # noqa: S311 - a lot, no secret

    def come(self) -> None:
        """One more is placed."""
        self._made += 1
        uid = f"uid-{self._made}"
        self.world.place(replace(self._template, ref=replace(self._template.ref, uid=uid)), confirmed=False)
        self.live.append(uid)

    def go(self) -> None:
        """One of them ends, by lot."""
        place = self._chance.randrange(len(self.live))
        self.live[place], self.live[-1] = self.live[-1], self.live[place]
        self.world.ledger.forget(self.live.pop())

    def live_long(self) -> None:
        """Many come and go, and most lines are taken."""
        for number in range(50_000):
            self.come()
            if number >= 0.9 * LINES:
                self.go()

    def costs(self) -> list[Cost]:
        """Of the next pods."""
        return [counted(self.come) for _ in range(EVERY)]


def test_a_free_line_costs_the_same_after_50000_pods() -> None:
    """Of a map of 5,000 lines: while most of them are taken, and when few are."""
    fresh, old = Workload(), Workload()
    repeated(old.live_long)
    first = fresh.costs()
    crowded = old.costs()
    while len(old.live) > EVERY:
        old.go()

    assert same(crowded, first)
    assert same(old.costs(), first)
