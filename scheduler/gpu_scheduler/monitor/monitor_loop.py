"""The monitor's loop: reads the devices of its node, writes what changed, and renews the node's Lease.

LAW: the Lease is renewed only after a reading that succeeded and with nothing left to write. Where it expires, nobody
knows how the devices are. No failure ends the loop.
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
    """Where readings are written, and what was written last."""

    name: str
    target: ReadingSink
    needed: bool
    """Without it nothing of this node can be believed."""
    last_written: tuple[GpuReading, ...] | None = None
    at: str = ""
    written: float = field(default=0.0)


class Monitor:
    """Looks at one node's GPUs for ever."""

    def __init__(  # noqa: PLR0913 - the ports, and the two clocks that tests turn
        self,
        source: GpuSource,
        node: ReadingSink,
        mirror: ReadingSink,
        node_lease: NodeLease,
        *,
        goal: int,
        timings: MonitorTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`node` is where the scheduler reads; `mirror` is for people and may fail."""
        self._source = source
        self._sinks = (_Sink("node", node, needed=True), _Sink("GPUNode", mirror, needed=False))
        self._node_lease = node_lease
        self._goal = goal
        self._timings = timings or MonitorTimings()
        self._clock = clock
        self._wall = wall
        self._heartbeat = clock()
        self.gpus: tuple[GpuReading, ...] = ()
        """As they were last read."""
        self.problem: str | None = "nothing has been read yet"
        """Why nobody should believe what stands written of this node."""

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the loop last came round."""
        return self._clock() - self._heartbeat

    async def run(self) -> None:
        """Look, wait out the interval, and again; ends only by cancellation."""
        while True:
            self._heartbeat = began = self._clock()
            try:
                problem = await self.look()
            except Exception:
                log.exception("Looking ended in an error of our own")
                problem = "looking ended in an error of our own"
            self._note(problem)
            await asyncio.sleep(max(0.0, began + self._timings.interval - self._clock()))

    async def look(self) -> str | None:
        """Read once and write what is news; answers what went wrong."""
        try:
            self.gpus = gpus = await self._source.read()
        except UnreadableError as error:
            return str(error)
        problems = [await self._write(sink, gpus) for sink in self._sinks]
        needed = [problem for problem, sink in zip(problems, self._sinks, strict=True) if sink.needed and problem]
        return needed[0] if needed else await self._node_lease.renew()

    async def _write(self, sink: _Sink, gpus: tuple[GpuReading, ...]) -> str | None:
        """Write where it is news, or long ago; answers why it could not."""
        why = (
            "nothing stands there yet"
            if sink.last_written is None
            else reason_to_write(sink.last_written, gpus, self._goal)
        )
        if why is None and self._clock() < sink.written + self._timings.resync:
            return None
        if why is not None:
            sink.last_written, sink.at = gpus, self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        # What is written again unchanged, its time included, is no change for the API server.
        problem = await sink.target.report(Report(sink.last_written or (), sink.at))
        if problem is not None:
            sink.last_written = None
            log.warning("Writing failed", extra={"object": sink.name, "error": problem})
            return problem
        sink.written = self._clock()
        if why is not None:
            log.info("Written", extra={"object": sink.name, "why": why})
        return None

    def _note(self, problem: str | None) -> None:
        """Tell when it begins, changes and ends, not every time."""
        if problem != self.problem:
            if problem is not None:
                log.warning("What stands written of this node grows old", extra={"error": problem})
            else:
                log.info("The node's GPUs are read and written", extra={"gpus": len(self.gpus)})
        self.problem = problem
