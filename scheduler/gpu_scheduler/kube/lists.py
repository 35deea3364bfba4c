"""A list page by page, or one object by its name, for reflector and command line.

The API limits a page by objects alone, and an object may have megabytes: the sizes of the pages so far say how many
objects the next one may have, and one that grows too long nevertheless is not read to its end, but asked for in less.
While one page is read, the API server works on the next.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Final

import msgspec

from gpu_scheduler.kube.http.client import TooLongError
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import ObjectList
from gpu_scheduler.kube.resource import ExpiredError, RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
    from typing import TypeVar

    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

    T = TypeVar("T")

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

_pages = msgspec.json.Decoder(ObjectList)


async def pages(api: ApiClient, path: str, which: Mapping[str, str], large: asyncio.Lock) -> AsyncGenerator[ObjectList]:
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


def _ask(
    api: ApiClient, path: str, query: Mapping[str, str], limit: int, most: int = LONGEST
) -> asyncio.Task[ApiResponse]:
    asking = api.call("GET", path, query={**query, "limit": str(limit)}, timeout=LIST_TIMEOUT, most=most)
    return asyncio.create_task(asking)


def _page(answer: ApiResponse) -> ObjectList:
    if answer.status == GONE:
        raise ExpiredError("HTTP 410: the version that was read has expired meanwhile")
    if not answer.ok:
        raise RefusedError(answer)
    return _pages.decode(answer.body)


NOT_FOUND = 404
FORBIDDEN = 403

log = logging.getLogger(__name__)


class UnlistedError(Exception):
    """The API server refuses a list; the text says which, and why."""

    def __init__(self, what: str, refused: RefusedError | ExpiredError) -> None:
        """Keep both."""
        super().__init__(f"cannot list {what}: {refused}")


async def list_all(  # noqa: PLR0913 - the parts of a list
    api: ApiClient,
    what: str,
    path: str,
    read: Callable[[msgspec.Raw], T],
    *,
    selector: str = "",
    empty: Collection[int] = (),
) -> list[T]:
    """Every object, page by page; an answer with a status of `empty` means that there is none.

    An object that cannot be read is told and left out. UnlistedError where the API server refuses.
    """
    which = {"fieldSelector": selector} if selector else {}
    found: list[T] = []
    try:
        async with aclosing(pages(api, path, which, asyncio.Lock())) as read_pages:
            async for page in read_pages:
                found += _readable(page.items or (), what, read)
    except RefusedError as error:
        if error.status in empty:
            return []
        raise UnlistedError(what, error) from error
    except ExpiredError as error:
        raise UnlistedError(what, error) from error
    return found


def _readable(items: Iterable[msgspec.Raw], what: str, read: Callable[[msgspec.Raw], T]) -> Iterator[T]:
    for raw in items:
        try:
            yield read(raw)
        except UNREADABLE as error:
            log.warning("An object cannot be read", extra={"resource": what, "error": str(error)})


async def get_one(
    api: ApiClient, what: str, path: str, read: Callable[[bytes], T], *, or_none: bool = False
) -> T | None:
    """One object; None when there is none, with `or_none` also when it is not ours to see."""
    answer = await api.call("GET", path, query={})
    if answer.status == NOT_FOUND or (answer.status == FORBIDDEN and or_none):
        return None
    if not answer.ok:
        raise UnlistedError(what, RefusedError(answer))
    return read(bytes(answer.body))


USUAL_OBJECT: Final = 2**18
"""Bytes of an object of which many may be here at once."""


async def read_object(api: ApiClient, path: str, large: asyncio.Lock) -> ApiResponse:
    """The answer to a GET; NoResponseError when there is none. Whoever takes it must not wait while it is here.

    `large` is held while a longer object than usual comes.
    """
    try:
        return await api.call("GET", path, most=USUAL_OBJECT)
    except TooLongError:
        async with large:
            return await api.call("GET", path)
