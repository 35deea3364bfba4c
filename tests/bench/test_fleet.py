from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fleet import SIZES, Fleet
from bench.town import CARDS, Given

if TYPE_CHECKING:
    from random import Random


@given(st.integers(1, 40), st.integers(1, 100), st.randoms())
def test_every_pod_fits_wherever_the_ones_before_have_gone(nodes: int, percent: int, chance: Random) -> None:
    """So many GPUs as are asked for are given, however carelessly."""
    fleet = Fleet(nodes, percent)
    free = [CARDS] * nodes
    for size in fleet.sizes:
        node = chance.choice([node for node in range(nodes) if free[node] >= size])
        free[node] -= size
    assert fleet.gpus == sum(fleet.sizes) == CARDS * nodes - sum(free) == CARDS * nodes * percent // 100
    assert fleet.pods == len(fleet.sizes)


def test_sizes_are_mixed_as_long_as_they_fit() -> None:
    """All take turns first; what is left in the end are the smallest."""
    assert Fleet(100, 95).sizes[:8] == SIZES * 2
    assert set(Fleet(100, 95).sizes[-4:]) == {1}
    with pytest.raises(ValueError, match="cannot fill 101 % of the GPUs: it lies between 1 and 100, such as 70"):
        Fleet(10, 101)


RIGHT = {
    "fleet-00000": Given("node-00000", "node-00000", ("0", "1", "2", "3", "4", "5", "6", "7")),
    "fleet-00001": Given("node-00000", "node-00000", ("8", "9", "10", "15")),
}
ODD = {
    "one GPU too few": Given("node-00000", "node-00000", ("8", "9", "10")),
    "a GPU that is not there": Given("node-00000", "node-00000", ("8", "9", "10", "16")),
    "told another node": Given("node-00000", "node-00001", ("8", "9", "10", "11")),
    "told nothing": Given("node-00000", "", ()),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_what_a_pod_did_not_ask_for_is_told(odd: Given) -> None:
    """Where GPUs are told; who counts only is asked how many a node gave."""
    fleet = Fleet(2, 100)
    assert list(fleet.misplaced(RIGHT, devices=True)) == []
    (told,) = fleet.misplaced({**RIGHT, "fleet-00001": odd}, devices=True)
    assert told.startswith("fleet-00001 asked for 4 GPUs of a node and is told GPUs ")
    assert list(fleet.misplaced({**RIGHT, "fleet-00001": odd}, devices=False)) == []


def test_a_node_that_gave_too_much_is_told() -> None:
    """By what its pods asked for."""
    everywhere = {f"fleet-{number:05}": Given("node-00000", "", ()) for number in range(5)}
    fleet = Fleet(2, 100)
    assert fleet.sizes[:5] == (8, 4, 2, 1, 8)
    assert list(fleet.misplaced(everywhere, devices=False)) == ["node-00000 has 16 GPUs and gave 23"]
