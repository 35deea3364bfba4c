"""Long work in turns: after each turn other tasks run, so that no step of the event loop is long.

LAW: a turn is measured by the processor time of the thread, so that a busy machine does not make it shorter.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

T = TypeVar("T")

TURN = 0.005
"""Seconds of processor time after which other tasks run."""


class Turn:
    """The turn of the task that creates it. It begins now."""

    def __init__(self) -> None:
        """Begin."""
        self._begin()

    async def pause(self) -> None:
        """Let other tasks run if the turn is over, and begin the next."""
        # The first clock is read without a system call. A thread has no more processor time than time passes.
        if time.monotonic() - self._began >= TURN and time.thread_time() - self._used >= TURN:
            await asyncio.sleep(0)
            self._begin()

    def _begin(self) -> None:
        self._began, self._used = time.monotonic(), time.thread_time()


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items. After each turn other tasks run."""
    turn = Turn()
    for item in items:
        yield item
        await turn.pause()


class ApplyingLists:
    """The lists of changes that are being applied in turns: `with` begins and ends one.

    In the middle of a list a GPU may look free although a pod has it that comes later in the list. So whoever decides
    waits for `ended` first.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._number = 0
        self._none = asyncio.Event()

    def __enter__(self) -> Self:
        """Begin to apply a list."""
        self._number += 1
        self._none.clear()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._number -= 1
        if not self._number:
            self._none.set()

    async def ended(self) -> None:
        """Return when no list is being applied."""
        while self._number:
            await self._none.wait()
