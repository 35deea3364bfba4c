"""Why a pod is refused or waits, and what could cure it.

LAW: one word per reason, the same in message, command line, metric label and documentation; an obstacle carries all
that can be said of it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gpu_scheduler.core.model import WorkloadKey
from gpu_scheduler.core.text import sentence


class Reason(StrEnum):
    """The closed list. The value is the word that users see."""

    MAP_INVALID = "MapInvalid"
    NOTHING_REQUESTED = "NothingRequested"
    UNSUPPORTED = "Unsupported"
    INDEX_UNKNOWN = "IndexUnknown"
    INDEX_NOT_IN_MAP = "IndexNotInMap"
    INDEX_HELD = "IndexHeld"
    NODE_NOT_FOUND = "NodeNotFound"
    NODE_AMBIGUOUS = "NodeAmbiguous"
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    GPU_HELD = "GpuHeld"
    ENV_NOT_INJECTED = "EnvNotInjected"
    ENV_CONFLICT = "EnvConflict"
    BIND_FAILED = "BindFailed"


REFUSED_AT_ADMISSION: Final = frozenset(
    {
        Reason.MAP_INVALID,
        Reason.UNSUPPORTED,
        Reason.INDEX_UNKNOWN,
        Reason.INDEX_NOT_IN_MAP,
        Reason.ENV_CONFLICT,
    }
)
"""Faults of the pod's own text: the webhook refuses them; where one slipped by, only a change of the pod cures it."""


@dataclass(frozen=True, slots=True)
class GpuChanged:
    """A device of a real node became free, or what holds it changed."""

    node: str
    device: str


@dataclass(frozen=True, slots=True)
class IndexChanged:
    """An index of a workload became free, or what holds it changed."""

    workload: WorkloadKey
    index: int


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """Something about the node with this name or alias changed that a placement asks about."""

    name: str


Wake = GpuChanged | IndexChanged | NodeChanged
"""What can cure a wait. That a change of the pod itself can goes without saying."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason why a pod cannot be placed: what is the case, what its owner can do, and which changes may help."""

    reason: Reason
    what: str
    cure: str
    wakes: frozenset[Wake] = frozenset()

    @property
    def message(self) -> str:
        """The text of condition, event, log line and refusal; it begins with the reason's word and a colon."""
        return sentence(self.reason, self.what, self.cure)
