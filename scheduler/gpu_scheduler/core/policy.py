"""What the operator has set, and which rights the scheduler lacks, for all pods."""

from enum import StrEnum

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable


class Sharing(StrEnum):
    """When two pods may hold one device (`GPU_SHARING`)."""

    SAME_WORKLOAD = "same-workload"
    """If two different lines of their common map name it, or if both pods have `agentaflow.gpu/sharing: any`."""
    ANY = "any"
    NONE = "none"
    """Never, even if both pods have `agentaflow.gpu/sharing: any`: the operator's setting has precedence."""


@immutable
class Policy:
    """The operator's settings, and the missing rights, that a decision reads."""

    scheduler_name: str = names.SCHEDULER_NAME
    sharing: Sharing = Sharing.SAME_WORKLOAD
    utilization_goal: int = 80
    """Percent. A strategy gives no pod to a device whose utilization is higher."""
    unread_storage: str = ""
    """The rights to read claims, volumes and storage classes that are missing, as text; empty if none is."""
    unwritten_claims: str = ""
    """The right to write the selected node into a claim, as text, if it is missing; otherwise empty."""
    reads_claims: bool = False
    """Whether ResourceSlices and ResourceClaims are read (`ISOLATION`)."""
    unread_monitors: bool = False
    """Whether the right to read the monitors' Leases is missing: whether their readings are current is unknown then."""
