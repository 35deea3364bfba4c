"""What the operator chose, for all pods."""

from dataclasses import dataclass
from enum import StrEnum

from gpu_scheduler import names


class Sharing(StrEnum):
    """When two pods may hold one device (`GPU_SHARING`)."""

    SAME_WORKLOAD = "same-workload"
    """Where two different lines of their common map name it, or both pods say `agentaflow.gpu/sharing: any`."""
    ANY = "any"
    NONE = "none"
    """Never, whatever the pods say: the operator's word is the last."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator chose."""

    scheduler_name: str = names.SCHEDULER_NAME
    sharing: Sharing = Sharing.SAME_WORKLOAD
    utilization_goal: int = 80
    """Percent: a card that is busier gets no pod by strategy."""
