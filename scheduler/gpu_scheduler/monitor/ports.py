"""Where readings come from and where they go to, as Protocols of one method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gpu_scheduler.monitor.readings import GpuReading, Report


class UnreadableError(Exception):
    """The GPUs of this node could not be looked at; the text says why."""


class GpuSource(Protocol):
    """Where a monitor's readings come from."""

    async def read(self) -> tuple[GpuReading, ...]:
        """One bounded look at every GPU of this node, in the order of their index; UnreadableError when it failed."""


class ReadingSink(Protocol):
    """Writes readings where others read them."""

    async def report(self, report: Report) -> str | None:
        """One bounded try; None: it stands there, else why not, for a retry; never raises for what the API said."""


class NodeLease(Protocol):
    """Says that what stands written of this node is still so."""

    async def renew(self) -> str | None:
        """One bounded try; None: done, else why not."""
