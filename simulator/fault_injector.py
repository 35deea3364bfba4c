"""Injects the faults of a plan into requests, watches, processes and the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from simulator.cluster import objects
from simulator.faults import ACTS, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.api_server.server import Server
    from simulator.api_server.watch_channel import Channel
    from simulator.clock import Timeline
    from simulator.cluster.actors import ClusterActors
    from simulator.faults import FaultState
    from simulator.plan import Step
    from simulator.replica_process import Process

_LEASE: Final = "gpu-scheduler-system/gpu-scheduler"
_WATCHED: Final = ("pods", "pods", "nodes")
_OUTAGES: Final = (0.5, 3.0, 8.0, 25.0)
_PAUSES: Final = (1.0, 6.0, 12.0, 14.5, 15.5, 16.5, 20.0, 40.0)
"""Mostly close to the time at which the other replica takes the lease."""
_FREEZES: Final = (0.5, 2.0, 8.0, 30.0)
_STEPS: Final = (3600.0, -3600.0)


class FaultInjector:
    """Injects the faults of a plan, for a time or for good."""

    def __init__(
        self,
        timeline: Timeline,
        server: Server,
        faults: FaultState,
        processes: Sequence[Process],
        actors: ClusterActors,
    ) -> None:
        """Begin without faults."""
        self._timeline = timeline
        self._server = server
        self._faults = faults
        self._processes = processes
        self._actors = actors
        self._active: dict[int, Callable[[], None]] = {}
        self._number = 0

    def do(self, step: Step) -> None:
        """Inject the fault now, or arm it for the next request of its kind."""
        if not isinstance(step.what, Fault):
            raise TypeError(step.what)
        if step.what in ACTS:
            self._faults.arm(step.what)
        elif self._handlers[step.what](step.a, step.b):
            self._faults.strike(step.what)

    def end_all(self) -> None:
        """End all faults."""
        self._faults.disarm()
        while self._active:
            self._active.pop(next(iter(self._active)))()
        for process in self._processes:
            for channel in self._channels(process):
                if channel.silent:
                    channel.cut()

    @property
    def _handlers(self) -> dict[Fault, Callable[[int, int], bool]]:
        return {
            Fault.WATCH_CUT: lambda a, b: self._break(a, b, lambda channel: channel.cut()),
            Fault.WATCH_TRUNCATED: lambda a, b: self._break(a, b, lambda channel: channel.truncate()),
            Fault.WATCH_EXPIRED: lambda a, b: self._break(a, b, lambda channel: channel.expire()),
            Fault.WATCH_BOOKMARKS: lambda a, b: self._break(a, b, lambda channel: channel.send_bookmarks(3)),
            Fault.WATCH_SILENT: lambda a, b: self._break(a, b, _silence),
            Fault.WATCH_TWICE: lambda a, b: self._break(a, b, self._duplicate),
            Fault.WATCH_FROZEN: lambda a, b: self._break(a, b, lambda channel: self._freeze(channel, b)),
            Fault.DELETED_LOST: self._lose,
            Fault.OUTAGE: self._go_away,
            Fault.PARTITION: self._part,
            Fault.LEASE_TAKEN: self._take_lease,
            Fault.PROCESS_STOPPED: self._hold,
            Fault.PROCESS_KILLED: self._kill,
            Fault.PROCESS_RESTARTED: self._restart,
            Fault.CLOCK_STEPPED: self._step_clock,
        }

    def _channels(self, process: Process) -> list[Channel]:
        return [channel for channel in process.wire.channels if channel.live] if process.wire else []

    def _break(self, a: int, b: int, how: Callable[[Channel], None]) -> bool:
        """Break one watch of one replica, mostly of the leader."""
        collection = self._server.collections[_WATCHED[b % len(_WATCHED)]]
        if self._server.resource_claims.entries and (b >> 8) % 3 == 0:
            collection = self._server.resource_claims
        channels = [each for each in self._channels(self._one(a)) if each.collection is collection]
        if channels:
            how(channels[(a >> 3) % len(channels)])
        return bool(channels)

    def _duplicate(self, channel: Channel) -> None:
        channel.duplicated = True

        def once() -> None:
            channel.duplicated = False

        self._end_after(5.0, once)

    def _freeze(self, channel: Channel, b: int) -> None:
        channel.freeze()
        self._end_after(_FREEZES[(b >> 2) % len(_FREEZES)], channel.thaw)

    def _lose(self, a: int, b: int) -> bool:
        """Remove a pod while its watch is cut, and compact the changes."""
        channels = [each for each in self._channels(self._one(a)) if each.collection is self._server.pods]
        if not channels:
            return False
        for channel in channels:
            channel.cut()
            channel.close()
        gone = self._actors.lose(b)
        self._server.pods.forget()
        return gone

    def _go_away(self, _: int, b: int) -> bool:
        self._faults.out = True
        for process in self._processes:
            for channel in self._channels(process):
                channel.cut()

        def come_back() -> None:
            self._faults.out = False

        self._end_after(_OUTAGES[b % len(_OUTAGES)], come_back)
        return True

    def _part(self, a: int, b: int) -> bool:
        process = self._one(a)
        channels = self._channels(process)
        self._faults.cut_off.setdefault(process.name, [])
        for channel in channels:
            channel.freeze()

        def heal() -> None:
            self._faults.heal(process.name)
            for channel in channels:
                channel.thaw()

        self._end_after(_OUTAGES[b % len(_OUTAGES)], heal)
        return True

    def _take_lease(self, _a: int, _b: int) -> bool:
        entry = self._server.leases.entries.get(_LEASE)
        if entry is None:
            return False
        stamp = f"2026-01-01T00:00:00.{int(self._timeline.now * 1000):09}Z"
        self._server.leases.put(_LEASE, objects.lease_of_another("gpu-scheduler", "gpu-scheduler-system", stamp))
        return True

    def _hold(self, a: int, b: int) -> bool:
        process = self._one(a)
        host = process.host
        process.hold()

        def go_on() -> None:
            if host is process.host:
                process.go_on()

        self._end_after(_PAUSES[b % len(_PAUSES)], go_on)
        return host is not None

    def _kill(self, a: int, _: int) -> bool:
        process = self._one(a)
        runs = process.host is not None
        process.kill()
        return runs

    def _restart(self, a: int, _: int) -> bool:
        process = self._one(a)
        process.stop()
        return process.host is not None

    def _step_clock(self, a: int, b: int) -> bool:
        self._one(a).step_clock(_STEPS[b % len(_STEPS)])
        return True

    def _one(self, a: int) -> Process:
        """Choose a replica, mostly the leader."""
        leader = next((process for process in self._processes if process.leading), self._processes[0])
        return leader if a % 2 else self._processes[(a >> 1) % len(self._processes)]

    def _end_after(self, seconds: float, end: Callable[[], None]) -> None:
        self._number += 1
        number = self._number
        self._active[number] = end

        def due() -> None:
            if number in self._active:
                self._active.pop(number)()

        self._timeline.after(seconds, due)


def _silence(channel: Channel) -> None:
    channel.silent = True
