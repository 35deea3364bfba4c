"""The reasons why a pod is refused or waits, and the cluster events that could change that.

LAW: a reason is one word. Messages, command line, metric labels and documentation use the same word. A Fault carries
everything that these texts say about one reason.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.text import sentence


class Reason(StrEnum):
    """The closed list of reasons. The value is the word that users see."""

    MAP_INVALID = "MapInvalid"
    REQUEST_INVALID = "RequestInvalid"
    NOTHING_REQUESTED = "NothingRequested"
    UNSUPPORTED = "Unsupported"
    INDEX_UNKNOWN = "IndexUnknown"
    INDEX_NOT_IN_MAP = "IndexNotInMap"
    INDEX_HELD = "IndexHeld"
    NO_FREE_INDEX = "NoFreeIndex"
    NODE_NOT_FOUND = "NodeNotFound"
    NODE_AMBIGUOUS = "NodeAmbiguous"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    PORT_IN_USE = "PortInUse"
    VOLUME_NOT_BOUND = "VolumeNotBound"
    GPU_NOT_FOUND = "GpuNotFound"
    GPU_HELD = "GpuHeld"
    GPU_CORDONED = "GpuCordoned"
    GPU_UNHEALTHY = "GpuUnhealthy"
    NOT_ENOUGH_GPUS = "NotEnoughGpus"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INSUFFICIENT_GPU_MEMORY = "InsufficientGpuMemory"
    ENV_NOT_INJECTED = "EnvNotInjected"
    ENV_CONFLICT = "EnvConflict"
    BIND_FAILED = "BindFailed"


RankedReason = tuple[Reason, bool]
"""A reason, and whether the pod asks for more than there is in all, so that no waiting helps."""

RANKING: Final[tuple[RankedReason, ...]] = (
    # The pod's own text is at fault: only a pod made anew is a remedy.
    (Reason.MAP_INVALID, False),
    (Reason.REQUEST_INVALID, False),
    (Reason.UNSUPPORTED, False),
    (Reason.NOTHING_REQUESTED, False),
    (Reason.INDEX_UNKNOWN, False),
    (Reason.INDEX_NOT_IN_MAP, False),
    (Reason.ENV_CONFLICT, False),
    (Reason.ENV_NOT_INJECTED, False),
    # No waiting helps.
    (Reason.NODE_NOT_FOUND, False),
    (Reason.NODE_AMBIGUOUS, False),
    (Reason.GPU_NOT_FOUND, False),
    (Reason.NODE_AFFINITY_MISMATCH, False),
    (Reason.INSUFFICIENT_GPU_MEMORY, False),
    (Reason.INSUFFICIENT_RESOURCES, True),
    (Reason.NOT_ENOUGH_GPUS, True),
    (Reason.QUOTA_EXCEEDED, True),
    # Closed or broken, until somebody acts.
    (Reason.TAINT_NOT_TOLERATED, False),
    (Reason.NODE_UNSCHEDULABLE, False),
    (Reason.GPU_CORDONED, False),
    (Reason.GPU_UNHEALTHY, False),
    # It ends by itself when others end.
    (Reason.INDEX_HELD, False),
    (Reason.NO_FREE_INDEX, False),
    (Reason.QUOTA_EXCEEDED, False),
    (Reason.GPU_HELD, False),
    (Reason.NODE_NOT_READY, False),
    (Reason.NOT_ENOUGH_GPUS, False),
    (Reason.INSUFFICIENT_RESOURCES, False),
    (Reason.PORT_IN_USE, False),
    (Reason.VOLUME_NOT_BOUND, False),
    (Reason.BIND_FAILED, False),
)
"""Of several reasons why a pod waits, the first in this order is reported. docs/reasons.md has the same order."""

_RANKS: Final = {reason: rank for rank, reason in enumerate(RANKING)}
_FIRST_TEMPORARY: Final = _RANKS[Reason.TAINT_NOT_TOLERATED, False]


def rank_of(reason: RankedReason) -> int:
    """Return the position in RANKING: of several reasons, the one with the lowest number is reported."""
    return _RANKS[reason]


def is_permanent(reason: RankedReason) -> bool:
    """Whether no waiting helps: the pod or the nodes must be changed."""
    return _RANKS[reason] < _FIRST_TEMPORARY


REFUSED_AT_ADMISSION: Final = frozenset(
    {
        Reason.MAP_INVALID,
        Reason.REQUEST_INVALID,
        Reason.UNSUPPORTED,
        Reason.INDEX_UNKNOWN,
        Reason.INDEX_NOT_IN_MAP,
        Reason.ENV_CONFLICT,
    }
)
"""Faults of the pod's own text. The webhook refuses such a pod. If the pod was created without the webhook, the
scheduler refuses it, and only a change of the pod is a remedy."""


@immutable
class Fault:
    """What is wrong with a pod's own text, and the remedy for its owner."""

    reason: Reason
    what: str
    remedy: str

    @property
    def message(self) -> str:
        """Return the text of condition, event, log line and refusal. It begins with the topic."""
        return sentence(self.reason, self.what, self.remedy)

    @property
    def topic(self) -> str:
        """Return how the message begins: the reason's word, a colon, and what does not change every minute.

        A message is written again only if its topic has changed.
        """
        return f"{self.reason}: {self.what}"


@immutable
class Unschedulable(Fault):
    """One reason why a pod cannot be placed now, and the cluster events that may change it.

    `detail` follows `what` in the message: numbers that change every minute, or other holders than the first. `beyond`
    is true if the pod asks for more than there is in all, so that no waiting helps. `command` would cure it
    and needs no choice, if there is one. `blockers` are the pods whose end would cure it.
    """

    cured_by: frozenset[ClusterEvent] = frozenset()
    detail: str = ""
    beyond: bool = False
    command: str = ""
    blockers: tuple[PodRef, ...] = ()

    @property
    def message(self) -> str:
        """Return the text of condition, event and log line."""
        return sentence(self.reason, self.what + self.detail, self.remedy)

    @property
    def ranked_reason(self) -> RankedReason:
        """Return what decides which of several is reported."""
        return self.reason, self.beyond


def highest_ranked(found: Iterable[Unschedulable | None]) -> Unschedulable | None:
    """Return the one that is reported; of equal ranks the first. None if all are None."""
    obstacles = [each for each in found if each is not None]
    return min(obstacles, key=lambda each: rank_of(each.ranked_reason)) if obstacles else None
