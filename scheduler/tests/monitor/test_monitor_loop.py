"""The monitor's loop over ports in memory."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.monitor.monitor_loop import Monitor, MonitorTimings
from gpu_scheduler.monitor.ports import UnreadableError
from gpu_scheduler.monitor.readings import GpuReading, Report
from tests.waiting import limit

IDLE = GpuReading(0, "GPU-0", total=40960, used=0, utilization=0)
BUSY = replace(IDLE, used=40960, utilization=70)
SICK = replace(IDLE, health=Health.UNHEALTHY, why="it is lost")


@dataclass
class World:
    """A source, two places to write, a heart, and a clock that only this moves."""

    readings: list[tuple[GpuReading, ...] | Exception] = field(default_factory=lambda: [(IDLE,)])
    refusals: list[str] = field(default_factory=list)
    mirror_refusals: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    node: list[Report] = field(default_factory=list)
    mirror: list[Report] = field(default_factory=list)
    renewals: int = 0
    now: float = 100.0

    def monitor(self, **timings: float) -> Monitor:
        """A monitor of this world."""
        return Monitor(
            _Source(self),
            _Place(self.node, self.refusals),
            _Place(self.mirror, self.mirror_refusals),
            _Heart(self),
            goal=80,
            timings=MonitorTimings(**timings),
            clock=lambda: self.now,
            wall=lambda: datetime.fromtimestamp(self.now, UTC),
        )


@dataclass
class _Source:
    world: World

    async def read(self) -> tuple[GpuReading, ...]:
        readings = self.world.readings
        reading = readings.pop(0) if len(readings) > 1 else readings[0]
        if isinstance(reading, Exception):
            raise reading
        return reading


@dataclass
class _Place:
    reports: list[Report]
    refusals: list[str]

    async def report(self, report: Report) -> str | None:
        if self.refusals:
            return self.refusals.pop(0)
        self.reports.append(report)
        return None


@dataclass
class _Heart:
    world: World

    async def renew(self) -> str | None:
        if self.world.skipped:
            return self.world.skipped.pop(0)
        self.world.renewals += 1
        return None


async def test_news_is_written_once_and_every_look_beats() -> None:
    """The first reading is news; the same again is none; what changed is written with the time of its look."""
    world = World([(IDLE,), (IDLE,), (BUSY,), (BUSY,)])
    monitor = world.monitor()
    for _ in range(4):
        assert await monitor.look() is None
        world.now += 15

    expected = [Report((IDLE,), "1970-01-01T00:01:40Z"), Report((BUSY,), "1970-01-01T00:02:10Z")]
    assert world.node == world.mirror == expected
    assert world.renewals == 4
    assert monitor.gpus == (BUSY,)


async def test_what_was_written_is_written_again_after_a_while() -> None:
    """Unchanged, its time included, so that the API server sees no change; what only flickered stays out."""
    flicker = replace(IDLE, utilization=9)
    world = World([(IDLE,), (flicker,)])
    monitor = world.monitor(resync=60)
    await monitor.look()
    for world.now in (115, 159, 160, 161):
        await monitor.look()

    assert world.node == [Report((IDLE,), "1970-01-01T00:01:40Z")] * 2


async def test_a_look_that_failed_writes_nothing_and_does_not_beat() -> None:
    """So the Lease grows old, and whoever reads it knows that nobody knows how the GPUs are."""
    world = World([(IDLE,), UnreadableError("the driver has not answered for 10 s"), (IDLE,)])
    monitor = world.monitor()
    told = [await monitor.look() for _ in range(3)]

    assert told == [None, "the driver has not answered for 10 s", None]
    assert (len(world.node), world.renewals) == (1, 2)


async def test_news_that_cannot_be_written_stops_the_heart() -> None:
    """A Lease says that what stands written is so; the write is tried again at each look, and then it is so again."""
    world = World([(IDLE,), (SICK,)])
    monitor = world.monitor()
    await monitor.look()
    world.refusals += ["HTTP 403: no", "HTTP 500: not now"]
    told = [await monitor.look() for _ in range(3)]

    assert told == ["HTTP 403: no", "HTTP 500: not now", None]
    assert [report.gpus for report in world.node] == [(IDLE,), (SICK,)]
    assert world.renewals == 2


async def test_a_refused_resync_stops_the_heart_too() -> None:
    """Nobody can tell then whether it still stands there."""
    world = World(refusals=[])
    monitor = world.monitor(resync=10)
    await monitor.look()
    world.now += 10
    world.refusals.append("HTTP 403: no")

    assert await monitor.look() == "HTTP 403: no"
    assert await monitor.look() is None


async def test_the_mirror_may_fail() -> None:
    """It is for people: the heart beats on, and it is tried again at the next look."""
    world = World(mirror_refusals=["HTTP 500: not now"])
    monitor = world.monitor()
    told = [await monitor.look() for _ in range(2)]

    assert told == [None, None]
    assert (len(world.node), len(world.mirror), world.renewals) == (1, 1, 2)


async def test_a_beat_that_failed_is_told() -> None:
    """The Lease grows old meanwhile."""
    world = World(skipped=["HTTP 403: no"])

    assert await world.monitor().look() == "HTTP 403: no"


async def rounds(monitor: Monitor, until: Callable[[], bool]) -> None:
    """Let the loop run until that is so."""
    task = asyncio.create_task(monitor.run())
    async with asyncio.timeout(limit(3)):
        while not until():  # noqa: ASYNC110 - the loop sets no event
            await asyncio.sleep(0.001)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_no_failure_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """An error of our own is logged with its trace, costs one look, and shows in the problem until the next."""
    world = World([RuntimeError("a bug"), (IDLE,)])
    monitor = world.monitor(interval=0.001)
    assert monitor.problem == "nothing has been read yet"
    seen = []
    world.node.append(Report((), ""))

    def healed() -> bool:
        world.now += 1
        seen.append(monitor.problem)
        return monitor.problem is None

    await rounds(monitor, healed)

    assert "looking ended in an error of our own" in seen
    assert "a bug" in caplog.text


async def test_a_problem_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """When it begins and when it ends; not at every look in between."""
    caplog.set_level(logging.INFO)
    failing = UnreadableError("the driver has not answered for 10 s")
    world = World([(IDLE,), failing, failing, failing, (IDLE,)])
    monitor = world.monitor(interval=0.001)

    def over() -> bool:
        world.now += 1
        return world.renewals > 1

    await rounds(monitor, over)

    told = [record.message for record in caplog.records]
    assert told.count("What stands written of this node grows old") == 1
    assert told.count("The node's GPUs are read and written") == 2


async def test_the_loop_keeps_its_interval_and_shows_its_pulse() -> None:
    """The time that a look takes is not added; the pulse is the time since the loop came round."""
    world = World()
    monitor = world.monitor(interval=15)
    world.now += 7

    assert monitor.heartbeat_age == 7
    await rounds(monitor, lambda: world.renewals > 0)
    assert monitor.heartbeat_age == 0
    await asyncio.sleep(0.05)
    assert world.renewals == 1
