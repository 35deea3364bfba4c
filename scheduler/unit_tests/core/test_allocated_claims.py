"""What allocated ResourceClaims hold: whom they keep from a device, and until when."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import DeviceChanged
from gpu_scheduler.core.decision import Bind, Decision, Wait
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim, AllocatedClaims
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools, DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.refs import Owner
from unit_tests.core.asking import asking
from unit_tests.core.build import POLICY, bound, decided, isolated, ledger, node, nodes, pod, running

A, B = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
POOL = "gpu.nvidia.com", "node1"
GPU_A, GPU_B = DeviceId(*POOL, "gpu-0"), DeviceId(*POOL, "gpu-1")
PUBLISHED = DeviceSlice("s1", "node1", *POOL, 1, 1, (PublishedDevice(GPU_A, A), PublishedDevice(GPU_B, B)))
NODE = node("node1", inventory=Inventory((Device(0, A), Device(1, B))))
"""Its inventory relates indices and UUIDs."""
OTHERS = AllocatedClaim("team", "training", "uid-of-claim", (GPU_A,))
ZERO = "0=node1:0\n"
OURS = AllocatedClaim("default", isolated("train-0", ZERO).resource_claims[0], "uid-of-ours", (GPU_A,))


def placed(text: str = ZERO) -> Pod:
    """Return a pod with claims that was bound to GPU 0 of node1."""
    return bound(isolated("train-0", text), Placement("node1", (A,), 0, (A,)))


def claims_with(*claims: AllocatedClaim, slices: Iterable[DeviceSlice] = (PUBLISHED,)) -> AllocatedClaims:
    """Return claims of which the devices are those of the slices."""
    pools = DevicePools()
    for each in slices:
        pools.apply(each)
    found = AllocatedClaims(pools)
    for claim in claims:
        found.apply(claim)
    return found


def ledger_of(claims: AllocatedClaims | None = None, *pods: Pod, policy: Policy | None = None) -> Ledger:
    """Return a ledger of one node, these claims and these pods."""
    held = ledger(policy=policy or POLICY, known=nodes(NODE))
    for uid, holds in claims or ():
        held.apply_claim(uid, holds)
    for each in pods:
        held.apply(each)
    return held


def decide_beside(claims: AllocatedClaims, asker: Pod, *others: Pod, policy: Policy | None = None) -> Decision | None:
    """Decide on a pod in a cluster with one node, these claims and these pods."""
    return decided(asker, ledger_of(claims, *others, policy=policy), nodes(NODE), policy or POLICY)


REFUSED = {
    "a map line with the index": ("0=node1:0\n", f"GPU 0 of node1, as {A},", ""),
    "a map line with the UUID": (f"0=node1:{A}\n", f"GPU {A} of node1", "0"),
}


@pytest.mark.promise("isolate-5")
@pytest.mark.parametrize(("text", "thing", "device"), REFUSED.values(), ids=REFUSED)
def test_a_device_of_another_schedulers_claim_is_held(text: str, thing: str, device: str) -> None:
    """The message names the claim and the command that shows who uses it."""
    decision = decide_beside(claims_with(OTHERS), pod("train-0", text))

    assert isinstance(decision, Wait)
    assert f"{thing} is held by ResourceClaim team/training" in decision.message
    assert "kubectl describe resourceclaim -n team training" in decision.message
    assert DeviceChanged("node1", device) in decision.cured_by


@pytest.mark.parametrize("sharing", Sharing)
def test_no_rule_of_sharing_opens_a_claim_of_others(sharing: Sharing) -> None:
    """A kubelet gives an allocated device to the pods of its claim alone."""
    policy = Policy(sharing=sharing)

    asker = pod("train-0", ZERO, annotations={"agentaflow.gpu/sharing": "any"})
    assert isinstance(decide_beside(claims_with(OTHERS), asker, policy=policy), Wait)


def test_a_strategy_leaves_out_devices_of_claims() -> None:
    """It takes the other device."""
    decision = decide_beside(claims_with(OTHERS), asking(1))

    assert isinstance(decision, Bind)
    assert decision.placement.devices == ("1",)


FREE = {
    "a claim without an allocation": replace(OTHERS, devices=()),
    "a claim of another device": replace(OTHERS, devices=(GPU_B,)),
    "a claim of another node's device": replace(OTHERS, devices=(DeviceId("gpu.nvidia.com", "node2", "gpu-0"),)),
}


@pytest.mark.parametrize("claim", FREE.values(), ids=FREE)
def test_other_claims_keep_nobody_away(claim: AllocatedClaim) -> None:
    """Only the allocated device is held."""
    assert isinstance(decide_beside(claims_with(claim), pod("train-0", ZERO)), Bind)


@pytest.mark.promise("isolate-5")
def test_a_pod_may_have_the_devices_of_its_own_claim() -> None:
    """The allocation of the pod's predecessor, or of an earlier try, does not stop it; a namesake elsewhere does."""
    own = isolated("train-0", ZERO)

    assert isinstance(decide_beside(claims_with(OURS), own), Bind)
    assert isinstance(decide_beside(claims_with(replace(OURS, namespace="team")), own), Wait)
    assert isinstance(decide_beside(claims_with(OURS), pod("train-0", ZERO)), Wait)


SHARED = "0=node1:0\n1=node1:0\n"
SHARERS = {
    "by one claim": (isolated("train-1", SHARED), Bind),
    "by different claims": (isolated("train-1", SHARED, namespace="team"), Wait),
    "one of them without a claim": (pod("train-1", SHARED), Bind),
}


