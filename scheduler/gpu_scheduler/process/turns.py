"""Work that takes long, one piece at a time and seldom, so that an event loop stays free for the rest."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

REST: Final = 4
"""How many times as long as a piece took until the next: all together they take a fifth of the time."""


class Turns:
    """`async with` waits for a turn and works; whoever works does not await."""

    def __init__(self) -> None:
        """The first turn is free."""
        self._lock = asyncio.Lock()
        self._began = 0.0

    async def __aenter__(self) -> None:
        """Wait for a turn, in the order of asking."""
        await self._lock.acquire()
        self._began = asyncio.get_running_loop().time()

    async def __aexit__(self, *_: object) -> None:
        """Give the next one his turn after a rest; nobody waits for that here."""
        loop = asyncio.get_running_loop()
        loop.call_later(REST * (loop.time() - self._began), self._lock.release)


def sparingly(make: Callable[[], T]) -> Callable[[], T]:
    """A function that gives what `make` gives, or gave a moment ago: making takes at most a fifth of the time."""
    made: list[T] = []
    not_before = 0.0

    def give() -> T:
        nonlocal not_before
        began = time.perf_counter()
        if began >= not_before:
            made[:] = [make()]
            ended = time.perf_counter()
            not_before = ended + REST * (ended - began)
        return made[0]

    return give
