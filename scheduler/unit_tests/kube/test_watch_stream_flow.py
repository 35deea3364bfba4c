"""How fast a stream is read, and what happens to it when its reader stops."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from gpu_scheduler.kube.http import watch_stream as module
from gpu_scheduler.kube.http.watch_stream import WatchStream
from unit_tests.kube.peers import (
    CREATED,
    END,
    HEAD,
    LARGE,
    WATCH,
    ServerConnection,
    answer_all,
    chunk,
    connection_pool,
    pooled,
    post,
    read_until_error,
    schemes,
    serving,
)
from unit_tests.kube.server import until
from unit_tests.virtual import settle


async def send_head_only(connection: ServerConnection) -> None:
    """Begin a watch that has no events."""
    await connection.head()
    await connection.send(HEAD)
    await connection.read_rest()


@schemes
@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["at once", "with a pause"])
async def test_a_stream_reads_ahead_only_to_its_limit(
    scheme: str, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest stays with the server. Once the reader continues, all data arrives in order."""
    monkeypatch.setattr(module, "_AHEAD", 2**18)
    pieces = [b"%07d\n" % number * 2**13 for number in range(LARGE // 2**15)]
    sent = 0

    async def script(connection: ServerConnection) -> None:
        nonlocal sent
        await connection.head()
        await connection.send(HEAD)
        for piece in pieces:
            await connection.send(chunk(piece))
            sent += 1
        await connection.send(END)
        await connection.read_rest()

    async with pooled(script, scheme) as (_, connections), connections.stream(pause) as stream:
        await stream.begin(WATCH)
        await until(lambda: len(stream._body) > 2**18)
        await settle()
        assert len(stream._body) <= 2**18 + 2**16
        assert sent < len(pieces)
        assert b"".join([piece async for piece in stream.chunks(3)]) == b"".join(pieces)


@contextmanager
def read_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Yield the times at which a stream reads."""
    times: list[float] = []
    usual = WatchStream._readable

    def record(stream: WatchStream) -> None:
        times.append(asyncio.get_running_loop().time())
        usual(stream)

    with monkeypatch.context() as patch:
        patch.setattr(WatchStream, "_readable", record)
        yield times


async def test_data_of_one_pause_arrives_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One read costs the same for one event as for twenty."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD)
        for _ in range(40):
            await connection.send(chunk(b"."))
            await asyncio.sleep(0.005)
        await connection.send(END)

    async with pooled(script) as (_, connections):
        for pause in (0.0, 0.1):
            with read_times(monkeypatch) as times:
                async with connections.stream(pause) as stream:
                    await stream.begin(WATCH)
                    pieces = [piece async for piece in stream.chunks(3)]
            assert b"".join(pieces) == b"." * 40
            gaps = [later - earlier for earlier, later in pairwise(times[1:])]
            assert len(pieces) <= len(times)
            assert (len(times) > 5) if not pause else (min(gaps) > 0.099)


@schemes
async def test_no_pause_delays_the_head(scheme: str) -> None:
    """The caller of `begin` waits for it."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD[:9])
        await asyncio.sleep(0.02)
        await connection.send(HEAD[9:])
        await connection.read_rest()

    async with pooled(script, scheme) as (_, connections), connections.stream(9.0) as stream, asyncio.timeout(0.03):
        assert (await stream.begin(WATCH)).status == 200


@schemes
async def test_a_pause_delays_the_end_by_no_more_than_itself(scheme: str) -> None:
    """A pause does not disable the idle limit."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD + chunk(b"a"), END)

    async with pooled(script, scheme) as (_, connections), connections.stream(0.05) as stream:
        await stream.begin(WATCH)
        async with asyncio.timeout(0.06):
            assert b"".join([piece async for piece in stream.chunks(3)]) == b"a"
    async with pooled(send_head_only, scheme) as (_, connections), connections.stream(0.01) as stream:
        await stream.begin(WATCH)
        with pytest.raises(TimeoutError):
            await anext(stream.chunks(0.05))


@schemes
async def test_the_idle_limit_counts_from_the_last_data(scheme: str) -> None:
    """A stream that sends data now and then may last."""
    rest = 0.1

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD)
        for _ in range(4):
            await asyncio.sleep(rest)
            await connection.send(chunk(b"."))
        await connection.read_rest()

    async with pooled(script, scheme) as (peer, connections):
        async with connections.stream(0.0) as stream:
            await stream.begin(WATCH)
            pieces, error = await read_until_error(stream, 3 * rest)
            assert peer.open == 1
        await until(lambda: peer.open == 0)

    assert pieces == [b"."] * 4
    assert isinstance(error, TimeoutError)


@schemes
@pytest.mark.parametrize("pause", [0.0, 9.0], ids=["at once", "with a pause"])
async def test_a_cancelled_watch_closes_its_connection(scheme: str, pause: float) -> None:
    """Before the head and after it. The next request gets the slot."""

    async def script(connection: ServerConnection) -> None:
        head = await connection.head()
        await connection.send(CREATED if head.startswith(b"POST") else HEAD if len(peer.accepted) > 1 else b"")
        await connection.read_rest()

    async def watch() -> None:
        async with connections.stream(pause) as stream:
            await stream.begin(WATCH)
            begun.set()
            await anext(stream.chunks(9))

    begun = asyncio.Event()
    async with pooled(script, scheme, limit=1) as (peer, connections):
        for count in (1, 2):
            task = asyncio.create_task(watch())
            await until(lambda count=count: len(peer.accepted) == count)
            await (begun.wait() if count == 2 else settle())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: peer.open == 0)
        assert (await connections.ask(post(), None)).status == 201


async def test_a_stream_releases_its_slot_however_it_ends() -> None:
    """Ended, cut, refused or not even opened. While it runs, it keeps the slot."""
    replies = iter((HEAD + END, HEAD, b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"))

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(next(replies))

    async with serving(script) as peer:
        with connection_pool(peer, 1) as connections:
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                assert [piece async for piece in stream.chunks(3)] == []
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02), connections.stream(0.0):
                        pass
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                with pytest.raises(ConnectionResetError):
                    await anext(stream.chunks(3))
            async with connections.stream(0.0) as stream:
                assert (await stream.begin(WATCH)).status == 410
        peer.url = "http://127.0.0.1:1"
        with connection_pool(peer, 1) as connections:
            for _ in range(2):
                with pytest.raises(ConnectionRefusedError):
                    async with connections.stream(0.0):
                        pass


@schemes
async def test_a_stream_in_progress_outlives_its_pool(scheme: str) -> None:
    """New credentials close idle connections. A watch that began with the old credentials was allowed."""
    go_on = asyncio.Event()

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD, chunk(b"a"))
        await go_on.wait()
        await connection.send(chunk(b"b"), END)
        await connection.read_rest()

    async with pooled(script, scheme) as (peer, connections):
        async with connections.stream(0.0) as stream:
            await stream.begin(WATCH)
            connections.close()
            go_on.set()
            assert b"".join([piece async for piece in stream.chunks(3)]) == b"ab"
            await until(lambda: peer.open == 0)
        with pytest.raises(ConnectionError, match="the connection is closed"):
            async with connections.stream(0.0):
                pass


async def test_the_connection_of_a_stream_is_not_reused() -> None:
    """Not even if the server keeps it open. Calls have their own connections."""

    async def script(connection: ServerConnection) -> None:
        if (await connection.head()).startswith(b"GET"):
            await connection.send(HEAD + END)
            await connection.read_rest()
        else:
            await connection.reader.readexactly(2)
            await connection.send(CREATED)
            await answer_all(connection)

    async with pooled(script) as (peer, connections):
        for _ in range(2):
            assert (await connections.ask(post(), None)).status == 201
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                assert [piece async for piece in stream.chunks(3)] == []

    assert len(peer.accepted) == 3