@pytest.mark.parametrize(("asker", "kind"), SHARERS.values(), ids=SHARERS)
def test_pods_with_claims_share_a_device_by_one_claim(asker: Pod, kind: type) -> None:
    """Also where the operator lets any pods share: the driver does not."""
    for sharing in (Sharing.SAME_WORKLOAD, Sharing.ANY):
        decision = decide_beside(claims_with(), asker, placed(SHARED), policy=Policy(sharing=sharing))
        assert isinstance(decision, kind)


def test_of_a_pod_and_its_claim_the_pod_is_named() -> None:
    """Its user knows the pod."""
    holder = placed()
    asker = pod("late-0", ZERO, owner=Owner("StatefulSet", "late"))
    decision = decide_beside(claims_with(OURS), asker, holder)

    assert isinstance(decision, Wait)
    assert "is held by default/train-0" in decision.message
    assert "ResourceClaim" not in decision.message


def test_of_many_claims_three_are_named() -> None:
    """The others are counted."""
    claims = [replace(OTHERS, name=f"training-{number}", uid=f"uid-{number}") for number in range(5)]
    decision = decide_beside(claims_with(*claims), pod("train-0", ZERO))

    assert isinstance(decision, Wait)
    assert "GPU 0 by ResourceClaim team/training-2, and 2 more holders; " in decision.message


@pytest.mark.promise("isolate-6")
def test_a_claim_holds_after_its_pod_is_gone_until_its_allocation_is_cleared() -> None:
    """The kubelet may not have released the device before."""
    claims, holder = claims_with(OURS), placed()
    held = ledger_of(claims, holder)

    held.forget(holder.ref.uid)
    assert [each.holder for each in held.devices.rivals("node1", "0")] == [f"ResourceClaim default/{OURS.name}"]

    freed = held.apply_claim(OURS.uid, claims.apply(replace(OURS, devices=())))
    assert DeviceChanged("node1", "0") in freed
    assert held.devices.rivals("node1", "0") == ()
    assert held.differences(ledger_of()) == 0


def test_a_device_stays_held_while_its_slice_is_gone() -> None:
    """A kubelet deletes the slices of its node when it starts."""
    pools = DevicePools()
    pools.apply(PUBLISHED)
    claims = AllocatedClaims(pools)
    before = claims.apply(OTHERS)
    pools.forget(PUBLISHED)

    assert claims.apply(OTHERS) == before


def test_a_device_that_no_slice_has_shown_may_be_any_of_its_node() -> None:
    """The claim says only the driver's name for it, so no device of the node is free."""
    unpublished = claims_with(OTHERS, slices=())

    for text in (ZERO, "0=node1:1\n"):
        assert isinstance(decide_beside(unpublished, pod("train-0", text)), Wait)


def test_a_claim_counts_against_no_limit_of_its_namespace() -> None:
    """Its pods count."""
    devices = ledger_of(claims_with(OURS)).devices

    assert devices.usage.used("default") == 0
    assert devices.newest() is None


CONFLICTS = {
    "a pod without claims and a claim of others": (OTHERS, running("train-0", "node1", ZERO), 1),
    "a pod and its own claim": (OURS, placed(), 0),
    "a pod and a claim of others": (OTHERS, placed(), 1),
}


@pytest.mark.parametrize(("claim", "holder", "number"), CONFLICTS.values(), ids=CONFLICTS)
def test_a_pod_and_a_claim_on_one_device_are_a_conflict(claim: AllocatedClaim, holder: Pod, number: int) -> None:
    """They are reported once."""
    assert len(ledger_of(claims_with(claim), holder).conflicts()) == number


def test_two_claims_on_one_device_are_no_conflict_of_ours() -> None:
    """No pod of ours has the device."""
    assert ledger_of(claims_with(OTHERS, OURS)).conflicts() == ()


def test_claims_of_a_pool_are_found_when_its_slices_change() -> None:
    """Their devices are read again."""
    claims = claims_with(OTHERS, replace(OURS, devices=(DeviceId("gpu.nvidia.com", "node2", "gpu-0"),)))

    assert claims.of_pool(*POOL) == (OTHERS,)
    claims.forget(OTHERS.uid)
    assert claims.of_pool(*POOL) == ()


def test_a_claim_that_is_made_anew_is_found_by_its_name() -> None:
    """The watch may show it before it shows that the former one is gone."""
    claims = claims_with(OURS, replace(OURS, uid="uid-of-new"))

    claims.forget(OURS.uid)

    found = claims.find(OURS.namespace, OURS.name)
    assert found is not None
    assert found.uid == "uid-of-new"


@pytest.mark.promise("isolate-4")
@pytest.mark.parametrize(
    ("classes", "pending"),
    [
        (None, True),
        (frozenset({"nic", "gpu"}), True),
        (frozenset({"nic"}), False),
        (frozenset[str](), False),
    ],
    ids=["not read", "one may give GPUs", "none gives GPUs", "no request"],
)
def test_a_claim_is_pending_if_it_may_get_gpus(classes: frozenset[str] | None, *, pending: bool) -> None:
    """Until it is allocated or gone, another scheduler may be about to give it one."""
    waiting = replace(OTHERS, devices=(), awaits_others=True, classes=classes, unread="its class")
    claims = claims_with(waiting)

    assert claims.others_pending({"gpu"}.__contains__) is pending
    claims.apply(OTHERS)
    assert not claims.others_pending({"gpu"}.__contains__)
    claims.apply(waiting)
    claims.forget(OTHERS.uid)
    assert not claims.others_pending({"gpu"}.__contains__)


def test_only_claims_with_gpus_are_listed_as_such() -> None:
    """A claim that only says what it wants, or what of it is not read, holds none."""
    claims = claims_with(OTHERS, replace(OTHERS, name="wants", uid="u2", devices=(), unread="its class"))

    assert list(claims.claims) == [OTHERS]
    assert claims.find("team", "wants") is not None
