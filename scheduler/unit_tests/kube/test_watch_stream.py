"""How a streamed response is read: its head, its parts, its end, and what is an error."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_scheduler.kube.http import watch_stream as module
from gpu_scheduler.kube.http.connection import HttpReply
from gpu_scheduler.kube.http.watch_stream import WatchStream
from tests.messages import text_of
from unit_tests import virtual
from unit_tests.kube.peers import (
    CREATED,
    END,
    HEAD,
    WATCH,
    ServerConnection,
    chunk,
    connection_pool,
    pooled,
    read_until_error,
    schemes,
    serving,
)
from unit_tests.kube.server import until


@asynccontextmanager
async def begun(*raw: bytes, scheme: str = "http", pause: float = 0.0) -> AsyncIterator[tuple[WatchStream, HttpReply]]:
    """Yield a stream and its head from a server that sends these pieces and then closes."""

    async def script(connection: ServerConnection) -> None:
        assert await connection.head() == WATCH
        await connection.send(*raw)

    async with serving(script, scheme) as peer:
        with connection_pool(peer) as connections:
            async with connections.stream(pause) as stream:
                yield stream, await stream.begin(WATCH)
        await until(lambda: peer.open == 0)


async def received(stream: WatchStream) -> list[bytearray]:
    return [piece async for piece in stream.chunks(3)]


@schemes
async def test_parts_follow_the_head(scheme: str) -> None:
    """Each part as soon as it arrives, until the server ends the stream."""
    go_on = asyncio.Semaphore(0)

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        for piece in (HEAD, chunk(b"a"), chunk(b"b") + chunk(b"c"), END):
            await connection.send(piece)
            await go_on.acquire()
        await connection.read_rest()

    async with pooled(script, scheme) as (peer, connections), connections.stream(0.0) as stream:
        assert await stream.begin(WATCH) == HttpReply(200, b"", "")
        pieces = []
        go_on.release()
        async for piece in stream.chunks(3):
            pieces.append(piece)
            go_on.release()
        go_on.release()
        assert pieces == [b"a", b"bc"]
        await until(lambda: peer.open == 0)


REFUSALS = {
    "gone": (
        b"HTTP/1.1 410 Gone\r\nContent-Length: 15\r\n\r\n" + b'{"code":   410}',
        HttpReply(410, b'{"code":   410}', ""),
    ),
    "with Retry-After": (
        b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n",
        HttpReply(429, b"", "3"),
    ),
    "in chunks": (
        b"HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"a") + chunk(b"b") + END,
        HttpReply(500, b"ab", ""),
    ),
    "long": (
        b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n" % (3 * 2**20) + bytes(3 * 2**20),
        HttpReply(500, bytes(3 * 2**20), ""),
    ),
    "until the server closes": (b"HTTP/1.0 403 Forbidden\r\n\r\nno", HttpReply(403, b"no", "")),
    "after interim responses": (
        b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n?",
        HttpReply(404, b"?", ""),
    ),
}


@schemes
@pytest.mark.parametrize(("raw", "reply"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_returned_with_its_whole_body(scheme: str, raw: bytes, reply: HttpReply) -> None:
    """Its message gives the remedy."""
    async with begun(raw, scheme=scheme) as (_, response):
        assert response == reply


STREAMS = {
    "after an interim response": ((b"HTTP/1.1 100 Continue\r\n\r\n", HEAD + chunk(b"a") + END), b"a"),
    "with a length": ((b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"ab", b"c"), b"abc"),
    "until the server closes": ((b"HTTP/1.0 200 OK\r\n\r\n", b"ab", b"c"), b"abc"),
    "without a body": ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
    "with another response after it": ((HEAD + chunk(b"a") + END + CREATED,), b"a"),
    "with other bytes after it": ((HEAD + chunk(b"a") + END + b"?",), b"a"),
}


@schemes
@pytest.mark.parametrize(("raw", "whole"), STREAMS.values(), ids=STREAMS)
async def test_a_stream_ends_where_the_server_ends_it(scheme: str, raw: tuple[bytes, ...], whole: bytes) -> None:
    """No byte is missing, and none is added."""
    async with begun(*raw, scheme=scheme) as (stream, response):
        assert response.status in {200, 204}
        assert b"".join(await received(stream)) == whole


CUTS = {
    "between chunks": (b"", text_of("connection: closed by the server")),
    "in a chunk": (b"5\r\nab", text_of("connection: closed by the server")),
    "by invalid bytes": (b"?\r\n", text_of("connection: no HTTP")),
}


@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["at once", "with a pause"])
@schemes
@pytest.mark.parametrize(("raw", "why"), CUTS.values(), ids=CUTS)
async def test_data_before_a_cut_is_delivered_first(scheme: str, raw: bytes, why: str, pause: float) -> None:
    """The error follows: a cut is no end."""
    async with begun(HEAD + chunk(b"whole") + raw, scheme=scheme, pause=pause) as (stream, _):
        pieces, error = await read_until_error(stream)

    assert b"".join(pieces).startswith(b"whole")
    assert isinstance(error, ConnectionError)
    assert why in str(error)


@schemes
@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"SSH-2.0\r\n"])
async def test_a_missing_head_is_an_error(scheme: str, raw: bytes) -> None:
    """The error comes at once, and the connection is closed."""
    with pytest.raises(ConnectionError, match=r"closed the connection|not HTTP"):
        async with begun(raw, scheme=scheme):
            pass


async def test_a_connection_closed_before_the_request_is_reported() -> None:
    """Between handshake and request the client may have to read a token."""

    async def script(connection: ServerConnection) -> None:
        """Close."""

    async with pooled(script) as (_, connections), connections.stream(0.0) as stream:
        await until(lambda: not stream.usable)
        with pytest.raises(ConnectionResetError, match=text_of("connection: closed by the server")):
            await stream.begin(WATCH)


async def received_in_pieces(parts: list[bytes], cuts: list[int], pause: float) -> bytes:
    """Send these parts in pieces; return what is received."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    raw = HEAD + b"".join(map(chunk, parts)) + END
    with theirs:
        stream = WatchStream(ours, pause)
        beginning = asyncio.create_task(stream.begin(WATCH))
        reading = asyncio.create_task(whole(beginning, stream))
        for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            await asyncio.sleep(0)
            theirs.sendall(raw[start:end])
        return await reading


async def whole(beginning: asyncio.Task[HttpReply], stream: WatchStream) -> bytes:
    """Return all bytes of a stream that the server ends, and with it the connection."""
    assert await beginning == HttpReply(200, b"", "")
    pieces = await received(stream)
    assert all(pieces)
    assert not stream.usable
    return b"".join(pieces)


@given(
    data=st.data(),
    parts=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    pause=st.sampled_from([0.0, 0.001]),
    ahead=st.sampled_from([0, 10, 2**21]),
)
@settings(max_examples=60, deadline=None)
def test_the_cuts_of_a_stream_change_nothing(data: st.DataObject, parts: list[bytes], pause: float, ahead: int) -> None:
    """Whatever the pieces are, with or without a pause, and however small the read-ahead limit is."""
    length = len(HEAD + b"".join(map(chunk, parts)) + END)
    cuts = sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=12)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AHEAD", ahead)
        assert virtual.run(received_in_pieces(parts, cuts, pause)) == b"".join(parts)
