"""A page is asked for in objects and bounded in bytes."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from gpu_scheduler.kube.http.client import ApiResponse, TooLongError
from gpu_scheduler.kube.http.watch_stream import LONG, lines
from gpu_scheduler.kube.lists import pages
from tests.kube.server import Reply, connected

PATH = "/api/v1/pods"


class Collection:
    """Objects of so many bytes each, listed as an API server lists them."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self.asked: list[int] = []

    async def call(self, _method: str, _path: str, *, query: dict[str, str], most: int = 0, **_: Any) -> ApiResponse:
        """See Api."""
        limit, start = int(query["limit"]), int(query.get("continue", "0"))
        self.asked.append(limit)
        end = start + limit
        items = [{"text": "x" * size} for size in self._sizes[start:end]]
        more = str(end) if end < len(self._sizes) else None
        body = msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": more}, "items": items})
        if 0 < most < len(body):
            raise TooLongError("it is too long")
        return ApiResponse(200, body)


async def listed(collection: Collection, large: asyncio.Lock) -> list[int]:
    """How many objects each page has."""
    async with aclosing(pages(collection, PATH, {}, large)) as read:  # type: ignore[arg-type]
        return [len(page.items or ()) async for page in read]


SMALL, MIDDLE, LARGE = 1000, 300_000, 4_000_000
LISTS = {
    "small ones in ever larger pages": ((SMALL,) * 1500, [50, 200, 500, 500, 250]),
    "middle ones in pages of their size": ((MIDDLE,) * 12, [6, 3, 3]),
    "large ones one by one": ((LARGE,) * 3, [1, 1, 1]),
    "small ones behind a large one": ((LARGE, *(SMALL,) * 30), [1, 1, 4, 16, 9]),
    "a large one behind small ones": ((*(SMALL,) * 53, LARGE, SMALL), [50, 3, 1, 1]),
    "none": ((), [0]),
}


@pytest.mark.parametrize(("sizes", "expected"), LISTS.values(), ids=LISTS)
async def test_pages_are_as_large_as_their_objects_allow(sizes: tuple[int, ...], expected: list[int]) -> None:
    """Every object is read once; a page that grew too long is asked for in less."""
    large = asyncio.Lock()
    found = await listed(Collection(*sizes), large)

    assert sum(found) == len(sizes)
    assert not large.locked()
    assert found == expected


async def test_large_objects_wait_for_each_other() -> None:
    """Two lists never have one each in memory."""
    large = asyncio.Lock()
    await large.acquire()
    reading = asyncio.ensure_future(listed(Collection(LARGE, LARGE), large))
    done, _ = await asyncio.wait([reading], timeout=0.05)
    assert not done

    large.release()

    assert await reading == [1, 1]


async def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    """However it is packed; the next request has a connection of its own."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(body="x" * 100_000))
        with pytest.raises(TooLongError, match="more than 1000 bytes"):
            await api.call("GET", PATH, most=1000)

        assert len((await api.call("GET", PATH, most=100_000)).body) == 100_000


async def test_long_lines_wait_for_each_other() -> None:
    """Of two streams one has a line of megabytes at a time."""
    large = asyncio.Lock()

    async def chunks() -> Any:
        for _ in range(5):
            yield b"x" * (LONG // 2)
        yield b"\nshort\n"

    await large.acquire()
    found: list[int] = []

    async def read() -> None:
        found.extend([len(line) async for line in lines(chunks(), large)])

    reading = asyncio.ensure_future(read())
    done, _ = await asyncio.wait([reading], timeout=0.05)
    assert not done

    large.release()
    await reading

    assert found == [5 * LONG // 2, 5]
    assert not large.locked()
