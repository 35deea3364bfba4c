"""Work that begins at a steady rate, whatever becomes of what has begun before."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")


async def paced(rate: float, items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> float:
    """Begin with so many items a second, and return when all are done: the seconds by which the latest began late."""
    late, began = 0.0, time.monotonic()

    async def begin(item: T, due: float) -> None:
        nonlocal late
        late = max(late, time.monotonic() - due)
        await work(item)

    async with asyncio.TaskGroup() as flights:
        for number, item in enumerate(items):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            flights.create_task(begin(item, due))
    return late
