"""Pods with a ResourceClaim of their own: what is wrong with them, where they are placed, and what their claim gets."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged, ResourceClaimChanged
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Decision, Refuse, Wait
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.core.explanation.explanation import DeviceUse
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim, AllocatedClaims
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools, DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.pods.container_env import Container, ContainerKind
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.device_selector import DeviceSelector
from gpu_scheduler.core.pods.own_claim import ClaimRequest, OwnClaim
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from tests.messages import says, text_of
from unit_tests.core.build import FIELD_REF, PCI, container, gpu_uuid, ledger, node, nodes, pod, using, visible

DRIVER = "gpu.nvidia.com"
BY_FIELD = (FIELD_REF, PCI)
READS = Policy(reads_claims=True)
MODELS = "NVIDIA A100", "NVIDIA A100", "NVIDIA H100", "NVIDIA H100"
CHANGED = ResourceClaimChanged("default/mine")


def gpus(number: int) -> Inventory:
    """Return the inventory of a node with two A100 and two H100."""
    return Inventory(tuple(Device(index, gpu_uuid(number, index), (), model) for index, model in enumerate(MODELS)))


KNOWN = nodes(*(node(f"node{number}", inventory=gpus(number)) for number in (1, 2)))


def id_of(number: int, index: int) -> DeviceId:
    return DeviceId(DRIVER, f"node{number}", f"gpu-{index}")


def published(**changed: Any) -> DevicePools:
    """Return what the driver of both nodes publishes. `changed` are fields of each device."""
    pools = DevicePools()
    for number in (1, 2):
        devices = tuple(
            replace(PublishedDevice(id_of(number, index), gpu_uuid(number, index), index, model=model), **changed)
            for index, model in enumerate(MODELS)
        )
        pools.apply(DeviceSlice(f"s{number}", f"node{number}", DRIVER, f"node{number}", 1, 1, devices))
    return pools


def asking(name: str = "train-0", text: str | None = None, *, claim: str = "mine", **more: Any) -> Pod:
    """Return a pod with the entry `gpu` for its own claim, as the webhook leaves it."""
    given = {"containers": (using("gpu"),), "own_claim": OwnClaim("gpu", claim), **more}
    return replace(pod(name, text, **given), resource_claims=(claim,) if claim else ())


def wanting(count: int = 1, **selector: Any) -> AllocatedClaim:
    """Return claim `mine`, of which nothing is allocated."""
    request = ClaimRequest("gpus", DRIVER, count, DeviceSelector(DRIVER, **selector))
    return AllocatedClaim("default", "mine", "uid-of-mine", awaits_others=True, request=request)


def cluster_of(
    *claims: AllocatedClaim, pools: DevicePools | None = None, policy: Policy = READS, held: tuple[Pod, ...] = ()
) -> Cluster:
    pools = pools or published()
    found, holds = AllocatedClaims(pools), ledger(*held, policy=policy, known=KNOWN)
    for each in claims:
        holds.apply_claim(each.uid, found.apply(each))
    return Cluster(holds, KNOWN, Volumes(), policy, pools=pools, claims=found)


def decided(pending: Pod, *claims: AllocatedClaim, **more: Any) -> Decision | None:
    return decide(pending, cluster_of(*claims, **more))


def bind_of(pending: Pod, *claims: AllocatedClaim, **more: Any) -> Bind:
    found = decided(pending, *claims, **more)
    assert isinstance(found, Bind), found
    return found


SELECTED: dict[str, tuple[AllocatedClaim, list[tuple[int, int]]]] = {
    "a uuid": (wanting(uuid=gpu_uuid(2, 1)), [(2, 1)]),
    "an index": (wanting(index=3), [(1, 3)]),
    "a model": (wanting(2, product_name="NVIDIA H100"), [(1, 2), (1, 3)]),
    "a uuid, an index and a model": (wanting(uuid=gpu_uuid(2, 2), index=2, product_name="NVIDIA H100"), [(2, 2)]),
    "a count alone": (wanting(4), [(1, 0), (1, 1), (1, 2), (1, 3)]),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.parametrize(("claim", "given"), SELECTED.values(), ids=SELECTED)
def test_a_pod_gets_the_gpus_that_its_claim_selects(claim: AllocatedClaim, given: list[tuple[int, int]]) -> None:
    """No other on any node. Its variable names them by UUID, in the order of their indices."""
    bind = bind_of(asking(), claim)

    assert bind.placement.node == f"node{given[0][0]}"
    assert bind.placement.devices == tuple(gpu_uuid(*each) for each in given)
    (allocated,) = bind.claims
    assert (allocated.name, allocated.devices) == ("mine", tuple(id_of(*each) for each in given))
    assert allocated.of_user == claim
    assert bind.message.endswith("; by ResourceClaim mine)")


def test_a_strategy_chooses_among_the_selected_gpus() -> None:
    """The pod may name it, as a pod with a count does."""
    annotations = {"agentaflow.gpu/scheduling-strategy": "best_fit", "agentaflow.gpu/priority": "7"}
    pending = asking(annotations=annotations)

    assert (pending.request.count.priority, pending.request.count.count) == (7, 0)
    assert bind_of(pending, wanting(product_name="NVIDIA H100")).strategy == Strategy.BEST_FIT


def test_a_pod_holds_what_its_claim_is_allocated() -> None:
    """Its claim is no rival of the pod."""
    pending, claim = asking(), wanting(uuid=gpu_uuid(1, 0))
    bind = bind_of(pending, claim)
    hold = assumed_hold(pending, bind.placement)

    assert (hold.devices, hold.claims) == ((gpu_uuid(1, 0),), ("mine",))


OTHERS = replace(wanting(uuid=gpu_uuid(1, 0)), devices=(id_of(1, 0),), awaits_others=False)
UNREAD = AllocatedClaim("default", "mine", "uid-of-mine", unread="spec.devices.constraints is not read")
WAITING: dict[str, tuple[Pod, tuple[AllocatedClaim, ...], Reason, tuple[str, ...], set[ClusterEvent]]] = {
    "a claim that does not exist": (asking(), (), Reason.GPU_NOT_FOUND, ("GpuNotFound", "default/mine"), {CHANGED}),
    "a claim of another namespace": (
        asking(),
        (replace(wanting(), namespace="team"),),
        Reason.GPU_NOT_FOUND,
        ("GpuNotFound", "default/mine"),
        {CHANGED},
    ),
    "a claim that is not made from its template yet": (
        asking(claim=""),
        (),
        Reason.GPU_NOT_FOUND,
        ("GpuNotFound", text_of("a ResourceClaim of a pod's own is not made from its template yet")),
        set(),
    ),
    "a claim with something that is not read": (
        asking(),
        (UNREAD,),
        Reason.UNSUPPORTED,
        ("Unsupported", "default/mine", "spec.devices.constraints", "gpu-scheduling-map"),
        {CHANGED},
    ),
    "a claim that another pod has": (
        asking(),
        (replace(OTHERS, pods=("uid-of-other",)),),
        Reason.GPU_HELD,
        ("GpuHeld", text_of("a ResourceClaim of a pod's own is allocated for another pod")),
        {CHANGED},
    ),
    "a claim that was allocated for the pod and another": (
        asking(),
        (replace(OTHERS, pods=("uid-of-default/train-0", "a", "b")),),
        Reason.GPU_HELD,
        ("GpuHeld", "default/mine", "2"),
        {CHANGED},
    ),
}


@pytest.mark.promise("isolate-15")
@pytest.mark.parametrize(("pending", "claims", "reason", "said", "events"), WAITING.values(), ids=WAITING)
def test_a_pod_waits_for_its_claim(
    pending: Pod, claims: tuple[AllocatedClaim, ...], reason: Reason, said: tuple[str, ...], events: set[ClusterEvent]
) -> None:
    """The reason names the claim, and a change of the claim requeues the pod. `explain` says the same."""
    found = decided(pending, *claims)

    assert isinstance(found, Wait)
    assert found.reason == reason
    says(found.message, *said)
    assert set(found.cured_by) == events
    explained = explain(pending, cluster_of(*claims), {})
    assert [each.message for each in explained.of_pod] == [found.message]
    assert explained.places == ()


def test_a_scheduler_that_reads_no_claims_refuses_the_pod() -> None:
    """It was started without `ISOLATION=dra`."""
    found = decided(asking(), wanting(), policy=Policy())

    assert isinstance(found, Wait)
    says(found.message, "Unsupported", text_of("a scheduler without isolation reads no ResourceClaims"))


def test_what_is_allocated_for_the_pod_is_given_back_before_it_is_allocated_again() -> None:
    """An earlier leader was killed before the Binding. The loop withdraws what is reserved for a waiting pod."""
    mine = replace(OTHERS, pods=("uid-of-default/train-0",))

    found = decided(asking(), mine)
    assert isinstance(found, Wait)
    assert found.reason is Reason.NOT_ENOUGH_GPUS
    assert f"that the pod's ResourceClaim selects (driver {DRIVER}, uuid {gpu_uuid(1, 0)})" in found.message
    assert isinstance(decided(asking(), replace(mine, devices=(), pods=())), Bind)


def test_a_gpu_that_nobody_has_is_not_found() -> None:
    """`explain` says of each GPU that the claim does not select it."""
    claim = wanting(product_name="NVIDIA B200")
    found = decided(asking(), claim)

    assert isinstance(found, Wait)
    says(found.message, "GpuNotFound", "1 GPU", "gpu.nvidia.com", '"NVIDIA B200"')
    explained = explain(asking(), cluster_of(claim), {})
    devices = [device for place in explained.places for device in place.devices]
    assert {each.use for each in devices} == {DeviceUse.UNSUITABLE}
    assert {each.why for each in devices} == {
        f'the pod\'s ResourceClaim selects driver {DRIVER}, productName "NVIDIA B200"'
    }


UNPUBLISHED: dict[str, tuple[dict[str, Any], AllocatedClaim]] = {
    "no index": ({"index": None}, wanting(index=0)),
    "another index": ({"index": 9}, wanting(index=0)),
    "another model": ({"model": "NVIDIA A30"}, wanting(product_name="NVIDIA A100")),
}


@pytest.mark.promise("isolate-13")
@pytest.mark.parametrize(("changed", "claim"), UNPUBLISHED.values(), ids=UNPUBLISHED)
def test_what_a_monitor_says_selects_no_gpu(changed: dict[str, Any], claim: AllocatedClaim) -> None:
    """Selectors are about what the driver of the devices publishes."""
    found = decided(asking(), claim, pools=published(**changed))

    assert isinstance(found, Wait)
    assert found.reason is Reason.GPU_NOT_FOUND
    assert claim.request is not None
    wanted = f"it selects {claim.request.selector}, and driver {DRIVER} publishes something else; "
    assert wanted in found.message
    assert NodeChanged("node1", Aspect.INVENTORY) in found.cured_by


@pytest.mark.promise("quota-1")
@pytest.mark.parametrize("count", [2, 3])
def test_the_gpus_of_a_claim_count_against_the_limit_of_its_namespace(count: int) -> None:
    """However the pod asks for them."""
    limits, _ = parse_limits("default: devices=2")
    found = decide(asking(), cluster_of(wanting(count)).limited(limits))

    assert isinstance(found, Bind) if count == 2 else getattr(found, "reason", "") == Reason.QUOTA_EXCEEDED


def test_a_device_of_another_driver_is_not_selected() -> None:
    """The class of the claim is that of one driver."""
    claim = wanting()
    assert claim.request is not None
    other = replace(claim.request, selector=DeviceSelector("gpu.agentaflow.io"))

    assert isinstance(decided(asking(), replace(claim, request=other)), Wait)


FAULTS: dict[str, tuple[Pod, Reason, tuple[str, ...]]] = {
    "a map": (asking(text="0=node1:0"), Reason.UNSUPPORTED, ("spec.resourceClaims", "gpu-scheduling-map")),
    "a count": (
        asking(annotations={"agentaflow.gpu/count": "1"}),
        Reason.UNSUPPORTED,
        ("spec.resourceClaims", "agentaflow.gpu/count"),
    ),
    "an observer": (
        asking(annotations={"agentaflow.gpu/observer": "true"}),
        Reason.UNSUPPORTED,
        ("agentaflow.gpu/observer",),
    ),
    "a part of a GPU": (
        asking(annotations={"agentaflow.gpu/exclusive": "false", "agentaflow.gpu/memory": "8192"}),
        Reason.UNSUPPORTED,
        ("agentaflow.gpu/exclusive", '"false"'),
    ),
    "a limit of a device plugin": (
        asking(gpu_limits=(("main", 1),)),
        Reason.UNSUPPORTED,
        ("nvidia.com/gpu", "1", '"main"'),
    ),
    "a container that uses a request of the claim": (
        asking(containers=(using("gpu"), using("gpu/gpus"))),
        Reason.UNSUPPORTED,
        ("resources.claims", '"gpu/gpus"', "claims: [{name: gpu}]"),
    ),
    "no container that uses the claim": (
        asking(containers=(using("other"), container(BY_FIELD))),
        Reason.REQUEST_INVALID,
        ('"gpu"', "resources: {claims: [{name: gpu}]}"),
    ),
}


@pytest.mark.promise("isolate-14")
@pytest.mark.parametrize(("pending", "reason", "named"), FAULTS.values(), ids=FAULTS)
def test_nothing_beside_a_claim_says_which_gpus(pending: Pod, reason: Reason, named: tuple[str, ...]) -> None:
    """The pod is refused, and its message says what to leave out."""
    fault = pending.request.fault
    assert fault is not None
    assert fault.reason == reason
    says(fault.message, reason, *named)

    assert isinstance(decided(pending, wanting()), Refuse)


GATE: dict[str, tuple[tuple[Container, ...], str]] = {
    "all containers use it": ((using("gpu"), using("gpu", name="b", position=1)), ""),
    "one of two uses it": ((using("gpu"), container(None, name="b", position=1)), ""),
    "one of two uses it, and the other has a variable": ((using("gpu"), container((visible("0"),), name="b")), ""),
    "an init container uses it": ((using("gpu", kind=ContainerKind.INIT), container(None)), ""),
    "a container that uses it has no variable": ((using("gpu", env=None),), "EnvNotInjected"),
    "a container that uses it has another value": ((using("gpu", env=(visible("0"), PCI)),), "EnvConflict"),
    "a debug container without variables": ((using("gpu"), container(None, ContainerKind.EPHEMERAL)), "EnvNotInjected"),
}


@pytest.mark.promise("isolate-14")
@pytest.mark.parametrize(("containers", "reason"), GATE.values(), ids=GATE)
def test_only_containers_that_use_the_claim_need_the_variables(containers: tuple[Container, ...], reason: str) -> None:
    """Others have no GPU, and see none."""
    found = decided(asking(containers=containers), wanting())

    assert isinstance(found, Bind) if not reason else getattr(found, "reason", "") == reason


def test_a_bound_pod_is_read_without_its_claim() -> None:
    """What it has was decided before."""
    there = asking(node="node1", annotations={"agentaflow.gpu/assigned-devices": gpu_uuid(1, 0)})

    assert (there.request.fault, there.request.claims, there.isolated) == (None, None, True)
    assert decided(there) is None
