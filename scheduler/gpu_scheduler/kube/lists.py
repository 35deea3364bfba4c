"""Reads a list page by page, or one object by its name.

The API limits a page only by its number of objects, and an object may have megabytes. The size of the last page
determines how many objects the next one may have. A page that is too long nevertheless is not read to its end, but
requested again with fewer objects. While one page is processed, the API server prepares the next.
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
FIRST_PAGE: Final = 50
"""Objects of the first page, when their size is still unknown."""
GROWTH: Final = 4
"""The next page may have at most this many times as many objects as were requested for the last."""
SHRINKAGE: Final = 8
MAX_PAGE_BYTES: Final = 3 * 2**20
"""Most bytes of a page, unless it has a single object."""
TARGET_PAGE_BYTES: Final = 2**20
"""Bytes that the next page should have."""
LIST_TIMEOUT: Final = 30.0

_pages = msgspec.json.Decoder(ObjectList)


async def pages(api: ApiClient, path: str, which: Mapping[str, str], large: asyncio.Lock) -> AsyncGenerator[ObjectList]:
    """Yield every page; raise ExpiredError or RefusedError if the API server refuses one.

    A caller that stops early must close the generator. It must keep no page. `large` is held while an object that is
    longer than a page is in memory.
    """
    query, objects_asked = dict(which), FIRST_PAGE
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
                        # Lets the request be sent now, before the caller processes this page.
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
    """Return how many objects make a page of the usual size, if `found` objects have `size` bytes."""
    return max(1, min(PAGE, asked * GROWTH, TARGET_PAGE_BYTES * found // size))


def _ask(
    api: ApiClient, path: str, query: Mapping[str, str], limit: int, most: int = MAX_PAGE_BYTES
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
BAD_REQUEST = 400

log = logging.getLogger(__name__)


class UnlistedError(Exception):
    """The API server refuses a list, or one object; the text says which, and why."""

    def __init__(self, what: str, refused: RefusedError | ExpiredError, verb: str = "list") -> None:
        """`what` names the list or the object. `forbidden`: the user lacks a right; `invalid`: a selector is wrong."""
        super().__init__(f"cannot {verb} {what}: {refused}")
        status = refused.status if isinstance(refused, RefusedError) else None
        self.forbidden, self.invalid = status == FORBIDDEN, status == BAD_REQUEST


async def list_all(  # noqa: PLR0913 - the parts of a list
    api: ApiClient,
    what: str,
    path: str,
    read: Callable[[msgspec.Raw], T],
    *,
    selector: str = "",
    labels: str = "",
    empty: Collection[int] = (),
) -> list[T]:
    """Return every object, read page by page; none if the API server answers with a status in `empty`.

    `selector` selects fields. An object that cannot be decoded is logged and left out. Raise UnlistedError if the API
    server refuses.
    """
    given = {"fieldSelector": selector, "labelSelector": labels}
    which = {key: text for key, text in given.items() if text}
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


async def get_one(api: ApiClient, what: str, path: str, read: Callable[[bytes], T]) -> T | None:
    """Return one object, or None if it does not exist. Raise UnlistedError if the API server refuses."""
    answer = await api.call("GET", path, query={})
    if answer.status == NOT_FOUND:
        return None
    if not answer.ok:
        raise UnlistedError(what, RefusedError(answer), "read")
    return read(bytes(answer.body))


USUAL_OBJECT: Final = 2**18
"""Most bytes of an object of which many may be in memory at once."""


async def read_object(api: ApiClient, path: str, large: asyncio.Lock) -> ApiResponse:
    """Return the response to a GET; raise NoResponseError if there is none.

    `large` is held while an object of more than USUAL_OBJECT bytes is received. The caller must not await anything
    while it keeps the response.
    """
    try:
        return await api.call("GET", path, most=USUAL_OBJECT)
    except TooLongError:
        async with large:
            return await api.call("GET", path)
