"""The source and the sinks of readings, as Protocols with one method each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpu_scheduler.monitor.readings import GpuReading, Report


class UnreadableError(Exception):
    """The GPUs of this node could not be read; the text says why."""


class GpuSource(Protocol):
    """Reads the GPUs of the monitor's node."""

    async def read(self) -> tuple[GpuReading, ...]:
        """Read every GPU of this node once, within a deadline, in order of index. UnreadableError if that fails."""


class ReadingSink(Protocol):
    """Writes readings to an object of the API."""

    async def report(self, report: Report) -> str | None:
        """Write in one try with a time-out. Return None if it succeeded, else why not.

        An error of the API is returned, not raised; the caller retries.
        """


class NodeLease(Protocol):
    """The Lease whose renewals show that the values written for this node are current."""

    async def renew(self) -> str | None:
        """Renew in one try with a time-out. Return None if it succeeded, else why not."""
