"""One replica as a process: it is started, stopped, killed and started again, as a kubelet does it.

The replica itself is the real one: reflectors, loop, binder, announcer and leader election, over a wire in memory.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

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
    from gpu_scheduler.kube.leader_election import LeaderElector
    from gpu_scheduler.scheduler.scheduling_loop import Scheduler
    from simulator.api_server.server import Server
    from simulator.clock import Timeline
    from simulator.faults import Switchboard


log = logging.getLogger(__name__)

AGAIN: Final = 1.0
"""Seconds before a process that has ended is started again."""


class Replica(Protocol):
    """What is simulated."""

    scheduler: Scheduler
    leadership: LeaderElector

    async def live(self, stop: asyncio.Event) -> None:
        """Run until stopped."""


class Start(Protocol):
    """Makes a replica; whoever wires the real one wires this one."""

    def __call__(self, api: ApiClient, clocks: Clocks, identity: str) -> Replica:
        """Nothing is asked before it lives."""


def starter() -> Start:
    """What makes a replica as `gpu-scheduler run` makes it, without its port."""
    settings = RunSettings(kubernetes_namespace=SYSTEM_NAMESPACE, pod_name="simulated")

    def start(api: ApiClient, clocks: Clocks, identity: str) -> Replica:
        return ShippedReplica(settings, api, clocks=clocks, identity=identity)

    return start


def quiet_starter() -> Start:
    """Replicas that are killed and cut off have much to say; what counts is what the invariants say."""
    set_up_logging("ERROR")
    logging.getLogger().handlers[:] = []
    return starter()


class Process:
    """A replica and its container."""

    def __init__(self, name: str, start: Start, timeline: Timeline, server: Server, faults: Switchboard) -> None:
        """Start it."""
        self.name = name
        self._start = start
        self._timeline = timeline
        self._server = server
        self._faults = faults
        self._lives = 0
        self.skew = 0.0
        self.host: Host | None = None
        self.wire: Wire | None = None
        self.replica: Replica | None = None
        self._stop: asyncio.Event | None = None
        self.begin()

    @property
    def leading(self) -> bool:
        """Whether it decides."""
        return self.replica is not None and self.replica.leadership.may_bind()

    def begin(self) -> None:
        """Start it, unless it runs."""
        if self.host is not None:
            return
        self._lives += 1
        host = self.host = Host(self._timeline, self.name)
        host.skew = self.skew
        wire = self.wire = Wire(self.name, self._timeline, host, self._server, self._faults)
        clocks = Clocks(host.time, host.wall)
        identity = f"{self.name}_{self._lives}"
        asyncio._set_running_loop(host)  # noqa: SLF001 - locks and queues are made for the loop that runs
        try:
            self.replica = self._start(wire, clocks, identity)
            self._stop = asyncio.Event()
            host.create_task(self._live(host, self.replica, self._stop))
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - likewise

    def stop(self) -> None:
        """SIGTERM: it ends in order, and is started again."""
        if self.host is not None and self._stop is not None:
            self.host.call_soon(self._stop.set)

    def kill(self) -> None:
        """SIGKILL: it does nothing more; what it sent is under way. Its container is started again."""
        if self.host is not None:
            self.end()
            self._timeline.after(AGAIN, self.begin)

    def end(self) -> None:
        """It is gone for good."""
        host, wire = self.host, self.wire
        if host is None or wire is None:
            return
        wire.dead = True
        for channel in tuple(wire.channels):
            channel.close()
        self.host = self.wire = self.replica = self._stop = None
        host.end()

    def hold(self) -> None:
        """SIGSTOP."""
        if self.host is not None:
            self.host.stopped = True

    def go_on(self) -> None:
        """SIGCONT."""
        if self.host is not None:
            self.host.stopped = False

    def step_clock(self, seconds: float) -> None:
        """Somebody sets its wall clock."""
        self.skew += seconds
        if self.host is not None:
            self.host.skew = self.skew

    async def _live(self, host: Host, replica: Replica, stop: asyncio.Event) -> None:
        try:
            await replica.live(stop)
        except Exception as error:
            # Whatever ends it, its container is started again; but this alone is no defect.
            if not isinstance(error.__cause__, LeaseLostError):
                log.exception("A replica ended in an error of our own")
        finally:
            self._timeline.after(0.0, lambda: self._over(host))

    def _over(self, host: Host) -> None:
        """The process has ended by itself."""
        if self.host is host:
            self.kill()
