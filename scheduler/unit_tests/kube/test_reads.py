"""Reads: compressed responses, long ones, and requests that are repeated."""

import gzip
import socket

import pytest

from gpu_scheduler.kube.http.client import Method, NoResponseError
from gpu_scheduler.kube.http.connection import HttpReply
from tests.messages import text_of
from unit_tests.kube.peers import (
    CREATED,
    END,
    HEAD,
    ServerConnection,
    answering,
    chunk,
    pooled,
    post,
    schemes,
    serving_client,
)
from unit_tests.kube.server import until

GET = b"GET /pods HTTP/1.1\r\nHost: api\r\n\r\n"
GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
TEXT = b'{"items":[' + b'{"kind":"Pod"},' * 20_000 + b"]}"


def with_length(head: bytes, body: bytes) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def in_chunks(head: bytes, body: bytes, size: int) -> bytes:
    parts = [chunk(body[place : place + size]) for place in range(0, len(body), size)]
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + END


RESPONSES = {
    "compressed": (with_length(GZIP, gzip.compress(TEXT)), TEXT),
    "compressed and in chunks": (in_chunks(GZIP, gzip.compress(TEXT), 100), TEXT),
    "compressed in two parts": (with_length(GZIP, gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:])), TEXT),
    "compressed and empty": (with_length(GZIP, b""), b""),
    "compressed, with the header in another case": (
        with_length(GZIP.replace(b"Content-Encoding: gzip", b"content-ENCODING: GZip"), gzip.compress(TEXT)),
        TEXT,
    ),
    "not compressed": (with_length(b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n", TEXT), TEXT),
}


@schemes
@pytest.mark.parametrize(("raw", "body"), RESPONSES.values(), ids=RESPONSES)
async def test_a_compressed_response_is_unpacked(scheme: str, raw: bytes, body: bytes) -> None:
    """However it is sent. The next response, which is not compressed, is returned unchanged."""

    async def script(connection: ServerConnection) -> None:
        for reply in (raw, CREATED, raw):
            await connection.head()
            await connection.send(reply)
        await connection.read_rest()

    async with pooled(script, scheme) as (peer, connections):
        replies = [await connections.ask(GET, None, idempotent=True) for _ in range(3)]

    assert replies == [HttpReply(200, body, ""), HttpReply(201, b"{}", ""), HttpReply(200, body, "")]
    assert len(peer.accepted) == 1


DAMAGED = {
    "no gzip": b"{}",
    "cut": gzip.compress(TEXT)[:-9],
    "with a wrong checksum": gzip.compress(TEXT)[:-8] + bytes(8),
    "changed": gzip.compress(TEXT)[:20] + bytes(20) + gzip.compress(TEXT)[40:],
    "with bytes after it": gzip.compress(TEXT) + b"{}",
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED)
async def test_a_damaged_response_is_an_error(body: bytes) -> None:
    """Half a list would delete the objects of its other half. The connection is not used again."""
    async with pooled(answering(with_length(GZIP, body))) as (peer, connections):
        with pytest.raises(ConnectionError, match="the answer cannot be unpacked: "):
            await connections.ask(GET, None, idempotent=True)
        await until(lambda: len(peer.accepted) == len(peer.ended) == 1)


async def test_calls_accept_compression_and_watches_do_not() -> None:
    """A watch event must not wait for later events with which it could be compressed."""
    heads = []

    async def script(connection: ServerConnection) -> None:
        heads.append((await connection.head()).decode().lower())
        await connection.send(HEAD + END if "watch" in heads[-1] else in_chunks(GZIP, gzip.compress(TEXT), 2**12))

    async with serving_client(script) as (_, api):
        response = await api.call("GET", "/pods")
        async with api.stream("/pods", query={"watch": "true"}, limit=3, idle_limit=3) as (_, chunks):
            assert [piece async for piece in chunks] == []

    assert response.body == TEXT
    assert ["accept-encoding: gzip\r\n" in head for head in heads] == [True, False]


@schemes
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_response_without_a_length_ends_with_its_connection(scheme: str, version: bytes) -> None:
    """Old proxies send such responses. With a length, an early end is an error."""
    replies = iter((b"\r\n" + TEXT, b"Content-Length: 9\r\n\r\n{}", b"", b"\r\n"))

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(b"HTTP/%s 200 OK\r\n" % version, next(replies))

    async with pooled(script, scheme) as (peer, connections):
        assert await connections.ask(GET, None, idempotent=True) == HttpReply(200, TEXT, "")
        for _ in range(2):
            with pytest.raises(ConnectionResetError, match=text_of("connection: closed by the server")):
                await connections.ask(GET, None, idempotent=True)
        assert await connections.ask(GET, None, idempotent=True) == HttpReply(200, b"", "")

    assert len(peer.accepted) == 4


@schemes
@pytest.mark.parametrize("cut", [b"", CREATED[:-1]], ids=["before the response", "within the response"])
async def test_a_read_is_repeated_if_its_kept_connection_ends(scheme: str, cut: bytes) -> None:
    """A server may close just as a request arrives. A write is not repeated: its result is unknown."""

    async def script(connection: ServerConnection) -> None:
        await connection.reader.readuntil(b"api\r\n")
        await connection.send(CREATED)
        await connection.reader.readuntil(b"api\r\n")
        await connection.send(cut)

    async with pooled(script, scheme) as (peer, connections):
        assert (await connections.ask(GET, None)).status == 201
        assert (await connections.ask(GET, None, idempotent=True)).status == 201
        assert len(peer.accepted) == 2
        with pytest.raises(ConnectionResetError):
            await connections.ask(post(), None)

    assert len(peer.accepted) == 2


async def test_a_read_is_repeated_once() -> None:
    """If the new connection ends, too, the error is raised."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        if len(peer.accepted) == 1:
            await connection.send(CREATED)
            await connection.head()

    async with pooled(script) as (peer, connections):
        await connections.ask(GET, None, idempotent=True)
        with pytest.raises(ConnectionResetError):
            await connections.ask(GET, None, idempotent=True)
        with pytest.raises(ConnectionResetError):
            await connections.ask(GET, None, idempotent=True)

    assert len(peer.accepted) == 3


@schemes
async def test_a_read_over_a_closed_connection_is_repeated(scheme: str) -> None:
    """The server has closed the connection, and the client has not read that yet."""
    async with pooled(answering(CREATED), scheme) as (peer, connections):
        await connections.ask(GET, None, idempotent=True)
        peer.accepted[0].writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        assert (await connections.ask(GET, None, idempotent=True)).status == 201

    assert len(peer.accepted) == 2


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_only_reads_are_repeated(method: Method) -> None:
    """The method decides."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(CREATED)
        await connection.head()

    async with serving_client(script) as (_, api):
        assert (await api.call(method, "/pods")).status == 201
        if method == "GET":
            assert (await api.call(method, "/pods")).status == 201
        else:
            with pytest.raises(NoResponseError, match=text_of("connection: closed by the server")):
                await api.call(method, "/pods")
