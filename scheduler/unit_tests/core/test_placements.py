"""The table of eight workloads of tests.placements, in a cluster of the package core alone."""

import pytest

from gpu_scheduler.core.pods.count_request import Strategy
from tests.placements import DEVICES, NODES, PLACEMENTS, WORKLOADS
from unit_tests.core.asking import ClusterState, having
from unit_tests.core.build import pod


def placements(strategy: Strategy) -> dict[str, str]:
    """Place the workloads one after the other; return their placements by name."""
    nodes = (having(name, *(memory,) * DEVICES, model=model) for name, (model, memory) in NODES.items())
    state = ClusterState(*nodes, strategy=strategy)
    names = list(WORKLOADS)
    if strategy is Strategy.PRIORITY:
        names.sort(key=lambda name: -WORKLOADS[name].priority)
    return {name: state.where(pod(name, None, annotations=WORKLOADS[name].annotations)) for name in names}


@pytest.mark.parametrize("strategy", Strategy)
def test_eight_workloads(strategy: Strategy) -> None:
    """Every strategy places them as in the table, three times out of three."""
    assert [placements(strategy)] * 3 == [PLACEMENTS[strategy]] * 3
