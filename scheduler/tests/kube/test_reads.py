"""Reads: packed answers, long ones, and those that are asked again."""

import gzip
import socket

import pytest
from kubernetes.aio.client.configuration import Configuration

from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient, Method, NoResponseError
from gpu_scheduler.kube.http.connection import HttpReply
from tests.kube.peers import CREATED, END, HEAD, Talk, asking, chunk, post, schemes, serving
from tests.kube.server import until

GET = b"GET /pods HTTP/1.1\r\nHost: api\r\n\r\n"
PACKED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
TEXT = b'{"items":[' + b'{"kind":"Pod"},' * 20_000 + b"]}"


def measured(head: bytes, body: bytes) -> bytes:
    """An answer that tells its length."""
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def parted(head: bytes, body: bytes, size: int) -> bytes:
    """An answer in chunks of this size."""
    parts = [chunk(body[place : place + size]) for place in range(0, len(body), size)]
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + END


ANSWERS = {
    "packed": (measured(PACKED, gzip.compress(TEXT)), TEXT),
    "packed and in chunks": (parted(PACKED, gzip.compress(TEXT), 100), TEXT),
    "packed in two": (measured(PACKED, gzip.compress(TEXT[:99]) + gzip.compress(TEXT[99:])), TEXT),
    "packed, and nothing in it": (measured(PACKED, b""), b""),
    "packed, with the header's name as anybody writes it": (
        measured(PACKED.replace(b"Content-Encoding: gzip", b"content-ENCODING: GZip"), gzip.compress(TEXT)),
        TEXT,
    ),
    "not packed": (measured(b"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\n", TEXT), TEXT),
}


@schemes
@pytest.mark.parametrize(("said", "body"), ANSWERS.values(), ids=ANSWERS)
async def test_a_packed_answer_is_unpacked(scheme: str, said: bytes, body: bytes) -> None:
    """However it comes; the next one that is not packed is taken as it is."""

    async def script(talk: Talk) -> None:
        for answer in (said, CREATED, said):
            await talk.head()
            await talk.say(answer)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            replies = [await connections.ask(GET, None, harmless=True) for _ in range(3)]

    assert replies == [HttpReply(200, body, ""), HttpReply(201, b"{}", ""), HttpReply(200, body, "")]
    assert len(peer.talks) == 1


SPOILT = {
    "no gzip": b"{}",
    "cut": gzip.compress(TEXT)[:-9],
    "another's sum": gzip.compress(TEXT)[:-8] + bytes(8),
    "changed": gzip.compress(TEXT)[:20] + bytes(20) + gzip.compress(TEXT)[40:],
    "with something behind it": gzip.compress(TEXT) + b"{}",
}


