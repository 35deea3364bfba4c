import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from gpu_scheduler.process import request_bodies
from gpu_scheduler.process.request_bodies import SMALL, BodyBudget, BodyError
from unit_tests.virtual import settle

if TYPE_CHECKING:
    from aiohttp import web

    from gpu_scheduler.process.peer_connection import PeerConnection

LARGEST = 4 * SMALL


class Connection:
    """The part of a connection that a budget uses."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.complete = False

    def close(self) -> None:
        self.closed.set()

    def request_completed(self) -> None:
        self.complete = True


class Content:
    """A body whose pieces a test sends; it breaks off when its connection is closed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    async def readany(self) -> bytes:
        piece = asyncio.create_task(self._pieces.get())
        gone = asyncio.create_task(self._connection.closed.wait())
        done, _ = await asyncio.wait({piece, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (piece, gone):
            task.cancel()
        if piece in done:
            return piece.result()
        raise ConnectionResetError


class Request:
    """A request with a body of an announced length."""

    def __init__(self, size: int | None) -> None:
        self.content_length = size
        self.connection = Connection()
        self.content = Content(self.connection)
        self.reading = asyncio.Event()
        self.finish = asyncio.Event()

    async def read(self, budget: BodyBudget) -> bytes:
        """Read the body, and keep its room until `finish` is set."""
        request, connection = cast("web.Request", self), cast("PeerConnection", self.connection)
        async with budget.body(request, connection) as body:
            self.reading.set()
            await self.finish.wait()
            return bytes(body)

    def send_all(self) -> None:
        self.content.send(b"x" * (self.content_length or 0))


async def test_a_body_in_pieces_becomes_one() -> None:
    """The request then counts as complete."""
    request = Request(5)
    reading = asyncio.create_task(request.read(BodyBudget(LARGEST)))
    for piece in (b"ab", b"cde"):
        assert not request.connection.complete
        request.content.send(piece)
        await settle()
    request.finish.set()
    assert await reading == b"abcde"
    assert request.connection.complete


@pytest.mark.parametrize(("size", "status"), [(None, 411), (LARGEST + 1, 413)])
async def test_a_body_of_unknown_or_too_great_length_is_not_read(size: int | None, status: int) -> None:
    """No memory can be reserved for it."""
    with pytest.raises(BodyError) as caught:
        await Request(size).read(BodyBudget(LARGEST))
    assert caught.value.status == status


async def test_a_body_that_is_cut_short_is_refused() -> None:
    """The peer sent less than it announced."""
    request = Request(5)
    request.content.send(b"ab")
    request.content.send(b"")
    with pytest.raises(BodyError) as caught:
        await request.read(BodyBudget(LARGEST))
    assert caught.value.status == 400


@pytest.mark.promise("serve-1")
async def test_bodies_wait_for_room_and_the_smallest_is_next() -> None:
    """The announced length counts, not the received length. A small body never waits."""
    budget = BodyBudget(LARGEST, in_flight=LARGEST)
    first, large, larger, small = Request(LARGEST), Request(2 * SMALL), Request(3 * SMALL), Request(SMALL)
    tasks = []
    for request in (first, larger, large, small):
        tasks.append(asyncio.create_task(request.read(budget)))
        request.send_all()
        await settle()
    assert [each.reading.is_set() for each in (first, larger, large, small)] == [True, False, False, True]

    first.finish.set()
    await settle()

    assert (large.reading.is_set(), larger.reading.is_set()) == (True, False)
    for each in (large, larger, small):
        each.finish.set()
    assert sorted(len(body) for body in await asyncio.gather(*tasks)) == [SMALL, 2 * SMALL, 3 * SMALL, LARGEST]


async def test_a_body_that_stalls_loses_its_room_to_one_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it has the time of every request. A body that has arrived keeps its room, however long its use takes."""
    monkeypatch.setattr(request_bodies, "ARRIVAL_TIMEOUT", 0.1)
    monkeypatch.setattr(request_bodies, "CHECK_EVERY", 0.02)
    budget = BodyBudget(LARGEST, in_flight=2 * LARGEST)
    stalled, arrived, waiting = Request(LARGEST), Request(LARGEST), Request(LARGEST)
    tasks = [asyncio.create_task(each.read(budget)) for each in (stalled, arrived)]
    arrived.send_all()
    await asyncio.sleep(0.2)
    assert not stalled.connection.closed.is_set()

    tasks.append(asyncio.create_task(waiting.read(budget)))
    waiting.send_all()
    await asyncio.wait_for(waiting.reading.wait(), 2)

    assert stalled.connection.closed.is_set()
    assert not arrived.connection.closed.is_set()
    with pytest.raises(ConnectionResetError):
        await tasks[0]
    arrived.finish.set()
    waiting.finish.set()
    assert [len(await task) for task in tasks[1:]] == [LARGEST, LARGEST]


@pytest.mark.parametrize("granted", [False, True], ids=["before it has room", "in the moment that it gets room"])
async def test_a_body_whose_peer_is_gone_keeps_no_room(*, granted: bool) -> None:
    """The next body gets the room."""
    budget = BodyBudget(LARGEST, in_flight=LARGEST)
    first, gone, last = Request(LARGEST), Request(LARGEST - 1), Request(LARGEST)
    reading, leaving, waiting = [asyncio.create_task(each.read(budget)) for each in (first, gone, last)]
    first.send_all()
    last.send_all()
    await settle()
    first.finish.set()
    if granted:
        await reading
    leaving.cancel()
    await asyncio.wait_for(last.reading.wait(), 2)
    last.finish.set()
    await asyncio.gather(reading, waiting)
