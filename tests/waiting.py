"""Waits for a condition, with a time limit that grows with the load of the machine.

Every limit of real time in a test must be `limit(seconds)`: about `seconds` on an idle machine of two cores, more on a
slower or busier one. A limit only ends a test that hangs. Only the benchmark measures speed.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


FIRST_PAUSE: Final = 0.02
WORK: Final = 100_000
"""Number of additions whose time is measured."""
REFERENCE: Final = 0.005
"""Seconds that they may take on the machine for which the limits are written. Measured there: 0.0033 to 0.0039."""
ROOM: Final = 2.0
"""The smallest factor of a limit, because an idle machine may become busy during the test."""
MOST: Final = 10.0
"""The largest factor of a limit, so that a test that hangs fails within an hour."""


@cache
def _speed() -> float:
    """Return the time of the additions on this machine relative to REFERENCE: the best of five tries."""
    tries = []
    for _ in range(5):
        began = time.perf_counter()
        total = 0
        for number in range(WORK):
            total += number
        tries.append(time.perf_counter() - began)
    return min(tries) / REFERENCE


def _competing_processes() -> float:
    """Return the load of the last minute, in processes for each core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def slowness() -> float:
    """Return how many times longer work may take now than on an idle machine of two cores; at least 1."""
    return max(1.0, _speed()) * max(1.0, _competing_processes())


def limit(seconds: float) -> float:
    """Return how long work may take now, in seconds, that takes at most `seconds` on an idle machine."""
    return seconds * min(MOST, ROOM * slowness())


def eventually(what: str, ask: Callable[[], T | None], seconds: float = 10.0, pause: float = 0.1) -> T:
    """Call `ask` until its answer is true, and return the answer; AssertionError with `what` after `limit(seconds)`.

    The pauses between calls grow up to `pause` seconds, because each call takes time from the programs under test.
    """
    began, rest = time.monotonic(), FIRST_PAUSE
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() - began > limit(seconds):
            raise AssertionError(f"after {limit(seconds):g} s still not: {what} (last answer: {answer!r})")
        time.sleep(min(rest, pause))
        rest *= 1.5
