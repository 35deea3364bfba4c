"""What the reconcilers need of the outside, as Protocols of one method; the tests' fakes fit them and can refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpu_scheduler.controller.gpu_node_status import Allocations
    from gpu_scheduler.controller.gpu_workload import GpuWorkload, WorkloadStatus
    from gpu_scheduler.controller.workload_status import CreateFailure


class PodMaker(Protocol):
    """Makes the pods of workloads."""

    async def make(self, workload: GpuWorkload, number: int) -> CreateFailure | None:
        """Have this try's pod, made now or before; None: it is there. One bounded try, which never raises for it."""


class WorkloadWriter(Protocol):
    """Tells workloads' owners."""

    async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
        """Write over the status that was read; the workload as it is then, None where it did not come to that."""


class NodeWriter(Protocol):
    """Tells what of a node is taken."""

    async def write(self, name: str, occupied: Allocations) -> bool:
        """Write this part of a GPUNode's status and no other; whether that was done."""
