"""Virtual time: it jumps to the next timer; a stopped host does nothing; a killed host ends."""

from __future__ import annotations

import asyncio

import pytest

from simulator.clock import Host, NoProgressError, Timeline


async def log_after(log: list[tuple[str, float]], name: str, *pauses: float) -> None:
    for pause in pauses:
        await asyncio.sleep(pause)
        log.append((name, asyncio.get_running_loop().time()))


def test_hours_pass_at_once_and_in_order() -> None:
    """Tasks resume in order of time across processes, with the cluster's actors between them."""
    timeline, log = Timeline(), list[tuple[str, float]]()
    began = timeline.now
    one, two = Host(timeline, "one"), Host(timeline, "two")
    one.create_task(log_after(log, "one", 3600, 3600))
    two.create_task(log_after(log, "two", 5000))
    timeline.after(4000, lambda: log.append(("actor", timeline.now)))

    timeline.run(10_000)

    assert [(name, at - began) for name, at in log] == [("one", 3600), ("actor", 4000), ("two", 5000), ("one", 7200)]
    assert timeline.now == began + 10_000
    one.end()
    two.end()


def test_a_stopped_process_misses_its_times_and_catches_up() -> None:
    """Time passes without it. When it resumes, everything overdue runs at once."""
    timeline, log = Timeline(), list[tuple[str, float]]()
    host = Host(timeline, "one")
    began = timeline.now
    host.create_task(log_after(log, "one", 1, 1))
    timeline.run(0.5)
    host.stopped = True
    timeline.run(100)
    assert log == []

    host.stopped = False
    timeline.run(2)

    assert [at - began for _, at in log] == [100.5, 101.5]
    host.end()


def test_a_killed_process_does_nothing_more() -> None:
    """Neither now nor when its timers would be due."""
    timeline, log = Timeline(), list[tuple[str, float]]()
    host = Host(timeline, "one")
    host.create_task(log_after(log, "one", 1))
    timeline.run(0.5)

    host.end()
    timeline.run(10)

    assert log == []
    assert timeline.hosts == []


def test_a_timeout_is_virtual_too() -> None:
    """A wait without an end times out in virtual time, and a cancelled timer never fires."""
    timeline, log = Timeline(), list[float]()
    host = Host(timeline, "one")

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, log.append, 0.0).cancel()
        try:
            async with asyncio.timeout(30):
                await loop.create_future()
        except TimeoutError:
            log.append(loop.time())

    began = timeline.now
    host.create_task(wait())
    timeline.run(60)

    assert log == [began + 30]
    host.end()


def test_a_wall_clock_may_be_set() -> None:
    """It advances from the time to which it was set."""
    timeline = Timeline()
    host = Host(timeline, "one")
    before = host.wall()
    host.skew = 3600
    timeline.run(5)

    assert (host.wall() - before).total_seconds() == 3605
    host.end()


def test_a_busy_loop_is_reported() -> None:
    """Without this a busy loop would hang the simulation."""
    timeline = Timeline()
    host = Host(timeline, "one")

    async def busy_loop() -> None:
        while timeline.now >= 0:  # noqa: ASYNC110 - a busy loop on purpose
            await asyncio.sleep(0)

    host.create_task(busy_loop())
    with pytest.raises(NoProgressError, match="one never rests"):
        timeline.run(1)
    host.end()
