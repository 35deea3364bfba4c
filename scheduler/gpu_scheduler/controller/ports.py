"""The writers that the reconcilers use, as Protocols with one method each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpu_scheduler.controller.gpu_node_status import Allocations, GpuNode
    from gpu_scheduler.controller.gpu_workload import GpuWorkload, WorkloadStatus
    from gpu_scheduler.controller.workload_events import WorkloadEvent
    from gpu_scheduler.controller.workload_status import CreateFailure


class PodMaker(Protocol):
    """Creates the pods of workloads."""

    async def make(self, workload: GpuWorkload, number: int) -> CreateFailure | None:
        """Create the pod of attempt `number` in one try with a time-out.

        Return None if the pod exists, created now or before, else the reason. A failed request raises nothing.
        """


class WorkloadWriter(Protocol):
    """Writes the status of workloads."""

    async def write(self, workload: GpuWorkload, status: WorkloadStatus) -> GpuWorkload | None:
        """Replace the status that was read. Return the workload after the write, or None if it failed."""


class WorkloadEventWriter(Protocol):
    """Writes events of workloads."""

    async def record(self, workload: GpuWorkload, event: WorkloadEvent) -> None:
        """Try once to write the event, with a time-out. A failure is logged and raises nothing."""


class NodeWriter(Protocol):
    """Writes which devices of a node are held, and deletes the GPUNode of a node that is gone."""

    async def write(self, name: str, occupied: Allocations) -> bool:
        """Write only this part of a GPUNode's status. Return whether the write succeeded."""

    async def delete(self, gpu_node: GpuNode) -> bool:
        """Delete exactly the version that was read, if its node does not exist. Return False if that has failed."""
