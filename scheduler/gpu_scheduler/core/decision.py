"""The decision as a value: bind, wait or refuse; and whether a pod awaits one.

LAW: event, condition, log line, metric and journal are made from this value; nothing computes it again.
"""

from dataclasses import dataclass

from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.filters.volumes import Selection
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef, WorkloadKey


@dataclass(frozen=True, slots=True)
class Bind:
    """The pod can go there now. `message` is the text of its `Scheduled` event."""

    pod: PodRef
    placement: Placement
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The cluster is not ready for this pod; any of `cured_by` may change that.

    Waits with one `topic` say the same. `selection` is what to write into the pod's claims meanwhile, `reserve` the
    line that is to be kept for it while its volumes are made.
    """

    pod: PodRef
    reason: Reason
    message: str
    cured_by: frozenset[ClusterEvent]
    topic: str
    selection: Selection | None = None
    reserve: tuple[WorkloadKey, int] | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The pod's own text is at fault; only a change of the pod cures it."""

    pod: PodRef
    reason: Reason
    message: str
    topic: str


Decision = Bind | Wait | Refuse


def awaits_placement(pod: Pod, policy: Policy) -> bool:
    """Whether `pod` is ours to place now: our scheduler's name, and neither bound, finished, deleting nor gated."""
    return (
        pod.scheduler_name == policy.scheduler_name
        and pod.node is None
        and not pod.gated
        and pod.deleting_since is None
        and not pod.finished
    )
