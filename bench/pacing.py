"""Work that begins at a steady rate, whatever becomes of what has begun before."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bench.figures import percentile

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

T = TypeVar("T")

_USUAL: Final = 95


async def paced(rate: float, items: Iterable[T], work: Callable[[T], Coroutine[Any, Any, None]]) -> float:
    """Begin with so many items a second, and return when all are done: the seconds within which 19 of 20 began late.

    A machine that stands still for a moment makes a few late, and what is measured of them worse; only where more are
    late was the rate another.
    """
    late, began = [], time.monotonic()

    async def begin(item: T, due: float) -> None:
        late.append(time.monotonic() - due)
        await work(item)

    async with asyncio.TaskGroup() as tasks:
        for number, item in enumerate(items):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            tasks.create_task(begin(item, due))
    return percentile(late, _USUAL) if late else 0.0
