"""One look at a collection or an object, for who does not watch: all pages, or the one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.decoding import UNREADABLE
from gpu_scheduler.adapters.logs import get_logger
from gpu_scheduler.adapters.paging import LIST_TIMEOUT, PAGE
from gpu_scheduler.adapters.resource import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeVar

    from gpu_scheduler.adapters.api import Api

    T = TypeVar("T")

NOT_FOUND = 404
FORBIDDEN = 403

log = get_logger(__name__)

_pages = msgspec.json.Decoder(objects.ObjectList)


class UnlistedError(Exception):
    """The API server refuses a list; the text says which, and why."""

    def __init__(self, what: str, refused: RefusedError) -> None:
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
    query = {"limit": str(PAGE), **({"fieldSelector": selector} if selector else {})}
    found: list[T] = []
    while True:
        answer = await api.call("GET", path, query=query, timeout=LIST_TIMEOUT)
        if answer.status in empty:
            return []
        if not answer.ok:
            raise UnlistedError(what, RefusedError(answer))
        page = _pages.decode(answer.body)
        for raw in page.items or ():
            try:
                found.append(read(raw))
            except UNREADABLE as error:
                log.warning("An object cannot be read", resource=what, error=str(error))
        if not page.metadata.continue_:
            return found
        query["continue"] = page.metadata.continue_


async def get_one(api: Api, what: str, path: str, read: Callable[[bytes], T], *, or_none: bool = False) -> T | None:
    """One object; None when there is none, with `or_none` also when it is not ours to see."""
    answer = await api.call("GET", path, query={})
    if answer.status == NOT_FOUND or (answer.status == FORBIDDEN and or_none):
        return None
    if not answer.ok:
        raise UnlistedError(what, RefusedError(answer))
    return read(answer.body)
