"""The objects of workload claims are what webhook and scheduler write, and their audit finds every fault."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from bench.claimed_pods import ClaimedPods

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects import Object

PODS = ClaimedPods(2, 3)


def claims() -> list[Object]:
    """Return the claims as our scheduler has allocated them."""
    return [deepcopy(PODS.allocated_claim(member, f"uid-{member.name}")) for member in PODS.members()]


def result(claim: Object) -> Any:
    """Return the allocated device."""
    return claim["status"]["allocation"]["devices"]["results"][0]


FAULTS: dict[str, tuple[Callable[[list[Object]], object], list[str]]] = {
    "a claim that nobody allocated": (
        lambda made: made[0].pop("status"),
        ["claims are reserved for 2 of 3 pods, 2 times"],
    ),
    "a GPU of another node": (
        lambda made: result(made[0]).update(pool="node-00001", device="gpu-7"),
        ["the claim of w0000-0 is allocated node-00001/gpu-7, and its line is GPU 0 of node-00000"],
    ),
    "one GPU for two pods": (
        lambda made: result(made[2]).update(device="gpu-0"),
        [
            "the claim of w0000-2 is allocated node-00000/gpu-0, and its line is GPU 1 of node-00000",
            "gpu-0 of node-00000 is allocated 2 times",
        ],
    ),
    "two GPUs for one pod": (
        lambda made: made[1]["status"]["allocation"]["devices"]["results"].append(
            {**result(made[1]), "device": "gpu-9"}
        ),
        ["the claim of w0000-1 is allocated node-00001/gpu-0, node-00001/gpu-9, and its line is GPU 0 of node-00001"],
    ),
    "a claim that is reserved and not allocated": (
        lambda made: made[0]["status"].pop("allocation"),
        ["the claim of w0000-0 is allocated nothing, and its line is GPU 0 of node-00000"],
    ),
    "another spec": (
        lambda made: made[1].update(spec={"devices": {}}),
        ["claim {} has another spec: {{'devices': {{}}}}".format(claims()[1]["metadata"]["name"])],
    ),
}


@pytest.mark.parametrize(("change", "reported"), FAULTS.values(), ids=FAULTS)
def test_a_wrong_claim_is_reported(change: Callable[[list[Object]], object], reported: list[str]) -> None:
    """None is, while all are right."""
    made = claims()
    assert list(PODS.misallocated(made, devices=True)) == []
    change(made)
    assert list(PODS.misallocated(made, devices=True)) == reported


def test_kube_scheduler_may_allocate_any_gpu_of_the_node() -> None:
    """It knows no line of a map."""
    made = claims()
    result(made[0])["device"] = "gpu-15"

    assert list(PODS.misallocated(made, devices=False)) == []
