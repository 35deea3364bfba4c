"""Waits for what a cluster needs a moment to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


FIRST_PAUSE: Final = 0.02


def eventually(what: str, ask: Callable[[], T | None], seconds: float = 10.0, pause: float = 0.1) -> T:
    """Ask until the answer is true; fail naming `what` after so many seconds.

    What takes its time is asked for ever less often, up to `pause` seconds apart: who asks takes it from who works.
    """
    deadline, rest = time.monotonic() + seconds, FIRST_PAUSE
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what} (last answer: {answer!r})")
        time.sleep(min(rest, pause))
        rest *= 1.5
