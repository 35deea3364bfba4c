"""Which devices the ResourceClaims of a pod are allocated before it is bound, and what its own claim asks for.

LAW: a claim gets exactly the devices of its placement, by the names that the drivers of its node publish now. A claim
of a user gets only devices that its selectors accept, as their driver publishes them.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import Aspect, NodeChanged, ResourceClaimChanged
from gpu_scheduler.core.decision import ClaimAllocation
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import UUIDS_KNOWN, DeviceId, DevicePools
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import CountRequest
from gpu_scheduler.core.pods.device_selector import ANY_DEVICE, EXAMPLE, DeviceSelector
from gpu_scheduler.core.pods.own_claim import ClaimRequest
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import number_of

_USE_MAP: Final = f"use annotation {names.MAP} instead of a claim"


def gpus_asked(pod: Pod, cluster: Cluster) -> CountRequest | Unschedulable:
    """Return what a pod without a map asks for, as its own ResourceClaim says if it has one."""
    own = pod.request.own_claim
    if own is None:
        return pod.request.count
    if not cluster.policy.reads_claims:
        what = "cannot place a pod by spec.resourceClaims: this scheduler does not read ResourceClaims"
        return Unschedulable(Reason.UNSUPPORTED, what, f"run it with ISOLATION=dra, or {made_anew(_USE_MAP)}")
    if not own.name:
        what = f"cannot find the ResourceClaim of entry {own.entry}: it is not made from its template yet"
        return Unschedulable(
            Reason.GPU_NOT_FOUND, what, "wait, or create the template; kube-controller-manager makes it"
        )
    asked = _asked_by(cluster.claims.find(pod.ref.namespace, own.name), f"{pod.ref.namespace}/{own.name}", pod.ref.uid)
    if isinstance(asked, Unschedulable):
        return asked
    return replace(pod.request.count, count=asked.count, selector=asked.selector)


def _asked_by(claim: AllocatedClaim | None, name: str, pod: str) -> ClaimRequest | Unschedulable:
    """Return what the claim of a user asks for, or why the pod with this uid cannot have it."""
    changed = frozenset({ResourceClaimChanged(name)})
    if claim is None:
        what = f"cannot find ResourceClaim {name}, which says the pod's GPUs"
        return Unschedulable(Reason.GPU_NOT_FOUND, what, "create it", changed)
    if claim.request is None:
        what = f"cannot place a pod by ResourceClaim {name}: {claim.unread}"
        remedy = f"recreate the claim (example of a selector: {EXAMPLE}), or {made_anew(_USE_MAP)}"
        return Unschedulable(Reason.UNSUPPORTED, what, remedy, changed)
    if claim.devices and claim.pods != (pod,):
        others = number_of(sum(uid != pod for uid in claim.pods), "other pod")
        what = f"cannot use ResourceClaim {name}: its GPUs are allocated for {others}, and a claim is given to one pod"
        remedy = "wait until it is free, or give each pod a claim by resourceClaimTemplateName"
        return Unschedulable(Reason.GPU_HELD, what, remedy, changed)
    return claim.request


def claims_allocatable(
    pod: Pod, placement: Placement, node: Node, cluster: Cluster, selector: DeviceSelector = ANY_DEVICE
) -> Unschedulable | None:
    """Check that the pod's claims can be allocated the devices of its placement. A pod without claims passes."""
    if not pod.isolated:
        return None
    return _uuids_known(placement, node) or _published(placement, cluster, selector)


def _uuids_known(placement: Placement, node: Node) -> Unschedulable | None:
    """Check that the node's inventory has the UUIDs of these devices, by which claims name them."""
    inventory = node.inventory
    if not placement.devices or (inventory is not None and inventory.uuids(placement.devices) is not None):
        return None
    return Unschedulable(
        Reason.GPU_NOT_FOUND,
        f"cannot find the UUID of GPU {placement.devices[0]} on node {node.name}, which a ResourceClaim needs: "
        f"{'it has no inventory' if inventory is None else 'its inventory does not have it'}",
        UUIDS_KNOWN,
        frozenset({NodeChanged(node.name, Aspect.INVENTORY)}),
    )


def _published(placement: Placement, cluster: Cluster, selector: DeviceSelector) -> Unschedulable | None:
    """Check that a driver publishes each device, and as `selector` asks. The placement names devices by UUID."""
    for uuid in placement.devices:
        found = cluster.pools.find(placement.node, uuid)
        if found is None:
            return Unschedulable(
                Reason.GPU_NOT_FOUND,
                f"cannot allocate GPU {uuid} of node {placement.node} to a ResourceClaim: no ResourceSlice has it",
                f"start the node's DRA driver; which there are: kubectl get resourceslices "
                f"--field-selector=spec.nodeName={placement.node}"
                if cluster.policy.reads_claims
                else "run the scheduler with ISOLATION=dra: it reads none now",
                frozenset({NodeChanged(placement.node, Aspect.INVENTORY)}),
            )
        if not found.selected(selector):
            return Unschedulable(
                Reason.GPU_NOT_FOUND,
                f"cannot allocate GPU {uuid} of node {placement.node} to the pod's ResourceClaim: it selects "
                f"{selector}, and driver {found.id.driver} publishes something else",
                "select GPUs by attributes that their driver publishes: kubectl get resourceslices -o yaml",
                frozenset({NodeChanged(placement.node, Aspect.INVENTORY)}),
            )
    return None


def allocations(pod: Pod, placement: Placement, cluster: Cluster) -> tuple[ClaimAllocation, ...]:
    """Return what the pod's claims are allocated; nothing if it has none. The devices must be allocatable."""
    if not pod.isolated:
        return ()
    own = None if pod.request.own_claim is None else cluster.claims.find(pod.ref.namespace, pod.request.own_claim.name)
    if own is not None:
        return (ClaimAllocation(own.name, _ids(placement, placement.devices, cluster.pools), of_user=own),)
    line = pod.request.line
    slot = None if line is None or placement.index is None else line.slot_of(placement.index)
    uuids = dict(zip(() if slot is None else slot.devices, placement.devices, strict=False))
    owner = pod.owner if pod.owner is not None and pod.owner.uid and pod.owner.api_version else None
    made = []
    for claim in pod.request.claims or ():
        # A claim whose devices are decided now is of this pod alone.
        named = [uuids[device] for device in claim.devices] or placement.devices
        made.append(
            ClaimAllocation(claim.name, _ids(placement, named, cluster.pools), owner if claim.devices else None)
        )
    return tuple(made)


def _ids(placement: Placement, uuids: Iterable[str], pools: DevicePools) -> tuple[DeviceId, ...]:
    return tuple(found.id for uuid in uuids if (found := pools.find(placement.node, uuid)) is not None)
