"""The events of a GPUWorkload, derived from its status before and after a write.

LAW: one event for each change of phase, pod or reason. A message whose numbers change is no event.
"""

from gpu_scheduler.controller.gpu_workload import Phase, WorkloadStatus
from gpu_scheduler.core.immutable import immutable


@immutable
class WorkloadEvent:
    """One event. `reason` is one word, `action` what was done or tried, `note` the sentence."""

    reason: str
    action: str
    note: str
    warning: bool = False


def event_of(before: WorkloadStatus | None, after: WorkloadStatus) -> WorkloadEvent | None:
    """Return the event of a status that was written over `before`, or None if nothing worth one has changed."""
    earlier = before or WorkloadStatus()
    if (earlier.phase, earlier.pod, earlier.reason) == (after.phase, after.pod, after.reason):
        return None
    if after.phase is Phase.PENDING:
        return _pending(earlier, after)
    devices = f"GPU {','.join(after.devices)}" if after.devices else "no GPU"
    return {
        Phase.SCHEDULED: WorkloadEvent("Scheduled", "Scheduling", f"pod {after.pod} has {devices} of {after.node}"),
        Phase.RUNNING: WorkloadEvent("Started", "Running", f"pod {after.pod} runs with {devices} of {after.node}"),
        Phase.SUCCEEDED: WorkloadEvent("Completed", "Completing", f"pod {after.pod} has succeeded"),
        Phase.FAILED: WorkloadEvent("Failed", "Completing", after.message, warning=True),
    }[after.phase]


def _pending(earlier: WorkloadStatus, after: WorkloadStatus) -> WorkloadEvent | None:
    """Return the event of a workload without a pod, or whose pod has no node."""
    if after.reason:
        reason, action = ("FailedScheduling", "Scheduling") if after.pod else ("FailedCreate", "Creating")
        return WorkloadEvent(reason, action, after.message, warning=True)
    if after.pod and after.pod != earlier.pod:
        return WorkloadEvent("SuccessfulCreate", "Creating", f"Created pod {after.pod}")
    return None
