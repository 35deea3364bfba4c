"""A list, page by page: while one page is read, the API server works on the next."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.resource import ExpiredError, RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from gpu_scheduler.adapters.api import Answer, Api

GONE: Final = 410
PAGE: Final = 500
LIST_TIMEOUT: Final = 30.0

_pages = msgspec.json.Decoder(objects.ObjectList)


async def pages(api: Api, path: str, which: Mapping[str, str]) -> AsyncGenerator[objects.ObjectList]:
    """Every page; ExpiredError or RefusedError instead of one that the API server does not give.

    Close it where not all of them are taken.
    """
    asked = _ask(api, path, which)
    try:
        while True:
            page = _page(await asked)
            more = page.metadata.continue_
            if more:
                asked = _ask(api, path, {**which, "continue": more})
                # It leaves now, before the page is read.
                await asyncio.sleep(0)
            yield page
            if not more:
                return
    finally:
        asked.cancel()


def _ask(api: Api, path: str, which: Mapping[str, str]) -> asyncio.Task[Answer]:
    return asyncio.create_task(api.call("GET", path, query={**which, "limit": str(PAGE)}, timeout=LIST_TIMEOUT))


def _page(answer: Answer) -> objects.ObjectList:
    if answer.status == GONE:
        raise ExpiredError
    if not answer.ok:
        raise RefusedError(answer)
    return _pages.decode(answer.body)
