"""What a monitor watches before it reads: the cordons of its node, and the wait until they are known."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from gpu_scheduler.core.nodes.cordons import Cordons
from gpu_scheduler.kube.resource import EventHandler
from gpu_scheduler.monitor.ports import GpuSource, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
    from gpu_scheduler.monitor.readings import GpuReading


class OwnCordons(EventHandler["NodeCordons"]):
    """The cordons of the monitor's node, as its GPUNode has them."""

    def __init__(self, node: str, wall: Callable[[], float] = time.time) -> None:
        """Start without cordons. `wall` returns the seconds since the epoch, by which cordons end."""
        self._node = node
        self._wall = wall
        self._cordons = Cordons()

    def applied(self, value: NodeCordons) -> None:
        """Store the cordons of a GPUNode."""
        self._cordons.put(value.node, value.cordons, self._wall())

    def forgotten(self, value: NodeCordons) -> None:
        """Remove the cordons of a GPUNode that is gone."""
        self._cordons.put(value.node, (), self._wall())

    def in_force(self) -> tuple[Cordon, ...]:
        """Return the cordons of the node that are in force now."""
        return self._cordons.in_force(self._node, self._wall())


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
