"""The table of eight workloads, in a cluster that is nothing but the core."""

from itertools import combinations

import pytest

from gpu_scheduler.core.pods.count_request import Strategy
from tests.core.asking import World, having
from tests.core.build import pod
from tests.placements import CARDS, NODES, PLACEMENTS, WORKLOADS


def placements(strategy: Strategy) -> dict[str, str]:
    """Where the workloads come to lie, one after the other."""
    nodes = (having(name, *(memory,) * CARDS, model=model) for name, (model, memory) in NODES.items())
    world = World(*nodes, strategy=strategy)
    names = list(WORKLOADS)
    if strategy is Strategy.PRIORITY:
        names.sort(key=lambda name: -WORKLOADS[name].priority)
    return {name: world.where(pod(name, None, annotations=WORKLOADS[name].annotations)) for name in names}


@pytest.mark.parametrize("strategy", Strategy)
def test_eight_workloads(strategy: Strategy) -> None:
    """Every strategy puts them where the table says, each time anew."""
    assert [placements(strategy)] * 3 == [PLACEMENTS[strategy]] * 3


def test_the_strategies_differ() -> None:
    """The table would show it if two of them were one: they differ in at least two placements."""
    for one, other in combinations(PLACEMENTS.values(), 2):
        assert sum(one[name] != other[name] for name in WORKLOADS) >= 2


def test_the_table_is_complete() -> None:
    """Every strategy that there is, and every workload of each."""
    assert set(PLACEMENTS) == set(Strategy)
    assert all(placed.keys() == WORKLOADS.keys() for placed in PLACEMENTS.values())
