import asyncio
import itertools
import time

import pytest

from gpu_scheduler.process.log_budget import BURST, RATE, LogBudget
from gpu_scheduler.process.turns import REST, Turns, sparingly


async def test_costly_work_leaves_the_loop_free_most_of_the_time() -> None:
    """Between two pieces others have four times as long as the first one took."""
    costly, spans = Turns(), list[tuple[float, float]]()

    async def work() -> None:
        async with costly:
            began = time.monotonic()
            time.sleep(0.02)  # noqa: ASYNC251 - it stands for work that holds the loop
            spans.append((began, time.monotonic()))

    await asyncio.gather(*(work() for _ in range(3)))

    for (began, ended), (following, _) in itertools.pairwise(spans):
        assert following - ended >= REST * (ended - began) * 0.95


def test_what_is_made_sparingly_is_made_anew_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked in between, it gives what it made last."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    numbers = iter(range(10))

    def make() -> int:
        now[0] += 1
        return next(numbers)

    give = sparingly(make)
    assert [give(), give()] == [0, 0]
    now[0] += REST - 0.1
    assert give() == 0
    now[0] += 0.2
    assert give() == 1


def test_log_lines_that_anybody_can_cause_are_bounded() -> None:
    """What is left out is counted, and told as soon as there is room again."""
    now = [0.0]
    lines = Lines()
    log = LogBudget(lines, lambda: now[0])  # type: ignore[arg-type]
    for number in range(BURST + 5):
        log.info("line", number=number)
    assert len(lines.said) == BURST
    now[0] += 3.5 / RATE
    for _ in range(5):
        log.info("again", pod="a")
    assert lines.said[BURST:] == [("Left out log lines: too many in too short a time", {"lines": 5})] + 3 * [
        ("again", {"pod": "a"})
    ]


class Lines:
    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        self.said.append((event, fields))

    warning = info
