"""Pods with ResourceClaims: what the bind gate demands, where they are placed, and what they hold."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.core.explanation.explanation import DeviceUse
from gpu_scheduler.core.filters.gpu_filters import gpu_free
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.hold import assumed_hold, drifts, hold_of
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.claim_sets import CLAIM_ENTRIES
from gpu_scheduler.core.pods.container_env import Container, ContainerClaims, ContainerKind
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says, text_of
from unit_tests.core.build import (
    FIELD_REF,
    PCI,
    POLICY,
    bound,
    container,
    decided,
    gpu_uuid,
    isolated,
    ledger,
    node,
    nodes,
    pod,
    running,
    seeing,
    using,
    visible,
)

BY_FIELD = (FIELD_REF, PCI)
COUNT = {"agentaflow.gpu/count": "2"}


def with_uuids(number: int, **others: Any) -> Node:
    """Return a node of four GPUs whose UUIDs are known."""
    devices = tuple(Device(index, gpu_uuid(number, index)) for index in range(4))
    return node(f"node{number}", inventory=Inventory(devices), **others)


KNOWN = tuple(map(with_uuids, range(1, 5)))


def bind_of(pending: Pod, *held: Pod, policy: Policy = POLICY) -> Bind:
    """Return the decision on a pod that can be bound."""
    known = nodes(*KNOWN)
    found = decided(pending, ledger(*held, policy=policy, known=known), known, policy)
    assert isinstance(found, Bind), found
    return found


@pytest.mark.promise("isolate-2")
def test_the_annotation_has_the_uuids_in_the_order_of_the_line() -> None:
    """CUDA finds the devices of a claim by their UUIDs. The container reads them from the annotation."""
    placement = bind_of(isolated("train-0", "0=node1:2,0\n1=node1:0")).placement

    assert placement.annotations["agentaflow.gpu/assigned-devices"] == f"{gpu_uuid(1, 2)},{gpu_uuid(1, 0)}"
    assert placement.annotations["agentaflow.gpu/assigned-uuids"] == f"{gpu_uuid(1, 2)},{gpu_uuid(1, 0)}"
    assert placement.index == 0


def test_a_count_gets_uuids_too() -> None:
    """A strategy chooses by index. The container finds the devices by UUID."""
    found = bind_of(isolated("train-0", None, annotations=COUNT))

    assert found.placement.devices == (gpu_uuid(1, 0), gpu_uuid(1, 1))


def test_a_line_without_gpus_needs_no_inventory() -> None:
    """Such a pod has no claims, and reads an empty annotation."""
    pending = seeing(isolated("train-0", "0=node1:"), container(BY_FIELD))

    assert pending.resource_claims == ()
    found = decided(pending)
    assert isinstance(found, Bind)
    assert found.placement.value == ""


UNKNOWN = {
    "a node without an inventory": node("node1"),
    "a node of which only the number of GPUs is known": node("node1", inventory=counted(4)),
}


@pytest.mark.parametrize("there", UNKNOWN.values(), ids=UNKNOWN)
def test_a_line_waits_until_its_uuids_are_known(there: Node) -> None:
    """The remedy is a monitor or a driver, and their inventory requeues the pod."""
    found = decided(isolated("train-0"), known=nodes(there))

    assert isinstance(found, Wait)
    says(found.message, "GpuNotFound", "GPU 0", "node1", "agentaflow.gpu/enabled")
    assert NodeChanged("node1", Aspect.INVENTORY) in found.cured_by


def test_a_gpu_that_does_not_exist_is_reported_as_such() -> None:
    """Its UUID is not the point."""
    found = decided(isolated("train-0", "0=node1:7"), known=nodes(*KNOWN))

    assert isinstance(found, Wait)
    says(found.topic, "GpuNotFound", "GPU 7", "node1", "GPUs 0", "3")


def test_a_count_waits_for_gpus_of_known_uuid() -> None:
    """A node of which only the number of GPUs is known fits pods without claims."""
    known = nodes(node("node1", inventory=counted(4)))
    found = decided(isolated("train-0", None, annotations=COUNT), known=known)

    assert isinstance(found, Wait)
    says(found.message, "GpuNotFound", text_of("a count with ResourceClaims waits for GPUs of known UUID"))
    assert isinstance(decided(pod("train-0", None, annotations=COUNT), known=known), Bind)


def test_a_count_never_gets_a_held_gpu() -> None:
    """Two claims cannot have one device, even if the operator lets all pods share."""
    policy = Policy(sharing=Sharing.ANY)
    taken = bound(pod("a-0", "0=node1:0,1,2", owner=Owner("Job", "a")), bind_of(pod("a-0", "0=node1:0,1,2")).placement)

    assert bind_of(isolated("train-0", None, annotations=COUNT), taken, policy=policy).placement.node == "node2"


def test_a_count_is_bound_beside_a_number_that_no_gpu_has() -> None:
    """A strategy chooses by index, and the check before the Binding compares UUIDs: both must agree."""
    pending, known = isolated("train-0", None, annotations=COUNT), nodes(KNOWN[0])
    holders = ledger(running("old-0", "node1", "0=node1:7"), known=known)
    found = decided(pending, holders, known)

    assert isinstance(found, Bind)
    assert gpu_free(assumed_hold(pending, found.placement), holders, known, POLICY) is None


# Containers → reason and message; None if the pod is bound.
GATE: dict[str, tuple[Container, tuple[str, ...] | None]] = {
    "the claim and the reference": (using(CLAIM_ENTRIES[0]), None),
    "no claim": (using(), ("EnvNotInjected", text_of("a container does not use its ResourceClaim"))),
    "no resources": (
        container(BY_FIELD, claims=ContainerClaims()),
        ("EnvNotInjected", '"main"', "gpu-scheduler-0", "resources.claims"),
    ),
    "another claim": (using(CLAIM_ENTRIES[1]), ("EnvNotInjected", '"main"', "gpu-scheduler-0", "resources.claims")),
    "an init container without the claim": (
        using(kind=ContainerKind.INIT),
        ("EnvNotInjected", '"main"', "gpu-scheduler-0", "resources.claims"),
    ),
    "an ephemeral container, which can have none": (
        container(BY_FIELD, ContainerKind.EPHEMERAL, claims=ContainerClaims()),
        None,
    ),
    "a part of the claim": (
        using("gpu-scheduler-0/gpu-1"),
        ("EnvConflict", text_of("a container uses a part of its ResourceClaim")),
    ),
    "no variables": (using(CLAIM_ENTRIES[0], env=()), ("EnvNotInjected", '"main"', "CUDA_VISIBLE_DEVICES")),
    "a literal value, even if it is that of the map": (
        using(CLAIM_ENTRIES[0], env=(visible("2"), PCI)),
        ("EnvConflict", "CUDA_VISIBLE_DEVICES", '"main"', '"2"'),
    ),
    "a literal UUID, even if it is the right one": (
        using(CLAIM_ENTRIES[0], env=(visible(gpu_uuid(2, 2)), PCI)),
        ("EnvConflict", "CUDA_VISIBLE_DEVICES", '"main"', f'"{gpu_uuid(2, 2)}"'),
    ),
}


@pytest.mark.promise("isolate-9")
@pytest.mark.parametrize(("main", "said"), GATE.values(), ids=GATE)
def test_every_container_has_the_claims_and_the_reference(main: Container, said: tuple[str, ...] | None) -> None:
    """Otherwise the container would start without its devices, or would not find them."""
    found = decided(seeing(isolated("train-1"), main), known=nodes(*KNOWN))

    if said is None:
        assert isinstance(found, Bind)
    else:
        assert isinstance(found, Wait | Refuse)
        says(found.message, *said)


def test_every_claim_of_the_pod_is_used_by_every_container() -> None:
    """A pod of two sets has two claims."""
    pending = isolated("train-0", "0=node1:0,1\n1=node1:1")

    for entries, bound_ in ((CLAIM_ENTRIES[:2], True), (CLAIM_ENTRIES[:1], False), (CLAIM_ENTRIES[1:2], False)):
        found = decided(seeing(pending, using(*CLAIM_ENTRIES[:2]), using(*entries)), known=nodes(*KNOWN))
        assert isinstance(found, Bind) is bound_


def test_pods_of_one_map_share_their_claim() -> None:
    """Pods 3 and 4 of the README's map hold one GPU by its UUID. What they assume equals what the watch confirms."""
    third, fourth = isolated("train-3"), isolated("train-4")
    first = bind_of(third).placement
    running_third = bound(third, first)

    assert third.resource_claims == fourth.resource_claims
    assert bind_of(fourth, running_third).placement.devices == first.devices == (gpu_uuid(4, 3),)
    assert replace(assumed_hold(third, first), assumed=False) == replace(
        hold_of(running_third, "node4"), assigned_at=""
    )


