"""How an answer that goes on is read: its head, what comes, its end, and what is none."""

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
from tests.kube.peers import CREATED, END, HEAD, WATCH, Talk, asking, broken, chunk, schemes, serving
from tests.kube.server import until


@asynccontextmanager
async def begun(*said: bytes, scheme: str = "http", pause: float = 0.0) -> AsyncIterator[tuple[WatchStream, HttpReply]]:
    """A stream from a server that says this, in pieces, and then closes."""

    async def script(talk: Talk) -> None:
        assert await talk.head() == WATCH
        await talk.say(*said)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(pause) as stream:
                yield stream, await stream.begin(WATCH)
        await until(lambda: peer.open == 0)


async def heard(stream: WatchStream) -> list[bytearray]:
    """All that comes until the end."""
    return [piece async for piece in stream.chunks(3)]


@schemes
async def test_the_head_comes_first_and_then_what_there_is(scheme: str) -> None:
    """As soon as it is there, until the server ends it."""
    go_on = asyncio.Semaphore(0)

    async def script(talk: Talk) -> None:
        await talk.head()
        for piece in (HEAD, chunk(b"a"), chunk(b"b") + chunk(b"c"), END):
            await talk.say(piece)
            await go_on.acquire()
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(0.0) as stream:
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
    "asking for patience": (
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
    "after a word on the way": (
        b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\n?",
        HttpReply(404, b"?", ""),
    ),
}


@schemes
@pytest.mark.parametrize(("said", "reply"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_an_answer_with_its_body_whole(scheme: str, said: bytes, reply: HttpReply) -> None:
    """Its words tell what to do."""
    async with begun(said, scheme=scheme) as (_, answer):
        assert answer == reply


STREAMS = {
    "after a word on the way": ((b"HTTP/1.1 100 Continue\r\n\r\n", HEAD + chunk(b"a") + END), b"a"),
    "with a length": ((b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", b"ab", b"c"), b"abc"),
    "until the server closes": ((b"HTTP/1.0 200 OK\r\n\r\n", b"ab", b"c"), b"abc"),
    "with nothing": ((b"HTTP/1.1 204 No Content\r\n\r\n",), b""),
    "with another answer behind it": ((HEAD + chunk(b"a") + END + CREATED,), b"a"),
    "with no HTTP behind it": ((HEAD + chunk(b"a") + END + b"?",), b"a"),
}


@schemes
@pytest.mark.parametrize(("said", "whole"), STREAMS.values(), ids=STREAMS)
async def test_a_stream_ends_where_the_server_ends_it(scheme: str, said: tuple[bytes, ...], whole: bytes) -> None:
    """Nothing is missing, and nothing added."""
    async with begun(*said, scheme=scheme) as (stream, answer):
        assert answer.status in {200, 204}
        assert b"".join(await heard(stream)) == whole


CUTS = {
    "between chunks": (b"", "the server closed the connection"),
    "in a chunk": (b"5\r\nab", "the server closed the connection"),
    "by what is no chunk": (b"?\r\n", "the answer is no HTTP"),
}


@pytest.mark.parametrize("pause", [0.0, 0.02], ids=["at once", "with a pause"])
@schemes
@pytest.mark.parametrize(("said", "why"), CUTS.values(), ids=CUTS)
async def test_what_came_before_a_cut_is_handed_over_first(scheme: str, said: bytes, why: str, pause: float) -> None:
    """Then the error: a cut is no end."""
    async with begun(HEAD + chunk(b"whole") + said, scheme=scheme, pause=pause) as (stream, _):
        pieces, error = await broken(stream)

    assert b"".join(pieces).startswith(b"whole")
    assert isinstance(error, ConnectionError)
    assert why in str(error)


@schemes
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"SSH-2.0\r\n"])
async def test_without_a_head_there_is_no_answer(scheme: str, said: bytes) -> None:
    """An error at once, and a connection that is closed."""
    with pytest.raises(ConnectionError, match=r"closed the connection|no HTTP"):
        async with begun(said, scheme=scheme):
            pass


async def test_who_is_gone_before_being_asked_is_told_of_as_that() -> None:
    """Between the handshake and the request a token may have to be fetched."""

    async def script(talk: Talk) -> None:
        """Close."""

    async with serving(script) as peer:
        with asking(peer) as connections:
            async with connections.stream(0.0) as stream:
                await until(lambda: not stream.usable)
                with pytest.raises(ConnectionResetError, match="the server closed the connection"):
                    await stream.begin(WATCH)


async def pieced(parts: list[bytes], cuts: list[int], pause: float) -> bytes:
    """What arrives of these parts, sent in pieces."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    said = HEAD + b"".join(map(chunk, parts)) + END
    with theirs:
        stream = WatchStream(ours, pause)
        beginning = asyncio.create_task(stream.begin(WATCH))
        hearing = asyncio.create_task(whole(beginning, stream))
        for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True):
            await asyncio.sleep(0)
            theirs.sendall(said[start:end])
        return await hearing


async def whole(beginning: asyncio.Task[HttpReply], stream: WatchStream) -> bytes:
    """All of a stream that ends itself, and with it its connection."""
    assert await beginning == HttpReply(200, b"", "")
    pieces = await heard(stream)
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
def test_where_a_stream_is_cut_changes_nothing(
    data: st.DataObject, parts: list[bytes], pause: float, ahead: int
) -> None:
    """Whatever the pieces are in which it arrives, with a pause or without, and however soon it is too much."""
    length = len(HEAD + b"".join(map(chunk, parts)) + END)
    cuts = sorted(data.draw(st.sets(st.integers(1, length - 1), max_size=12)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_AHEAD", ahead)
        assert asyncio.run(pieced(parts, cuts, pause)) == b"".join(parts)
