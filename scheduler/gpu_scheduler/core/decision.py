"""The decision as a value: bind, wait or refuse. Also: whether a pod needs a decision.

LAW: event, condition, log line, metric and journal are made from this value. No other code computes it again.
"""

from typing import Final

from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.filters.volumes import Selection
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.device_pools import DeviceId
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef, WorkloadKey

BY_MAP: Final = "map"
"""Stands for a strategy's name where a line of a placement map chose."""


@immutable
class ClaimAllocation:
    """A ResourceClaim of a pod, and what it is allocated."""

    name: str
    devices: tuple[DeviceId, ...]
    owner: Owner | None = None
    """The controller of the pods that have the claim one after another, or at once. None: the pod owns it alone."""
    of_user: AllocatedClaim | None = None
    """The claim, if its user made it: only its allocation is written."""


@immutable
class Bind:
    """The pod can be bound to `placement` now. `message` is the text of its `Scheduled` event."""

    pod: PodRef
    placement: Placement
    message: str
    strategy: str
    """What chose the placement: BY_MAP, or the name of a strategy."""
    reason: str
    """Why it chose this one: the index of the line, or the number in which a node and the next best differ."""
    claims: tuple[ClaimAllocation, ...] = ()
    """The ResourceClaims that are allocated first."""

    @property
    def assigned_reason(self) -> str:
        """Return the annotation of the Binding that says why the pod is where it is."""
        return f"{self.strategy}: {self.reason}"


@immutable
class Wait:
    """The pod cannot be placed now. Any cluster event of `cured_by` may change that.

    Two waits with the same `topic` have the same meaning. `selection` is the node to write into the pod's volume
    claims. `reserve` is the line (workload, index) that stays reserved for the pod while its volumes are provisioned.
    """

    pod: PodRef
    reason: Reason
    message: str
    cured_by: frozenset[ClusterEvent]
    topic: str
    selection: Selection | None = None
    reserve: tuple[WorkloadKey, int] | None = None


@immutable
class Refuse:
    """The pod's own text is at fault. Only a change of the pod is a remedy."""

    pod: PodRef
    reason: Reason
    message: str
    topic: str


Decision = Bind | Wait | Refuse


def read_assigned_reason(text: str) -> tuple[str, str]:
    """Read back `Bind.assigned_reason`: what chose the placement, and why. Both are empty if there is none."""
    strategy, _, reason = text.partition(": ")
    return strategy, reason


def awaits_placement(pod: Pod, policy: Policy) -> bool:
    """Whether this scheduler must place `pod` now.

    The pod has our schedulerName, and is not bound, finished, deleting or gated.
    """
    return (
        pod.scheduler_name == policy.scheduler_name
        and pod.node is None
        and not pod.gated
        and pod.deleting_since is None
        and not pod.finished
    )
