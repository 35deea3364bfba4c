"""One replica as a simulated process: started, stopped, killed and restarted as by a kubelet.

The replica is the shipped code: reflectors, loop, binder, event recorder and leader election.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from gpu_scheduler.kube.leader_election import LeaseLostError
from gpu_scheduler.names import SYSTEM_NAMESPACE
from gpu_scheduler.process.lifecycle import Clocks
from gpu_scheduler.process.logs import set_up_logging
from gpu_scheduler.scheduler.run import SchedulerProcess as ShippedReplica
from gpu_scheduler.settings import RunSettings
from simulator.api_server.connection import Wire
from simulator.clock import Host

if TYPE_CHECKING:
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.leader_election import Fence
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler
    from simulator.api_server.server import Server
    from simulator.clock import Timeline
    from simulator.faults import FaultState


Isolation: TypeAlias = Literal["env", "dra"]

log = logging.getLogger(__name__)

AGAIN: Final = 1.0
"""Seconds before a process that has ended is started again."""


class Replica(Protocol):
    """What a simulated process runs."""

    scheduler: Scheduler

    @property
    def leadership(self) -> Fence:
        """Whether it may write."""

    async def live(self, stop: asyncio.Event) -> None:
        """Run until stopped."""


class Start(Protocol):
    """Makes a replica with its real wiring."""

    def __call__(self, api: ApiClient, clocks: Clocks, identity: str, isolation: Isolation) -> Replica:
        """Make it; it sends no request before `live`."""


def starter() -> Start:
    """Give a function that makes a replica as `gpu-scheduler run` does, without its HTTP port."""

    def start(api: ApiClient, clocks: Clocks, identity: str, isolation: Isolation) -> Replica:
        settings = RunSettings(kubernetes_namespace=SYSTEM_NAMESPACE, pod_name="simulated", isolation=isolation)
        return ShippedReplica(settings, api, clocks=clocks, identity=identity)

    return start


def quiet_starter() -> Start:
    """As starter, without a log: killed replicas log much, and only the invariants count."""
    set_up_logging("ERROR")
    logging.getLogger().handlers[:] = []
    return starter()


class Process:
    """A replica and the container that restarts it."""

    def __init__(  # noqa: PLR0913, PLR0917 - what the container and its connection need
        self,
        name: str,
        start: Start,
        timeline: Timeline,
        server: Server,
        faults: FaultState,
        isolation: Isolation = "env",
    ) -> None:
        """Start it."""
        self.name = name
        self._start = start
        self._isolation = isolation
        self._timeline = timeline
        self._server = server
        self._faults = faults
        self._starts = 0
        self.skew = 0.0
        self.host: Host | None = None
        self.wire: Wire | None = None
        self.replica: Replica | None = None
        self._stop: asyncio.Event | None = None
        self.begin()

    @property
    def leading(self) -> bool:
        """Whether it leads."""
        return self.replica is not None and self.replica.leadership.may_write()

    def begin(self) -> None:
        """Start it, unless it runs."""
        if self.host is not None:
            return
        self._starts += 1
        host = self.host = Host(self._timeline, self.name)
        host.skew = self.skew
        wire = self.wire = Wire(self.name, self._timeline, host, self._server, self._faults)
        clocks = Clocks(host.time, host.wall, host.time)
        identity = f"{self.name}_{self._starts}"
        asyncio._set_running_loop(host)  # noqa: SLF001 - locks and queues are made for the loop that runs
        try:
            self.replica = self._start(wire, clocks, identity, self._isolation)
            self._stop = asyncio.Event()
            host.create_task(self._live(host, self.replica, self._stop))
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - likewise

    def stop(self) -> None:
        """Send SIGTERM: it ends in order and is restarted."""
        if self.host is not None and self._stop is not None:
            self.host.call_soon(self._stop.set)

    def kill(self) -> None:
        """Send SIGKILL: it does nothing more, its sent requests stay in flight, and it is restarted."""
        if self.host is not None:
            self.end()
            self._timeline.after(AGAIN, self.begin)

    def end(self) -> None:
        """End it without a restart."""
        host, wire = self.host, self.wire
        if host is None or wire is None:
            return
        wire.process_ended = True
        for channel in tuple(wire.channels):
            channel.close()
        self.host = self.wire = self.replica = self._stop = None
        host.end()

    def hold(self) -> None:
        """Send SIGSTOP."""
        if self.host is not None:
            self.host.stopped = True

    def go_on(self) -> None:
        """Send SIGCONT."""
        if self.host is not None:
            self.host.stopped = False

    def step_clock(self, seconds: float) -> None:
        """Set its wall clock."""
        self.skew += seconds
        if self.host is not None:
            self.host.skew = self.skew

    async def _live(self, host: Host, replica: Replica, stop: asyncio.Event) -> None:
        try:
            await replica.live(stop)
        except Exception as error:
            # The container is restarted after any error; only a lost lease is no defect.
            if not isinstance(error.__cause__, LeaseLostError):
                log.exception("A replica failed with an internal error")
        finally:
            self._timeline.after(0.0, lambda: self._over(host))

    def _over(self, host: Host) -> None:
        """Restart a process that ended by itself."""
        if self.host is host:
            self.kill()