@pytest.mark.parametrize("body", SPOILT.values(), ids=SPOILT)
async def test_what_cannot_be_unpacked_is_no_answer(body: bytes) -> None:
    """Half a list would delete what the other half has. The connection is not used again."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(measured(PACKED, body))
        await talk.rest()

    async with serving(script) as peer:
        with asking(peer) as connections:
            with pytest.raises(ConnectionError, match="the answer cannot be unpacked: "):
                await connections.ask(GET, None, harmless=True)
            await until(lambda: len(peer.talks) == len(peer.ended) == 1)


async def test_calls_may_be_answered_packed_and_watches_not() -> None:
    """Of a watch nothing may wait for more that it could be packed with."""
    asked = []

    async def script(talk: Talk) -> None:
        asked.append((await talk.head()).decode().lower())
        await talk.say(HEAD + END if "watch" in asked[-1] else parted(PACKED, gzip.compress(TEXT), 2**12))

    async with serving(script) as peer:
        api = ApiClient(Configuration(host=peer.url), reload=ConfigLoader("nowhere"))
        answer = await api.call("GET", "/pods")
        async with api.stream("/pods", query={"watch": "true"}, limit=3, idle_limit=3) as (_, chunks):
            assert [piece async for piece in chunks] == []
        await api.close()

    assert answer.body == TEXT
    assert ["accept-encoding: gzip\r\n" in head for head in asked] == [True, False]


@schemes
async def test_a_list_of_many_megabytes_is_read_whole(scheme: str) -> None:
    """In as many pieces as it takes."""
    body = bytes(range(251)) * 40_000

    async def script(talk: Talk) -> None:
        for answer in (measured(b"HTTP/1.1 200 OK\r\n", body), parted(b"HTTP/1.1 200 OK\r\n", body, 2**15)):
            await talk.head()
            await talk.say(answer)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            for _ in range(2):
                assert await connections.ask(GET, None, harmless=True) == HttpReply(200, body, "")

    assert len(peer.talks) == 1


@schemes
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_without_a_length_an_answer_ends_with_its_connection(scheme: str, version: bytes) -> None:
    """As old proxies answer. Where it has a length, an early end is none."""
    said = iter((b"\r\n" + TEXT, b"Content-Length: 9\r\n\r\n{}", b"", b"\r\n"))

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(b"HTTP/%s 200 OK\r\n" % version, next(said))

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            assert await connections.ask(GET, None, harmless=True) == HttpReply(200, TEXT, "")
            for _ in range(2):
                with pytest.raises(ConnectionResetError, match="the server closed the connection"):
                    await connections.ask(GET, None, harmless=True)
            assert await connections.ask(GET, None, harmless=True) == HttpReply(200, b"", "")

    assert len(peer.talks) == 4


@schemes
@pytest.mark.parametrize("cut", [b"", CREATED[:-1]], ids=["before its answer", "within it"])
async def test_a_read_over_a_kept_connection_that_ends_is_asked_again(scheme: str, cut: bytes) -> None:
    """A server may close just as it is asked. A write is not sent twice: nobody knows what became of it."""

    async def script(talk: Talk) -> None:
        await talk.reader.readuntil(b"api\r\n")
        await talk.say(CREATED)
        await talk.reader.readuntil(b"api\r\n")
        await talk.say(cut)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            assert (await connections.ask(GET, None)).status == 201
            assert (await connections.ask(GET, None, harmless=True)).status == 201
            assert len(peer.talks) == 2
            with pytest.raises(ConnectionResetError):
                await connections.ask(post(), None)

    assert len(peer.talks) == 2


async def test_a_read_is_asked_again_once() -> None:
    """Who is cut off on a new connection, too, gets no answer."""

    async def script(talk: Talk) -> None:
        await talk.head()
        if len(peer.talks) == 1:
            await talk.say(CREATED)
            await talk.head()

    async with serving(script) as peer:
        with asking(peer) as connections:
            await connections.ask(GET, None, harmless=True)
            with pytest.raises(ConnectionResetError):
                await connections.ask(GET, None, harmless=True)
            with pytest.raises(ConnectionResetError):
                await connections.ask(GET, None, harmless=True)

    assert len(peer.talks) == 3


@schemes
async def test_a_read_that_was_sent_to_nobody_is_asked_again(scheme: str) -> None:
    """The server has closed, and its good-bye lies here unread."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(CREATED)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            await connections.ask(GET, None, harmless=True)
            peer.talks[0].writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
            assert (await connections.ask(GET, None, harmless=True)).status == 201

    assert len(peer.talks) == 2


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_only_what_changes_nothing_is_asked_again(method: Method) -> None:
    """The method says so."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(CREATED)
        await talk.head()

    async with serving(script) as peer:
        api = ApiClient(Configuration(host=peer.url), reload=ConfigLoader("nowhere"))
        assert (await api.call(method, "/pods")).status == 201
        if method == "GET":
            assert (await api.call(method, "/pods")).status == 201
        else:
            with pytest.raises(NoResponseError, match="the server closed the connection"):
                await api.call(method, "/pods")
        await api.close()
