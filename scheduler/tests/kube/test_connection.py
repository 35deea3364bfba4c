"""How an answer is read, however it comes, and what is none."""

import asyncio
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_scheduler.kube.http.connection import Connection, HttpReply
from tests.kube.peers import CREATED, LARGE, Talk, asking, obliging, post, schemes, serving
from tests.kube.server import until

CHUNKED = (
    b"HTTP/1.1 409 Conflict\r\nX-Empty:\r\nTransfer-Encoding: chunked\r\nretry-after: 7\r\n\r\n"
    b'6;why=so\r\n{"kind\r\n9\r\n":"Status\r\n2\r\n"}\r\n0\r\n\r\n'
)
ANSWERS = {
    "with a length": (CREATED, HttpReply(201, b"{}", "")),
    "in chunks": (CHUNKED, HttpReply(409, b'{"kind":"Status"}', "7")),
    "without a body": (b"HTTP/1.1 204 No Content\r\n\r\n", HttpReply(204, b"", "")),
    "asking for patience": (
        b"HTTP/1.1 429 Too Many Requests\r\nRETRY-AFTER: 1\r\nContent-Length: 0\r\n\r\n",
        HttpReply(429, b"", "1"),
    ),
    "after a word on the way": (
        b"HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CREATED,
        HttpReply(201, b"{}", ""),
    ),
}


@schemes
@pytest.mark.parametrize(("said", "reply"), ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_read_whole_and_the_connection_used_again(
    scheme: str, said: bytes, reply: HttpReply
) -> None:
    """In one piece or each byte by itself; nothing of one answer is left for the next."""

    async def script(talk: Talk) -> None:
        assert await talk.request() == post(b"{}")
        await talk.say(said)
        await talk.request()
        await talk.say(*(said[place : place + 1] for place in range(len(said))))
        await talk.request()
        await talk.say(CREATED)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            replies = [await connections.ask(post(), None) for _ in range(3)]

    assert replies == [reply, reply, HttpReply(201, b"{}", "")]
    assert len(peer.talks) == 1


@schemes
async def test_a_long_answer_is_read_whole(scheme: str) -> None:
    """Longer than what is read at once, and of full records of TLS up to its last byte."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 262101\r\n\r\n"
    body = (bytes(range(256)) * 2**10)[len(head) :]

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(head + body)
        await obliging(talk)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            assert await connections.ask(post(), None) == HttpReply(200, body, "")
            assert (await connections.ask(post(), None)).status == 201

    assert len(peer.talks) == 1


UNFIT = {
    "closes": ((), "the server closed the connection"),
    "closes in the middle of its answer": ((CREATED[:-1],), "the server closed the connection"),
    "speaks another language": ((b"SSH-2.0-OpenSSH_9.6\r\n",), "the answer is no HTTP"),
    "changes to another language": (
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",),
        "the answer is no HTTP",
    ),
    "gives two lengths": ((b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",), "is no HTTP"),
}


@schemes
@pytest.mark.parametrize(("said", "why"), UNFIT.values(), ids=UNFIT)
async def test_what_is_no_answer_is_an_error(scheme: str, said: tuple[bytes, ...], why: str) -> None:
    """It says what the server did, and the next one who asks has another connection."""
    talks = iter((said,))

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(*next(talks, (CREATED,)))

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            with pytest.raises(ConnectionError, match=why):
                await connections.ask(post(), None)
            assert (await connections.ask(post(), None)).status == 201

    assert len(peer.talks) == 2


UNASKED = {
    "another answer with it": (CREATED + CREATED,),
    "another's beginning with it": (CREATED + CREATED[:9],),
    "no HTTP with it": (CREATED + b"?",),
    "another answer later": (CREATED, CREATED),
    "another's beginning later": (CREATED, CREATED[:9]),
}


@schemes
@pytest.mark.parametrize("parts", UNASKED.values(), ids=UNASKED)
async def test_nobody_gets_an_answer_that_nobody_asked_for(scheme: str, parts: tuple[bytes, ...]) -> None:
    """It would be the next one's, who would take another's success for their own."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(*parts)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            for count in (1, 2):
                assert await connections.ask(post(), None) == HttpReply(201, b"{}", "")
                await until(lambda count=count: len(peer.ended) == count)

    assert len(peer.talks) == 2


@schemes
async def test_who_stops_waiting_leaves_no_answer_behind(scheme: str) -> None:
    """The connection is closed, before and after the request has left."""
    heard: list[bytes] = []

    async def script(talk: Talk) -> None:
        heard.append(await talk.head())
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer, 1) as connections:
            for request in (post(), post(bytes(LARGE))):
                task = asyncio.create_task(connections.ask(request, None))
                await until(lambda: heard)
                heard.clear()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await until(lambda: peer.open == 0)

    assert len(peer.talks) == 2


BODIES = st.binary(max_size=40)


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, HttpReply]:
    """One as a server may send it, and what it says."""
    status = draw(st.sampled_from([200, 201, 401, 404, 409, 429, 500, 503]))
    patience = draw(st.sampled_from(["", "1", "30"]))
    lines = [f"HTTP/1.1 {status} Whatever", "Content-Type: application/json"]
    lines += [f"Retry-After: {patience}"] * bool(patience)
    parts = draw(st.lists(BODIES.filter(len), max_size=4))
    if draw(st.booleans()):
        lines.append("Transfer-Encoding: chunked")
        said = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))
    else:
        lines.append(f"Content-Length: {sum(map(len, parts))}")
        said = b"".join(parts)
    early = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    return early + "\r\n".join([*lines, "", ""]).encode() + said, HttpReply(status, b"".join(parts), patience)


async def asked_in_pieces(said: bytes, cuts: list[int]) -> HttpReply:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        connection = Connection(ours)
        task = asyncio.create_task(connection.ask(post(), None))
        for start, end in zip([0, *cuts], [*cuts, len(said)], strict=True):
            await asyncio.sleep(0)
            theirs.sendall(said[start:end])
        reply = await task
        assert connection.usable
        connection.close()
        return reply


@given(data=st.data(), answer=answers())
@settings(max_examples=60, deadline=None)
def test_where_an_answer_is_cut_changes_nothing(data: st.DataObject, answer: tuple[bytes, HttpReply]) -> None:
    """Whatever the pieces are in which it arrives."""
    said, reply = answer
    cuts = sorted(data.draw(st.sets(st.integers(1, len(said) - 1), max_size=12)))

    assert asyncio.run(asked_in_pieces(said, cuts)) == reply
