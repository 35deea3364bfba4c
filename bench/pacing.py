"""Starts tasks at a steady rate, without waiting for earlier ones."""

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
    """Start `rate` items a second and wait for all of them. Return the seconds within which 19 of 20 started late.

    A short pause of the machine makes only a few items late. The rate was another only if more of them were late.
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
