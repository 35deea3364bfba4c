"""The objects of workload claims are what webhook and scheduler write, and their audit finds every fault."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from bench.claimed_pods import ClaimedPods
from bench.cluster_objects import Assignment
from gpu_scheduler.kube.objects.allocated_claims import read_allocated_claim
from gpu_scheduler.kube.objects.pods import read_pod
from gpu_scheduler.kube.objects.resource_slices import read_slice
from gpu_scheduler.webhook.review import Admit, review_pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects import Object

PODS = ClaimedPods(2, 3)
PLACES = [("node-00000", 0), ("node-00001", 0), ("node-00000", 1)]


def read(body: Object) -> Any:
    """Return the pod as the scheduler reads it from the API server."""
    body["metadata"] |= {"namespace": "objects-0", "uid": body["metadata"]["name"]}
    return read_pod(msgspec.json.encode(body))[1]


def test_our_pods_have_what_the_webhook_adds() -> None:
    """The webhook adds nothing more: neither claims nor variables. Each pod has a claim of its own."""
    pods = [read(body) for _, body in PODS.pod_requests("gpu-scheduler")]

    assert [review_pod(pod, "", "gpu-scheduler") for pod in pods] == [Admit()] * 3
    assert all(pod.request.claims and pod.request.fault is None for pod in pods)
    assert len({pod.resource_claims for pod in pods}) == 3


def test_a_pod_of_kube_scheduler_names_the_claim_that_a_client_creates() -> None:
    """And its node, as in W1."""
    bodies = [body for _, body in PODS.pod_requests("kube-scheduler", pinned=True)]
    made = [(path, body["metadata"]["name"]) for path, body in PODS.claim_requests()]

    assert [body["spec"]["resourceClaims"][0]["resourceClaimName"] for body in bodies] == [name for _, name in made]
    assert {path for path, _ in made} == {"/apis/resource.k8s.io/v1/namespaces/objects-0/resourceclaims"}
    assert all("nodeAffinity" in body["spec"]["affinity"] for body in bodies)


def test_a_slice_has_the_gpus_that_our_scheduler_reports() -> None:
    """By UUID, in the order of the bus, so that their indices are those of the map."""
    _, *slices = (body for _, body in PODS.device_requests())
    devices = [read_slice(msgspec.json.encode(body))[1].devices for body in slices]
    members = list(PODS.members())

    assert [PODS.place(member) for member in members] == PLACES
    assert [PODS.assignment(member) for member in members] == [
        Assignment(node, node, (devices[int(node[-1])][device].uuid,)) for node, device in PLACES
    ]
    assert all([each.bus for each in published] == sorted(each.bus for each in published) for published in devices)


def claims() -> list[Object]:
    """Return the claims as our scheduler has allocated them."""
    return [deepcopy(PODS.allocated_claim(member, f"uid-{member.name}")) for member in PODS.members()]


def test_the_claims_of_growth_are_those_of_their_pods() -> None:
    """Each holds the GPU of its pod's line."""
    found = [read_allocated_claim(msgspec.json.encode(claim))[1] for claim in claims()]

    assert [(each.devices[0].pool, each.devices[0].device) for each in found] == [
        (node, f"gpu-{device}") for node, device in PLACES
    ]
    assert [each.pods for each in found] == [(f"uid-{member.name}",) for member in PODS.members()]
    named = [read(body).resource_claims for _, body in PODS.pod_requests("gpu-scheduler")]
    assert [(each.name,) for each in found] == named


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
