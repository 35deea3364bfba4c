"""Waits for what a process needs a moment to do, for as long as this machine needs just now.

LAW: each limit of time in a test is `limit(seconds)`: `seconds` on an idle machine of two cores, more on one that is
slower or has more to do. A limit ends what hangs and tells a broken promise; what is fast is measured by the benchmark.
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
"""Additions that are timed."""
REFERENCE: Final = 0.005
"""Seconds that they take on the machine for which the limits are written: there it was 0.0033 to 0.0039, measured."""
ROOM: Final = 2.0
"""A limit is at least so many times what it says: a machine is idle until the moment when it is not."""
MOST: Final = 10.0
"""No limit is longer than so many times what it says: what hangs is told within an hour."""


@cache
def _speed() -> float:
    """How many times longer than on that machine a fixed piece of work takes here, with nobody in its way."""
    tries = []
    for _ in range(5):
        began = time.perf_counter()
        total = 0
        for number in range(WORK):
            total += number
        tries.append(time.perf_counter() - began)
    return min(tries) / REFERENCE


def _crowd() -> float:
    """How many processes there are for each core, over the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def slowness() -> float:
    """How many times longer something may take here and now than on an idle machine of two cores; at least 1."""
    return max(1.0, _speed()) * max(1.0, _crowd())


def limit(seconds: float) -> float:
    """Return how long something may take here and now that takes at most so many seconds on an idle machine."""
    return seconds * min(MOST, ROOM * slowness())


def eventually(what: str, ask: Callable[[], T | None], seconds: float = 10.0, pause: float = 0.1) -> T:
    """Ask until the answer is true; fail naming `what` after `limit(seconds)`.

    What takes its time is asked for ever less often, up to `pause` seconds apart: who asks takes it from who works.
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
