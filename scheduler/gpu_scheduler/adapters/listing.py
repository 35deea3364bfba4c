"""One look at a collection or an object, for who does not watch: all pages, or the one answer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING

from gpu_scheduler.adapters.decoding import UNREADABLE
from gpu_scheduler.adapters.paging import pages
from gpu_scheduler.adapters.resource import ExpiredError, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from typing import TypeVar

    import msgspec

    from gpu_scheduler.adapters.api import Api

    T = TypeVar("T")

NOT_FOUND = 404
FORBIDDEN = 403

log = logging.getLogger(__name__)


class UnlistedError(Exception):
    """The API server refuses a list; the text says which, and why."""

    def __init__(self, what: str, refused: RefusedError | ExpiredError) -> None:
        """Keep both."""
        super().__init__(f"cannot list {what}: {refused}")


async def list_all(  # noqa: PLR0913 - the parts of a list
    api: Api,
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


async def get_one(api: Api, what: str, path: str, read: Callable[[bytes], T], *, or_none: bool = False) -> T | None:
    """One object; None when there is none, with `or_none` also when it is not ours to see."""
    answer = await api.call("GET", path, query={})
    if answer.status == NOT_FOUND or (answer.status == FORBIDDEN and or_none):
        return None
    if not answer.ok:
        raise UnlistedError(what, RefusedError(answer))
    return read(bytes(answer.body))
