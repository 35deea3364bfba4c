"""The monitor's loop: reads the devices of its node, writes what changed, and renews the node's Lease.

LAW: the Lease is renewed only if the reading succeeded and every change is written. An expired Lease means that the
state of the devices is unknown. No failure ends the loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.timestamps import time_of
from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import GpuReading, Report, reason_to_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.monitor.ports import GpuSource, NodeLease, ReadingSink

log = logging.getLogger(__name__)


@immutable
class MonitorTimings:
    """Seconds between two readings, and seconds after which an unchanged reading is written again.

    The second write restores what another writer may have removed.
    """

    interval: float = 15.0
    resync: float = 60.0


@dataclass(slots=True)
class _Sink:
    """A sink, and the reading that was last written to it."""

    name: str
    target: ReadingSink
    needed: bool
    """Whether a failed write to it prevents the renewal of the Lease."""
    last_written: tuple[GpuReading, ...] | None = None
    at: str = ""
    written: float = field(default=0.0)


class Monitor:
    """Reads and writes one node's GPUs until it is cancelled."""

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
        """`node` is the sink that the scheduler reads. `mirror` is for people, and a write to it may fail.

        `goal` is the utilization in percent that separates the tiers.
        """
        self._source = source
        self._sinks = (_Sink("node", node, needed=True), _Sink("GPUNode", mirror, needed=False))
        self._node_lease = node_lease
        self._goal = goal
        self._timings = timings or MonitorTimings()
        self._clock = clock
        self._wall = wall
        self._heartbeat = clock()
        self.readings = 0
        """How many readings have ended, with all that they write."""
        self.gpus: tuple[GpuReading, ...] = ()
        """The last reading."""
        self.problem: str | None = "nothing has been read yet"
        """Why the values written for this node may be out of date; None if they are current."""

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the last iteration of the loop began."""
        return self._clock() - self._heartbeat

    async def run(self) -> None:
        """Read and write once per interval; ends only by cancellation."""
        while True:
            self._heartbeat = began = self._clock()
            try:
                problem = await self.run_once()
            except Exception:
                log.exception("Reading failed with an internal error")
                problem = "looking failed with an internal error"
            self._note(problem)
            self.readings += 1
            await asyncio.sleep(max(0.0, began + self._timings.interval - self._clock()))

    async def run_once(self) -> str | None:
        """Read once and write what changed. Return what went wrong, or None."""
        try:
            self.gpus = gpus = await self._source.read()
        except UnreadableError as error:
            return str(error)
        problems = [await self._write(sink, gpus) for sink in self._sinks]
        needed = [problem for problem, sink in zip(problems, self._sinks, strict=True) if sink.needed and problem]
        return needed[0] if needed else await self._node_lease.renew()

    async def _write(self, sink: _Sink, gpus: tuple[GpuReading, ...]) -> str | None:
        """Write if the reading changed enough or the last write is older than `resync`; return the error, if any."""
        why = "first write" if sink.last_written is None else reason_to_write(sink.last_written, gpus, self._goal)
        if why is None and self._clock() < sink.written + self._timings.resync:
            return None
        if why is not None:
            sink.last_written, sink.at = gpus, time_of(self._wall())
        # An unchanged reading is written with its old time, so that the API server sees no change.
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
        """Keep the problem. Log it only when it begins, changes or ends."""
        if problem != self.problem:
            if problem is not None:
                log.warning("The values written for this node are out of date", extra={"error": problem})
            else:
                log.info("The node's GPUs are read and written", extra={"gpus": len(self.gpus)})
        self.problem = problem
