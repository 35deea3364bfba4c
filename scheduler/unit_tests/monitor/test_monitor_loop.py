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

IDLE = GpuReading(0, "GPU-0", total=40960, used=0, utilization=0)
BUSY = replace(IDLE, used=40960, utilization=70)
SICK = replace(IDLE, health=Health.UNHEALTHY, why="it is lost")


@dataclass
class FakePorts:
    """A source, two sinks, a node lease, and a clock that only the test moves."""

    readings: list[tuple[GpuReading, ...] | Exception] = field(default_factory=lambda: [(IDLE,)])
    refusals: list[str] = field(default_factory=list)
    mirror_refusals: list[str] = field(default_factory=list)
    failed_renewals: list[str] = field(default_factory=list)
    node: list[Report] = field(default_factory=list)
    mirror: list[Report] = field(default_factory=list)
    renewals: int = 0
    now: float = 100.0

    def monitor(self, **timings: float) -> Monitor:
        return Monitor(
            _Source(self),
            _Sink(self.node, self.refusals),
            _Sink(self.mirror, self.mirror_refusals),
            _NodeLease(self),
            goal=80,
            timings=MonitorTimings(**timings),
            clock=lambda: self.now,
            wall=lambda: datetime.fromtimestamp(self.now, UTC),
        )


@dataclass
class _Source:
    ports: FakePorts

    async def read(self) -> tuple[GpuReading, ...]:
        readings = self.ports.readings
        reading = readings.pop(0) if len(readings) > 1 else readings[0]
        if isinstance(reading, Exception):
            raise reading
        return reading


@dataclass
class _Sink:
    reports: list[Report]
    refusals: list[str]

    async def report(self, report: Report) -> str | None:
        if self.refusals:
            return self.refusals.pop(0)
        self.reports.append(report)
        return None


@dataclass
class _NodeLease:
    ports: FakePorts

    async def renew(self) -> str | None:
        if self.ports.failed_renewals:
            return self.ports.failed_renewals.pop(0)
        self.ports.renewals += 1
        return None


@pytest.mark.promise("monitor-2")
async def test_a_change_is_written_once_and_every_read_renews_the_lease() -> None:
    """The first reading is a change, the same again is not. A change is written with the time of its read."""
    ports = FakePorts([(IDLE,), (IDLE,), (BUSY,), (BUSY,)])
    monitor = ports.monitor()
    for _ in range(4):
        assert await monitor.run_once() is None
        ports.now += 15

    expected = [Report((IDLE,), "1970-01-01T00:01:40Z"), Report((BUSY,), "1970-01-01T00:02:10Z")]
    assert ports.node == ports.mirror == expected
    assert ports.renewals == 4
    assert monitor.gpus == (BUSY,)


async def test_the_last_report_is_written_again_after_a_while() -> None:
    """Report and time are the same, so the API server sees no change. Small changes since then are left out."""
    flicker = replace(IDLE, utilization=9)
    ports = FakePorts([(IDLE,), (flicker,)])
    monitor = ports.monitor(resync=60)
    await monitor.run_once()
    for ports.now in (115, 159, 160, 161):
        await monitor.run_once()

    assert ports.node == [Report((IDLE,), "1970-01-01T00:01:40Z")] * 2


@pytest.mark.promise("monitor-3")
async def test_a_failed_read_writes_nothing_and_does_not_renew_the_lease() -> None:
    """So the Lease expires, and its readers know that the state of the GPUs is unknown."""
    ports = FakePorts([(IDLE,), UnreadableError("no answer"), (IDLE,)])
    monitor = ports.monitor()
    reported = [await monitor.run_once() for _ in range(3)]

    assert reported == [None, "no answer", None]
    assert (len(ports.node), ports.renewals) == (1, 2)


