"""The monitor's loop: read the node's GPUs, write what is news, and say that what stands written is still so.

A heart beats only after a look that succeeded and with nothing left to write: whoever reads a node whose heart has
stopped knows that nobody knows how its GPUs are. No failure ends the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import GpuReading, Report, reason_to_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.monitor.ports import GpuSource, NodeLease, ReadingSink

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MonitorTimings:
    """Seconds: between two looks, and until what stands written is written again, lest somebody else took it away."""

    interval: float = 15.0
    resync: float = 60.0


@dataclass(slots=True)
class _Sink:
    """One reporter, and what it wrote last."""

    name: str
    reporter: ReadingSink
    needed: bool
    """Without it nothing of this node can be believed."""
    told: tuple[GpuReading, ...] | None = None
    at: str = ""
    written: float = field(default=0.0)


class Monitor:
    """Looks at one node's GPUs for ever."""

    def __init__(  # noqa: PLR0913 - the ports, and the two clocks that tests turn
        self,
        source: GpuSource,
        node: ReadingSink,
        mirror: ReadingSink,
        heart: NodeLease,
        *,
        goal: int,
        cadence: MonitorTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`node` is where the scheduler reads; `mirror` is for people and may fail."""
        self._source = source
        self._desks = (_Sink("node", node, needed=True), _Sink("GPUNode", mirror, needed=False))
        self._heart = heart
        self._goal = goal
        self._cadence = cadence or MonitorTimings()
        self._clock = clock
        self._wall = wall
        self._beat = clock()
        self.gpus: tuple[GpuReading, ...] = ()
        """As they were last read."""
        self.problem: str | None = "nothing has been read yet"
        """Why nobody should believe what stands written of this node."""

    @property
    def pulse(self) -> float:
        """Seconds since the loop last came round."""
        return self._clock() - self._beat

    async def run(self) -> None:
        """Look, wait out the interval, and again; ends only by cancellation."""
        while True:
            self._beat = began = self._clock()
            try:
                problem = await self.look()
            except Exception:
                log.exception("Looking ended in an error of our own")
                problem = "looking ended in an error of our own"
            self._note(problem)
            await asyncio.sleep(max(0.0, began + self._cadence.interval - self._clock()))

    async def look(self) -> str | None:
        """Read once and write what is news; answers what went wrong."""
        try:
            self.gpus = gpus = await self._source.read()
        except UnreadableError as error:
            return str(error)
        problems = [await self._write(desk, gpus) for desk in self._desks]
        needed = [problem for problem, desk in zip(problems, self._desks, strict=True) if desk.needed and problem]
        return needed[0] if needed else await self._heart.beat()

    async def _write(self, desk: _Sink, gpus: tuple[GpuReading, ...]) -> str | None:
        """Write where it is news, or long ago; answers why it could not."""
        why = "nothing stands there yet" if desk.told is None else reason_to_write(desk.told, gpus, self._goal)
        if why is None and self._clock() < desk.written + self._cadence.resync:
            return None
        if why is not None:
            desk.told, desk.at = gpus, self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        # What is written again unchanged, its time included, is no change for the API server.
        problem = await desk.reporter.report(Report(desk.told or (), desk.at))
        if problem is not None:
            desk.told = None
            log.warning("Writing failed", extra={"object": desk.name, "error": problem})
            return problem
        desk.written = self._clock()
        if why is not None:
            log.info("Written", extra={"object": desk.name, "why": why})
        return None

    def _note(self, problem: str | None) -> None:
        """Tell when it begins, changes and ends, not every time."""
        if problem != self.problem:
            if problem is not None:
                log.warning("What stands written of this node grows old", extra={"error": problem})
            else:
                log.info("The node's GPUs are read and written", extra={"gpus": len(self.gpus)})
        self.problem = problem
