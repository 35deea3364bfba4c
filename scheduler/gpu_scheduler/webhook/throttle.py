"""Keeps costly reviews from blocking the event loop: one at a time, with pauses in between for all other work."""

from __future__ import annotations

import asyncio
from typing import Final

PAUSE: Final = 4
"""The pause after a review, in multiples of its duration: all costly reviews together take a fifth of the time."""


class Throttle:
    """`async with` waits until the next costly review may begin. Its body must not await."""

    def __init__(self) -> None:
        """Start without a pause: the first review may begin at once."""
        self._lock = asyncio.Lock()
        self._began = 0.0

    async def __aenter__(self) -> None:
        """Wait until the review may begin, in the order of arrival."""
        await self._lock.acquire()
        self._began = asyncio.get_running_loop().time()

    async def __aexit__(self, *_: object) -> None:
        """Let the next review begin after the pause. The caller does not wait for the pause."""
        loop = asyncio.get_running_loop()
        loop.call_later(PAUSE * (loop.time() - self._began), self._lock.release)
