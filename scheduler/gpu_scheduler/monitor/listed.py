"""The wait until what a source relies on has been listed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gpu_scheduler.monitor.ports import GpuSource, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_scheduler.monitor.readings import GpuReading


class ListedFirst(GpuSource):
    """Reads from another source when all that this source relies on has been listed."""

    def __init__(self, source: GpuSource, needed: Mapping[str, asyncio.Event], *, deadline: float) -> None:
        """`needed` has an event for each kind of object, set when it is listed. A reading waits `deadline` seconds."""
        self._source = source
        self._needed = needed
        self._deadline = deadline

    async def read(self) -> tuple[GpuReading, ...]:
        """Implement GpuSource.read. UnreadableError also if something has not been listed."""
        try:
            async with asyncio.timeout(self._deadline):
                for listed in self._needed.values():
                    await listed.wait()
        except TimeoutError:
            missing = " and ".join(name for name, listed in self._needed.items() if not listed.is_set())
            raise UnreadableError(f"the {missing} of this node have not been listed yet") from None
        return await self._source.read()