@pytest.mark.parametrize("stranger", [isolated, pod], ids=["with claims", "without claims"])
def test_pods_of_other_workloads_do_not_share(stranger: Any) -> None:
    """An index and a UUID of one GPU are found together."""
    third = isolated("train-3")
    held = bound(third, bind_of(third).placement)
    known = nodes(*KNOWN)

    found = decided(stranger("other-3", owner=Owner("Job", "other")), ledger(held, known=known), known)

    assert isinstance(found, Wait)
    assert found.reason is Reason.GPU_HELD


def test_pods_with_claims_start_together() -> None:
    """All lines are kept from the first bind on, by whichever names."""
    together = {"agentaflow.gpu/start": "together"}
    first = isolated("train-0", annotations=together)
    held = bound(first, bind_of(first).placement)
    known = nodes(*KNOWN)
    taken = ledger(held, known=known)

    for number in range(1, 5):
        assert isinstance(decided(isolated(f"train-{number}", annotations=together), taken, known), Bind)
    rival = decided(isolated("other-1", owner=Owner("Job", "other")), taken, known)
    assert isinstance(rival, Wait)
    assert "StatefulSet default/train (line 1, to start together)" in rival.message


def test_a_bound_pod_without_the_annotation_drifts() -> None:
    """Another program bound it: it sees no GPU, whatever its map says."""
    stray = isolated("train-1", node="node2", phase="Running")

    assert drifts(stray)
    assert hold_of(stray, "node2").devices == ()


def test_explain_says_who_holds_the_devices_of_a_line() -> None:
    """Devices are named as the map names them."""
    known = nodes(*KNOWN)
    holder = running("other-1", "node2", owner=Owner("Job", "other"))
    cluster = Cluster(ledger(holder, known=known), known, Volumes(), POLICY)

    (place,) = explain(isolated("train-1"), cluster, {}).places

    (device,) = place.devices
    assert (device.device, device.use) == ("2", DeviceUse.HELD)
    assert [str(each.ref) for each in device.holders] == ["default/other-1"]


def test_explain_says_which_devices_have_no_uuid() -> None:
    """A strategy never gives one of them to a pod with claims."""
    devices = Inventory((Device(0), Device(1, gpu_uuid(1, 1))))
    known = nodes(node("node1", inventory=devices))
    cluster = Cluster(ledger(known=known), known, Volumes(), POLICY)

    (place,) = explain(isolated("train-0", None, annotations={"agentaflow.gpu/count": "2"}), cluster, {}).places

    assert [(each.device, each.why) for each in place.devices] == [("0", "its UUID is unknown"), ("1", "")]
