"""A list requests pages by number of objects, and bounds them in bytes."""

import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from gpu_scheduler.kube.http.client import ApiResponse, TooLongError
from gpu_scheduler.kube.http.watch_stream import LARGE_LINE, lines
from gpu_scheduler.kube.lists import pages
from unit_tests.kube.server import Reply, connected
from unit_tests.virtual import settle

PATH = "/api/v1/pods"


class Collection:
    """Objects of these sizes in bytes, listed as an API server lists them."""

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self.limits: list[int] = []

    async def call(self, _method: str, _path: str, *, query: dict[str, str], most: int = 0, **_: Any) -> ApiResponse:
        limit, start = int(query["limit"]), int(query.get("continue", "0"))
        self.limits.append(limit)
        end = start + limit
        items = [{"text": "x" * size} for size in self._sizes[start:end]]
        more = str(end) if end < len(self._sizes) else None
        body = msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": more}, "items": items})
        if 0 < most < len(body):
            raise TooLongError("it is too long")
        return ApiResponse(200, body)


async def listed(collection: Collection, large: asyncio.Lock) -> list[int]:
    """Return the number of objects of each page."""
    async with aclosing(pages(collection, PATH, {}, large)) as read:  # type: ignore[arg-type]
        return [len(page.items or ()) async for page in read]


SMALL, MIDDLE, LARGE = 1000, 300_000, 4_000_000
LISTS = {
    "small objects in growing pages": ((SMALL,) * 1500, [50, 200, 500, 500, 250]),
    "medium objects in pages of their size": ((MIDDLE,) * 12, [6, 3, 3]),
    "large objects one by one": ((LARGE,) * 3, [1, 1, 1]),
    "small objects after a large one": ((LARGE, *(SMALL,) * 30), [1, 1, 4, 16, 9]),
    "a large object after small ones": ((*(SMALL,) * 53, LARGE, SMALL), [50, 3, 1, 1]),
    "no objects": ((), [0]),
}


@pytest.mark.parametrize(("sizes", "expected"), LISTS.values(), ids=LISTS)
async def test_pages_are_as_large_as_their_objects_allow(sizes: tuple[int, ...], expected: list[int]) -> None:
    """Every object is read once. A page that is too long is requested again with fewer objects."""
    large = asyncio.Lock()
    found = await listed(Collection(*sizes), large)

    assert sum(found) == len(sizes)
    assert not large.locked()
    assert found == expected


@pytest.mark.promise("wide-1")
async def test_lists_read_large_objects_one_at_a_time() -> None:
    """Two lists never hold one large object each in memory."""
    large = asyncio.Lock()
    await large.acquire()
    reading = asyncio.ensure_future(listed(Collection(LARGE, LARGE), large))
    await settle()
    assert not reading.done()

    large.release()

    assert await reading == [1, 1]


async def test_a_body_that_is_too_long_is_not_read_to_its_end() -> None:
    """Whether or not it is compressed. The next request uses another connection."""
    async with connected() as (server, api):
        server.on("GET", PATH, Reply(body="x" * 100_000))
        with pytest.raises(TooLongError, match="more than 1000 bytes"):
            await api.call("GET", PATH, most=1000)

        assert len((await api.call("GET", PATH, most=100_000)).body) == 100_000


async def test_streams_read_long_lines_one_at_a_time() -> None:
    """Only one of two streams holds a line of megabytes at a time."""
    large = asyncio.Lock()

    async def chunks() -> Any:
        for _ in range(5):
            yield b"x" * (LARGE_LINE // 2)
        yield b"\nshort\n"

    await large.acquire()
    found: list[int] = []

    async def read() -> None:
        found.extend([len(line) async for line in lines(chunks(), large)])

    reading = asyncio.ensure_future(read())
    await settle()
    assert not reading.done()

    large.release()
    await reading

    assert found == [5 * LARGE_LINE // 2, 5]
    assert not large.locked()
