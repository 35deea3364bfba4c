"""Why a pod is refused or waits, and what could cure it.

LAW: one word per reason, the same in message, command line, metric label and documentation; a Fault carries all that
can be said of it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpu_scheduler.core.cluster_events import ClusterEvent
from gpu_scheduler.core.text import sentence


class Reason(StrEnum):
    """The closed list. The value is the word that users see."""

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
    GPU_UNHEALTHY = "GpuUnhealthy"
    NOT_ENOUGH_GPUS = "NotEnoughGpus"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INSUFFICIENT_GPU_MEMORY = "InsufficientGpuMemory"
    ENV_NOT_INJECTED = "EnvNotInjected"
    ENV_CONFLICT = "EnvConflict"
    BIND_FAILED = "BindFailed"


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
"""Faults of the pod's own text: the webhook refuses them; where one slipped by, only a change of the pod cures it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a pod's own text, and what its owner can do."""

    reason: Reason
    what: str
    remedy: str

    @property
    def message(self) -> str:
        """The text of condition, event, log line and refusal; it begins with the reason's word and a colon."""
        return sentence(self.reason, self.what, self.remedy)

    @property
    def topic(self) -> str:
        """Two with one topic are the same: it is written once."""
        return f"{self.reason}: {self.what}"


@dataclass(frozen=True, slots=True)
class Unschedulable(Fault):
    """One reason why a pod cannot be placed now, and which changes of the cluster may help.

    `about` is what makes it the same next time, where `what` has numbers that change by the minute.
    """

    cured_by: frozenset[ClusterEvent] = frozenset()
    about: str = ""

    @property
    def topic(self) -> str:
        """See Fault."""
        return f"{self.reason}: {self.about or self.what}"
