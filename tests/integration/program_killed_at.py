"""`gpu-scheduler` that kills itself with SIGKILL at the step that DIES_AT names. For the controller's tests only.

`made`: the pod is created, and the controller has not processed the answer. `reported`: the pod exists, and the
controller is about to write the status of its workload.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from gpu_scheduler.cli.main import main
from gpu_scheduler.controller.api_writers import ApiPods, ApiWorkloads

if TYPE_CHECKING:
    from gpu_scheduler.controller.gpu_workload import GpuWorkload, WorkloadStatus
    from gpu_scheduler.controller.workload_status import CreateFailure

healthy = ApiPods.make


async def made(pods: ApiPods, workload: GpuWorkload, number: int) -> CreateFailure | None:
    """Create the pod, then kill this process."""
    damage = await healthy(pods, workload, number)
    assert damage is None
    os.kill(os.getpid(), signal.SIGKILL)
    return damage


async def reported(workloads: ApiWorkloads, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
    """Kill this process instead of writing the status."""
    os.kill(os.getpid(), signal.SIGKILL)
    return None


if __name__ == "__main__":
    if os.environ["DIES_AT"] == "made":
        ApiPods.make = made  # type: ignore[method-assign, assignment]  # the fault
    else:
        ApiWorkloads.write = reported  # type: ignore[method-assign, assignment]  # the fault
    main()
