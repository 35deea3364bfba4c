"""Waits for what a cluster needs a moment to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(what: str, ask: Callable[[], T | None], seconds: float = 10.0, pause: float = 0.05) -> T:
    """Ask until the answer is true; fail naming `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what} (last answer: {answer!r})")
        time.sleep(pause)
