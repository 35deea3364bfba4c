import asyncio
import itertools
import logging
from contextlib import suppress

import pytest

from gpu_scheduler.process.http_server import PAUSE, throttled
from gpu_scheduler.process.log_budget import BURST, RATE, LogBudget
from gpu_scheduler.webhook.throttle import Throttle
from unit_tests.virtual import virtual_loop


async def test_costly_work_leaves_the_loop_free_most_of_the_time() -> None:
    """Between two pieces other tasks have four times as long as the first piece took."""
    costly, loop, spans = Throttle(), virtual_loop(), list[tuple[float, float]]()

    async def work() -> None:
        async with costly:
            began = loop.time()
            loop.block(0.02)
            spans.append((began, loop.time()))

    await asyncio.gather(*(work() for _ in range(3)))

    for (began, ended), (following, _) in itertools.pairwise(spans):
        assert following - ended == pytest.approx(PAUSE * (ended - began))


async def test_a_throttled_value_is_made_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call in between returns the last value."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    numbers = iter(range(10))

    async def make() -> int:
        now[0] += 1
        return next(numbers)

    give = throttled(make)
    assert [await give(), await give()] == [0, 0]
    now[0] += PAUSE - 0.1
    assert await give() == 0
    now[0] += 0.2
    assert await give() == 1


async def test_a_cancelled_call_is_throttled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers that close their connections early cannot keep the process busy."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    numbers, goes_on = iter(range(10)), asyncio.Event()

    async def make() -> int:
        now[0] += 1
        number = next(numbers)
        await goes_on.wait()
        return number

    give = throttled(make)
    goes_on.set()
    assert await give() == 0
    now[0] += PAUSE + 0.1
    goes_on.clear()
    with suppress(TimeoutError):
        await asyncio.wait_for(give(), 0.01)
    goes_on.set()
    assert await give() == 0
    now[0] += PAUSE + 0.1
    assert await give() == 2


def test_log_lines_that_any_peer_can_cause_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Lines that are left out are counted, and their number is logged as soon as the budget allows."""
    now = [0.0]
    caplog.set_level(logging.INFO)
    log = logging.getLogger("tests.log_budget")
    log.addFilter(LogBudget(lambda: now[0]))
    for number in range(BURST + 5):
        log.info("line %s", number)
    assert len(caplog.messages) == BURST
    now[0] += 3.5 / RATE
    for _ in range(5):
        log.info("again")
    assert caplog.messages[BURST:] == ["Dropped log lines: rate limit exceeded"] + 3 * ["again"]
    assert caplog.records[BURST].__dict__["lines"] == 5
