"""Which devices the ResourceClaims of a pod are allocated before it is bound.

LAW: a claim gets exactly the devices of its placement, by the names that the drivers of its node publish now.
"""

from dataclasses import dataclass

from gpu_scheduler.core.cluster_events import Aspect, NodeChanged
from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.refs import Owner


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """A ResourceClaim of a pod, and what it is allocated."""

    name: str
    devices: tuple[DeviceId, ...]
    owner: Owner | None = None
    """The controller of the pods that have the claim one after another, or at once. None: the pod owns it alone."""


def devices_published(placement: Placement, pools: DevicePools, policy: Policy) -> Unschedulable | None:
    """Check that a driver publishes each device of a pod with claims; the placement names devices by UUID."""
    for uuid in placement.devices:
        if pools.id_of(placement.node, uuid) is None:
            return Unschedulable(
                Reason.GPU_NOT_FOUND,
                f"cannot allocate GPU {uuid} of node {placement.node} to a ResourceClaim: no ResourceSlice has it",
                f"start the node's DRA driver; which there are: kubectl get resourceslices "
                f"--field-selector=spec.nodeName={placement.node}"
                if policy.reads_claims
                else "run the scheduler with ISOLATION=dra: it reads none now",
                frozenset({NodeChanged(placement.node, Aspect.INVENTORY)}),
            )
    return None


def allocations(pod: Pod, placement: Placement, pools: DevicePools) -> tuple[ClaimAllocation, ...]:
    """Return what the pod's claims are allocated; nothing if it has none. The devices must be published."""
    line = pod.request.line
    slot = None if line is None or placement.index is None else line.slot_of(placement.index)
    uuids = dict(zip(() if slot is None else slot.devices, placement.devices, strict=False))
    owner = pod.owner if pod.owner is not None and pod.owner.uid and pod.owner.api_version else None
    made = []
    for claim in pod.request.claims or ():
        # A claim whose devices are decided now is of this pod alone.
        named = [uuids[device] for device in claim.devices] or placement.devices
        devices = tuple(found for uuid in named if (found := pools.id_of(placement.node, uuid)) is not None)
        made.append(ClaimAllocation(claim.name, devices, owner if claim.devices else None))
    return tuple(made)
