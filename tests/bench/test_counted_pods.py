from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cluster_objects import GPUS_PER_NODE, Assignment
from bench.counted_pods import SIZES, CountedPods

if TYPE_CHECKING:
    from random import Random


@given(st.integers(1, 40), st.integers(1, 100), st.randoms())
def test_every_pod_fits_wherever_earlier_pods_are(nodes: int, percent: int, chance: Random) -> None:
    """All requested GPUs can be assigned, for any placement of the earlier pods."""
    counted = CountedPods(nodes, percent)
    free = [GPUS_PER_NODE] * nodes
    for size in counted.sizes:
        node = chance.choice([node for node in range(nodes) if free[node] >= size])
        free[node] -= size
    assert (
        counted.gpus
        == sum(counted.sizes)
        == GPUS_PER_NODE * nodes - sum(free)
        == GPUS_PER_NODE * nodes * percent // 100
    )
    assert counted.pods == len(counted.sizes)


def test_sizes_are_mixed_as_long_as_they_fit() -> None:
    """All sizes come in turn first; at the end only the smallest remain."""
    assert CountedPods(100, 95).sizes[:8] == SIZES * 2
    assert set(CountedPods(100, 95).sizes[-4:]) == {1}
    with pytest.raises(ValueError, match="cannot fill 101 % of the GPUs: it lies between 1 and 100, such as 70"):
        CountedPods(10, 101)


RIGHT = {
    "counted-00000": Assignment("node-00000", "node-00000", ("0", "1", "2", "3", "4", "5", "6", "7")),
    "counted-00001": Assignment("node-00000", "node-00000", ("8", "9", "10", "15")),
}
ODD = {
    "one GPU too few": Assignment("node-00000", "node-00000", ("8", "9", "10")),
    "a GPU that does not exist": Assignment("node-00000", "node-00000", ("8", "9", "10", "16")),
    "another node in the annotation": Assignment("node-00000", "node-00001", ("8", "9", "10", "11")),
    "no annotation": Assignment("node-00000", "", ()),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_a_pod_did_not_ask_for_is_reported(odd: Assignment) -> None:
    """For contenders that assign devices; for others only the number of GPUs of each node is checked."""
    counted = CountedPods(2, 100)
    assert list(counted.misplaced(RIGHT, devices=True)) == []
    (reported,) = counted.misplaced({**RIGHT, "counted-00001": odd}, devices=True)
    assert reported.startswith("counted-00001 asked for 4 GPUs of a node and is told GPUs ")
    assert list(counted.misplaced({**RIGHT, "counted-00001": odd}, devices=False)) == []


def test_an_overcommitted_node_is_reported() -> None:
    """By the counts that its pods request."""
    everywhere = {f"counted-{number:05}": Assignment("node-00000", "", ()) for number in range(5)}
    counted = CountedPods(2, 100)
    assert counted.sizes[:5] == (8, 4, 2, 1, 8)
    assert list(counted.misplaced(everywhere, devices=False)) == ["node-00000 has 16 GPUs and gave 23"]
