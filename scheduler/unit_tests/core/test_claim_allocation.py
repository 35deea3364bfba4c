"""Which devices the claims of a pod are allocated."""

from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decision import Bind, ClaimAllocation, Wait
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says
from unit_tests.core.asking import words
from unit_tests.core.build import decided, device_id, isolated, node, nodes, pod

UUIDS = tuple(f"GPU-{index}0000000-0000-0000-0000-000000000000" for index in range(4))
NODE = node("node1", inventory=Inventory(tuple(Device(index, uuid) for index, uuid in enumerate(UUIDS))))
KNOWN = nodes(NODE)
SET = Owner("StatefulSet", "train", "uid-of-train", "apps/v1")


def claims_of(pending: Pod) -> list[tuple[tuple[int, ...], Owner | None]]:
    """Return for each claim of the pod the indices of its devices, and its owner."""
    decision = decided(pending, known=KNOWN)
    assert isinstance(decision, Bind), decision
    assert tuple(each.name for each in decision.claims) == pending.resource_claims
    ids = {device_id("node1", uuid): index for index, uuid in enumerate(UUIDS)}
    return [(tuple(ids[device] for device in each.devices), each.owner) for each in decision.claims]


ALLOCATED = {
    "the devices of a line, in order of name": (isolated("train-0", "0=node1:2,0\n", owner=SET), [((0, 2), SET)]),
    "a line with UUIDs": (isolated("train-0", f"0=node1:{UUIDS[3]}\n", owner=SET), [((3,), SET)]),
    "a device that another line shares is in a claim of its own": (
        isolated("train-0", "0=node1:2,0\n1=node1:0\n", owner=SET),
        [((2,), SET), ((0,), SET)],
    ),
    "a pod without a controller owns its claim": (isolated("train-0", "0=node1:1\n", owner=None), [((1,), None)]),
    "a pod that takes any line has a claim of its own": (
        isolated("train-bcdfg", "0=node1:1\n", owner=SET, generate_name="train-"),
        [((1,), None)],
    ),
    "a strategy chooses": (isolated("train-0", None, annotations=words(count=2), owner=SET), [((0, 1), None)]),
    "a line without devices": (isolated("train-0", "0=node1:\n", owner=SET), []),
}


@pytest.mark.promise("isolate-2")
@pytest.mark.parametrize(("pending", "claims"), ALLOCATED.values(), ids=ALLOCATED)
def test_each_claim_gets_its_devices(pending: Pod, claims: list[tuple[tuple[int, ...], Owner | None]]) -> None:
    """Together they are those of the placement. Pods of one controller share a claim, so that it owns the claim."""
    assert claims_of(pending) == claims


def test_a_pod_without_claims_is_bound_without_any() -> None:
    """Its variable names the devices."""
    decision = decided(pod("train-0", "0=node1:0\n"), known=KNOWN)

    assert isinstance(decision, Bind)
    assert decision.claims == ()


@pytest.mark.parametrize(
    "pending", [isolated("train-0", "0=node1:0\n"), isolated("a", None, annotations=words(count=1))]
)
def test_a_pod_waits_until_a_driver_publishes_its_devices(pending: Pod) -> None:
    """The monitor alone cannot hand a device to a container."""
    unpublished = replace(NODE, name="node1")
    elsewhere = nodes(node("node2"))
    decision = decided(pending, None, nodes(unpublished), Policy(reads_claims=True), published=elsewhere)

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.GPU_NOT_FOUND
    says(
        decision.message,
        "GpuNotFound",
        f"GPU {UUIDS[0]}",
        "kubectl get resourceslices --field-selector=spec.nodeName=node1",
    )
    assert NodeChanged("node1", Aspect.INVENTORY) in decision.cured_by

    unread = decided(pending, None, nodes(unpublished), published=elsewhere)
    assert isinstance(unread, Wait)
    assert unread.message.endswith("; run the scheduler with ISOLATION=dra: it reads none now")


def test_an_allocation_names_the_claim() -> None:
    """The webhook has written the same name into the pod."""
    decision = decided(isolated("train-0", "0=node1:0\n"), known=KNOWN)

    assert isinstance(decision, Bind)
    (claim,) = decision.claims
    assert claim == ClaimAllocation(claim.name, (device_id("node1", UUIDS[0]),))
