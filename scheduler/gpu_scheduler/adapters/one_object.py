"""One object, read by its name: it may have megabytes, and of those one at a time is here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpu_scheduler.adapters.api import TooLongError

if TYPE_CHECKING:
    import asyncio

    from gpu_scheduler.adapters.api import Answer, Api

USUAL: Final = 2**18
"""Bytes of an object of which many may be here at once."""


async def read_object(api: Api, path: str, large: asyncio.Lock) -> Answer:
    """The answer to a GET; NoAnswerError when there is none. Whoever takes it must not wait while it is here.

    `large` is held while a longer object than usual comes.
    """
    try:
        return await api.call("GET", path, most=USUAL)
    except TooLongError:
        async with large:
            return await api.call("GET", path)