@pytest.mark.promise("monitor-3")
async def test_a_change_that_cannot_be_written_stops_the_renewals() -> None:
    """A renewed Lease says that the written report is current. The write is repeated at each read until it succeeds."""
    ports = FakePorts([(IDLE,), (SICK,)])
    monitor = ports.monitor()
    await monitor.run_once()
    ports.refusals += ["HTTP 403: no", "HTTP 500: not now"]
    reported = [await monitor.run_once() for _ in range(3)]

    assert reported == ["HTTP 403: no", "HTTP 500: not now", None]
    assert [report.gpus for report in ports.node] == [(IDLE,), (SICK,)]
    assert ports.renewals == 2


async def test_a_refused_resync_stops_the_renewals_too() -> None:
    """It is then unknown whether the report is still stored."""
    ports = FakePorts(refusals=[])
    monitor = ports.monitor(resync=10)
    await monitor.run_once()
    ports.now += 10
    ports.refusals.append("HTTP 403: no")

    assert await monitor.run_once() == "HTTP 403: no"
    assert await monitor.run_once() is None


async def test_the_mirror_may_fail() -> None:
    """It is for people. The Lease is renewed, and the write is repeated at the next read."""
    ports = FakePorts(mirror_refusals=["HTTP 500: not now"])
    monitor = ports.monitor()
    reported = [await monitor.run_once() for _ in range(2)]

    assert reported == [None, None]
    assert (len(ports.node), len(ports.mirror), ports.renewals) == (1, 1, 2)


async def test_a_failed_renewal_is_reported() -> None:
    """The Lease expires meanwhile."""
    ports = FakePorts(failed_renewals=["HTTP 403: no"])

    assert await ports.monitor().run_once() == "HTTP 403: no"


async def rounds(monitor: Monitor, until: Callable[[], bool]) -> None:
    task = asyncio.create_task(monitor.run())
    async with asyncio.timeout(3):
        while not until():  # noqa: ASYNC110 - the loop sets no event
            await asyncio.sleep(0.001)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_no_failure_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    """An error of our own is logged with its trace, costs one read, and is the problem until the next read."""
    ports = FakePorts([RuntimeError("a bug"), (IDLE,)])
    monitor = ports.monitor(interval=0.001)
    assert monitor.problem == "nothing has been read yet"
    seen = []
    ports.node.append(Report((), ""))

    def healed() -> bool:
        ports.now += 1
        seen.append(monitor.problem)
        return monitor.problem is None

    await rounds(monitor, healed)

    assert "looking failed with an internal error" in seen
    assert "a bug" in caplog.text


async def test_a_problem_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """When it begins and when it ends, not at every read in between."""
    caplog.set_level(logging.INFO)
    failing = UnreadableError("no answer")
    ports = FakePorts([(IDLE,), failing, failing, failing, (IDLE,)])
    monitor = ports.monitor(interval=0.001)

    def over() -> bool:
        ports.now += 1
        return ports.renewals > 1

    await rounds(monitor, over)

    reported = [record.message for record in caplog.records]
    assert reported.count("The values written for this node are out of date") == 1
    assert reported.count("The node's GPUs are read and written") == 2


async def test_the_loop_keeps_its_interval_and_shows_its_heartbeat_age() -> None:
    """The time of a read is not added. The heartbeat age is the time since the loop's last turn."""
    clock, reads = asyncio.get_running_loop().time, list[float]()
    began = clock()

    class SlowSource:
        async def read(self) -> tuple[GpuReading, ...]:
            reads.append(clock() - began)
            await asyncio.sleep(2)
            return (IDLE,)

    ports = FakePorts()
    monitor = Monitor(
        SlowSource(),
        *(_Sink(ports.node, []), _Sink(ports.mirror, []), _NodeLease(ports)),
        goal=80,
        timings=MonitorTimings(interval=15),
        clock=clock,
    )
    task = asyncio.create_task(monitor.run())
    await asyncio.sleep(37)

    assert reads == pytest.approx([0, 15, 30])
    assert monitor.heartbeat_age == pytest.approx(7)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
