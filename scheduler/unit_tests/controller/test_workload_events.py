"""The events of a GPUWorkload: one for each change that a user would want to read."""

from dataclasses import replace

import pytest

from gpu_scheduler.controller.gpu_workload import Phase, WorkloadStatus
from gpu_scheduler.controller.workload_events import WorkloadEvent, event_of

NEW = WorkloadStatus()
MADE = WorkloadStatus(pod="tune-0")
HELD = replace(MADE, reason="GpuHeld", message="GpuHeld: GPU 0 of node1 is held by ml/a-0; wait")
SCHEDULED = replace(MADE, phase=Phase.SCHEDULED, node="node1", devices=("0", "1"))
RUNNING = replace(SCHEDULED, phase=Phase.RUNNING)
SUCCEEDED = replace(SCHEDULED, phase=Phase.SUCCEEDED)
FAILED = replace(SCHEDULED, phase=Phase.FAILED, reason="OOMKilled", message="OOMKilled: it took too much; see logs")
REFUSED = WorkloadStatus(reason="RequestInvalid", message="RequestInvalid: cannot make pod ml/tune-0: no")

CASES: dict[str, tuple[WorkloadStatus | None, WorkloadStatus, WorkloadEvent | None]] = {
    "nothing yet": (None, NEW, None),
    "its pod is created": (NEW, MADE, WorkloadEvent("SuccessfulCreate", "Creating", "Created pod tune-0")),
    "its pod is refused": (NEW, REFUSED, WorkloadEvent("FailedCreate", "Creating", REFUSED.message, warning=True)),
    "its pod waits": (MADE, HELD, WorkloadEvent("FailedScheduling", "Scheduling", HELD.message, warning=True)),
    "other numbers": (HELD, replace(HELD, message="GpuHeld: GPU 0 of node1 is held by ml/b-0; wait"), None),
    "it waits no more": (HELD, MADE, None),
    "it is scheduled": (HELD, SCHEDULED, WorkloadEvent("Scheduled", "Scheduling", "pod tune-0 has GPU 0,1 of node1")),
    "it runs": (SCHEDULED, RUNNING, WorkloadEvent("Started", "Running", "pod tune-0 runs with GPU 0,1 of node1")),
    "it asks for no GPU": (
        SCHEDULED,
        replace(RUNNING, devices=()),
        WorkloadEvent("Started", "Running", "pod tune-0 runs with no GPU of node1"),
    ),
    "it has succeeded": (RUNNING, SUCCEEDED, WorkloadEvent("Completed", "Completing", "pod tune-0 has succeeded")),
    "it has failed": (RUNNING, FAILED, WorkloadEvent("Failed", "Completing", FAILED.message, warning=True)),
    "the next try": (
        FAILED,
        replace(MADE, pod="tune-1"),
        WorkloadEvent("SuccessfulCreate", "Creating", "Created pod tune-1"),
    ),
}


@pytest.mark.promise("order-10")
@pytest.mark.parametrize(("before", "after", "event"), CASES.values(), ids=CASES)
def test_a_change_has_an_event(
    before: WorkloadStatus | None, after: WorkloadStatus, event: WorkloadEvent | None
) -> None:
    """A message whose numbers change has none."""
    assert event_of(before, after) == event
