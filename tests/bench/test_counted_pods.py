from __future__ import annotations

import pytest

from bench.cluster_objects import Assignment
from bench.counted_pods import CountedPods

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
