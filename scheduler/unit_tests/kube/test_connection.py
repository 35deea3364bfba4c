"""How a response is read, in whatever pieces it arrives, and which bytes are no response."""

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_scheduler.kube.http.connection import Connection, HttpReply
from tests.messages import text_of
from unit_tests import virtual
from unit_tests.kube.peers import CREATED, LARGE, ServerConnection, answer_all, answering, pooled, post, schemes
from unit_tests.kube.server import until

CHUNKED = (
    b"HTTP/1.1 409 Conflict\r\nX-Empty:\r\nTransfer-Encoding: chunked\r\nretry-after: 7\r\n\r\n"
    b'6;why=so\r\n{"kind\r\n9\r\n":"Status\r\n2\r\n"}\r\n0\r\n\r\n'
)
RESPONSES = {
    "with a length": (CREATED, HttpReply(201, b"{}", "")),
    "in chunks": (CHUNKED, HttpReply(409, b'{"kind":"Status"}', "7")),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", HttpReply(204, b"", "")),
    "with Retry-After": (
        b"HTTP/1.1 429 Too Many Requests\r\nRETRY-AFTER: 1\r\nContent-Length: 0\r\n\r\n",
        HttpReply(429, b"", "1"),
    ),
    "after interim responses": (
        b"HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CREATED,
        HttpReply(201, b"{}", ""),
    ),
}


@schemes
@pytest.mark.parametrize(("raw", "reply"), RESPONSES.values(), ids=RESPONSES)
async def test_a_response_is_read_whole_and_the_connection_is_reused(scheme: str, raw: bytes, reply: HttpReply) -> None:
    """In one piece or byte by byte. No byte of one response is left for the next."""

    async def script(connection: ServerConnection) -> None:
        assert await connection.request() == post(b"{}")
        await connection.send(raw)
        await connection.request()
        await connection.send(*(raw[place : place + 1] for place in range(len(raw))))
        await connection.request()
        await connection.send(CREATED)
        await connection.read_rest()

    async with pooled(script, scheme) as (peer, connections):
        replies = [await connections.ask(post(), None) for _ in range(3)]

    assert replies == [reply, reply, HttpReply(201, b"{}", "")]
    assert len(peer.accepted) == 1


@schemes
async def test_a_long_response_is_read_whole(scheme: str) -> None:
    """It is longer than one read, and fills its TLS records to the last byte."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 262101\r\n\r\n"
    body = (bytes(range(256)) * 2**10)[len(head) :]

    async def script(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(head + body)
        await answer_all(connection)

    async with pooled(script, scheme) as (peer, connections):
        assert await connections.ask(post(), None) == HttpReply(200, body, "")
        assert (await connections.ask(post(), None)).status == 201

    assert len(peer.accepted) == 1


UNFIT = {
    "closes": ((), text_of("connection: closed by the server")),
    "closes within its response": ((CREATED[:-1],), text_of("connection: closed by the server")),
    "uses another protocol": ((b"SSH-2.0-OpenSSH_9.6\r\n",), text_of("connection: no HTTP")),
    "switches protocols": (
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",),
        text_of("connection: no HTTP"),
    ),
    "gives two lengths": ((b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",), "is not HTTP"),
}


@schemes
@pytest.mark.parametrize(("raw", "why"), UNFIT.values(), ids=UNFIT)
async def test_an_invalid_response_is_an_error(scheme: str, raw: tuple[bytes, ...], why: str) -> None:
    """The error names what the server did, and the next request uses another connection."""
    replies = iter((raw,))

    async def script(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(*next(replies, (CREATED,)))

    async with pooled(script, scheme) as (peer, connections):
        with pytest.raises(ConnectionError, match=why):
            await connections.ask(post(), None)
        assert (await connections.ask(post(), None)).status == 201

    assert len(peer.accepted) == 2


UNASKED = {
    "another response with it": (CREATED + CREATED,),
    "the start of another response with it": (CREATED + CREATED[:9],),
    "no HTTP with it": (CREATED + b"?",),
    "another response later": (CREATED, CREATED),
    "the start of another response later": (CREATED, CREATED[:9]),
}


@schemes
@pytest.mark.parametrize("parts", UNASKED.values(), ids=UNASKED)
async def test_a_response_without_a_request_is_dropped(scheme: str, parts: tuple[bytes, ...]) -> None:
    """The next caller would take it for the response to its own request."""
    async with pooled(answering(*parts), scheme) as (peer, connections):
        for count in (1, 2):
            assert await connections.ask(post(), None) == HttpReply(201, b"{}", "")
            await until(lambda count=count: len(peer.ended) == count)

    assert len(peer.accepted) == 2


@schemes
async def test_a_cancelled_request_closes_its_connection(scheme: str) -> None:
    """Before and after the request was sent: a late response must not reach the next caller."""
    received: list[bytes] = []

    async def script(connection: ServerConnection) -> None:
        received.append(await connection.head())
        await connection.read_rest()

    async with pooled(script, scheme, limit=1) as (peer, connections):
        for request in (post(), post(bytes(LARGE))):
            task = asyncio.create_task(connections.ask(request, None))
            await until(lambda: received)
            received.clear()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: peer.open == 0)

    assert len(peer.accepted) == 2


BODIES = st.binary(max_size=40)


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, HttpReply]:
    """Draw a response as a server may send it, and its parsed form."""
    status = draw(st.sampled_from([200, 201, 401, 404, 409, 429, 500, 503]))
    retry_after = draw(st.sampled_from(["", "1", "30"]))
    lines = [f"HTTP/1.1 {status} Whatever", "Content-Type: application/json"]
    lines += [f"Retry-After: {retry_after}"] * bool(retry_after)
    parts = draw(st.lists(BODIES.filter(len), max_size=4))
    if draw(st.booleans()):
        lines.append("Transfer-Encoding: chunked")
        raw = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))
    else:
        lines.append(f"Content-Length: {sum(map(len, parts))}")
        raw = b"".join(parts)
    early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    return early + "\r\n".join([*lines, "", ""]).encode() + raw, HttpReply(status, b"".join(parts), retry_after)


async def reply_in_pieces(raw: bytes, cuts: list[int]) -> HttpReply:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        connection = Connection(ours)
        task = asyncio.create_task(connection.ask(post(), None))
        for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
            await asyncio.sleep(0)
            theirs.sendall(raw[start:end])
        reply = await task
        assert connection.usable
        connection.close()
        return reply


@given(data=st.data(), response=responses())
@settings(max_examples=60, deadline=None)
def test_the_cuts_of_a_response_change_nothing(data: st.DataObject, response: tuple[bytes, HttpReply]) -> None:
    """The reply is the same, whatever the pieces in which the response arrives."""
    raw, reply = response
    cuts = sorted(data.draw(st.sets(st.integers(1, len(raw) - 1), max_size=12)))

    assert virtual.run(reply_in_pieces(raw, cuts)) == reply
