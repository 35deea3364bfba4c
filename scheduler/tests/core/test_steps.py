"""What a decision by strategy costs: as much in a cluster of 5,000 nodes as in one of 100."""

import sys
from collections.abc import Callable
from functools import cache, partial
from types import FrameType
from typing import Any

import pytest

from gpu_scheduler.core.request import Strategy
from tests.core.asking import World, asking, having

PODS = 150
EVERY = 50


@cache
def cluster(nodes: int, strategy: Strategy) -> World:
    """Nodes of different sizes, and a first decision: that one may look at all of them."""
    world = World(*(having(f"node{number}", *(8000 + number % 7,) * 2) for number in range(nodes)), strategy=strategy)
    world.decide(asking(name="first"))
    return world


class Steps:
    """How many lines of Python run: a machine that is busy with something else changes nothing."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, _frame: FrameType, event: str, _arg: Any) -> "Steps":
        self.taken += event == "line"
        return self


def counted(act: Callable[[], object]) -> int:
    """The steps of one thing."""
    counting, before = Steps(), sys.gettrace()
    sys.settrace(counting)
    try:
        act()
    finally:
        sys.settrace(before)
    return counting.taken


def steps(nodes: int, strategy: Strategy) -> list[int]:
    """Of some decisions and their binds, while nodes fill up."""
    world = cluster(nodes, strategy)
    return [counted(partial(world.place, asking(name=f"pod-{number}"), confirmed=False)) for number in range(PODS)]


@pytest.mark.parametrize("strategy", Strategy)
def test_a_decision_costs_the_same_in_a_large_cluster(strategy: Strategy) -> None:
    """At most 1.3 times the steps, from the first to the last, binds included."""
    small, large = steps(100, strategy), steps(5_000, strategy)

    assert max(large) <= 1.3 * max(small)
    assert sum(large) <= 1.3 * sum(small)
    assert sum(small[-EVERY:]) <= 1.3 * sum(small[:EVERY])


def test_who_waits_looks_at_no_more_nodes_in_a_large_cluster() -> None:
    """Neither does a decision that nothing fits cost more, nor the news about it."""

    def cost(nodes: int) -> tuple[int, int]:
        world = cluster(nodes, Strategy.BEST_FIT)
        waits = [world.wait(asking(5, name="first"))]
        waiting = counted(lambda: waits.append(world.wait(asking(5))))
        world.show(having("node7", 1))
        news = counted(world.cluster.candidates.news)
        return waiting, news

    for large, small in zip(cost(5_000), cost(100), strict=True):
        assert large <= 1.3 * small
