"""A list, page by page: while one page is read, the API server works on the next.

The API limits a page by objects alone, and an object may have megabytes: the sizes of the pages so far say how many
objects the next one may have, and one that grows too long nevertheless is not read to its end, but asked for in less.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.api import TooLongError
from gpu_scheduler.adapters.resource import ExpiredError, RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from gpu_scheduler.adapters.api import Answer, Api

GONE: Final = 410
PAGE: Final = 500
"""Most objects of a page."""
FIRST: Final = 50
"""Objects of the first page, of whose size nobody knows anything."""
GROWTH: Final = 4
"""How many times as many objects as a page had the next may have."""
SHRINKAGE: Final = 8
LONGEST: Final = 3 * 2**20
"""Bytes of a page that are read, unless it has one object only."""
USUAL: Final = 2**20
"""Bytes that the next page is to have."""
LIST_TIMEOUT: Final = 30.0

_pages = msgspec.json.Decoder(objects.ObjectList)


async def pages(
    api: Api, path: str, which: Mapping[str, str], large: asyncio.Lock
) -> AsyncGenerator[objects.ObjectList]:
    """Every page; ExpiredError or RefusedError instead of one that the API server does not give.

    Close it where not all of them are taken, and keep none of them. `large` is held while there is an object here that
    is longer than a page.
    """
    query, objects_asked = dict(which), FIRST
    asked = _ask(api, path, query, objects_asked)
    try:
        while True:
            async with AsyncExitStack() as alone:
                try:
                    answer = await asked
                except TooLongError:
                    objects_asked, before = max(objects_asked // SHRINKAGE, 1), objects_asked
                    if before > 1:
                        asked = _ask(api, path, query, objects_asked)
                        continue
                    await alone.enter_async_context(large)
                    answer = await _ask(api, path, query, 1, most=0)
                page, size = _page(answer), len(answer.body)
                del answer
                more = page.metadata.continue_
                objects_asked = _next(objects_asked, len(page.items or ()), size)
                if more:
                    query["continue"] = more
                    if objects_asked > 1:
                        asked = _ask(api, path, query, objects_asked)
                        # It leaves now, before the page is read.
                        await asyncio.sleep(0)
                yield page
                del page
            if not more:
                return
            if objects_asked == 1:
                asked = _ask(api, path, query, objects_asked)
    finally:
        asked.cancel()


def _next(asked: int, found: int, size: int) -> int:
    """How many objects of the size of those that were found make a page of the usual size."""
    return max(1, min(PAGE, asked * GROWTH, USUAL * found // size))


def _ask(api: Api, path: str, query: Mapping[str, str], limit: int, most: int = LONGEST) -> asyncio.Task[Answer]:
    asking = api.call("GET", path, query={**query, "limit": str(limit)}, timeout=LIST_TIMEOUT, most=most)
    return asyncio.create_task(asking)


def _page(answer: Answer) -> objects.ObjectList:
    if answer.status == GONE:
        raise ExpiredError("HTTP 410: the version that was read has expired meanwhile")
    if not answer.ok:
        raise RefusedError(answer)
    return _pages.decode(answer.body)
