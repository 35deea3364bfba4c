"""`gpu-scheduler` with a fault built in: it dies, as by kill -9, at the place that DIES_AT names.

`made`: a pod is made, and nobody hears the answer. `told`: the pod shows, and its workload's status is about to be
written. For the controller's tests only.
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
    """Make the pod and die."""
    trouble = await healthy(pods, workload, number)
    assert trouble is None
    os.kill(os.getpid(), signal.SIGKILL)
    return trouble


async def told(workloads: ApiWorkloads, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)
    return None


if __name__ == "__main__":
    if os.environ["DIES_AT"] == "made":
        ApiPods.make = made  # type: ignore[method-assign, assignment]  # the fault
    else:
        ApiWorkloads.write = told  # type: ignore[method-assign, assignment]  # the fault
    main()
