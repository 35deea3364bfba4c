"""How a request leaves: however slowly the server takes it, and no further than its guard allows."""

import asyncio
import socket
from dataclasses import dataclass

import pytest

from gpu_scheduler.kube.http.connection import GuardRefusedError
from tests.kube.peers import CREATED, LARGE, Talk, asking, obliging, post, schemes, serving
from tests.kube.server import until
from tests.waiting import limit


@schemes
async def test_a_long_request_leaves_as_the_server_takes_it(scheme: str) -> None:
    """Every byte once and in its order; its guard is asked before each record, and not for the next one who asks."""
    body = bytes(range(251)) * (LARGE // 251)
    arrived = []
    asked = 0

    async def script(talk: Talk) -> None:
        await asyncio.sleep(0.02)
        arrived.append(await talk.request())
        await talk.say(CREATED)
        await obliging(talk)

    def guard() -> bool:
        nonlocal asked
        asked += 1
        return True

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            assert (await connections.ask(post(body), guard)).status == 201
            before = asked
            assert (await connections.ask(post(), None)).status == 201

    assert arrived == [post(body)]
    assert LARGE // 2**14 <= before == asked


@schemes
async def test_who_may_not_send_sends_nothing(scheme: str) -> None:
    """Not a byte, and the connection is not used again."""
    heard = []

    async def script(talk: Talk) -> None:
        heard.append(await talk.rest())

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            with pytest.raises(GuardRefusedError):
                await connections.ask(post(), lambda: False)
            await until(lambda: heard)

    assert heard == [b""]


@dataclass
class Gate:
    open: bool = True


@schemes
async def test_who_may_no_longer_send_has_sent_something(scheme: str) -> None:
    """The rest stays here, and it is never said that nothing left."""
    gate, whole = Gate(), post(bytes(LARGE))
    heard = []

    async def script(talk: Talk) -> None:
        await talk.head()
        # By now the kernel holds all that it can.
        await asyncio.sleep(0.01)
        gate.open = False
        heard.append(await talk.rest())

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            with pytest.raises(ConnectionError, match="may not send that any more") as raised:
                await asyncio.wait_for(connections.ask(whole, lambda: gate.open), limit(3))
            await until(lambda: heard)

    assert not isinstance(raised.value, GuardRefusedError)
    assert 0 < len(heard[0]) < LARGE


async def test_what_has_begun_to_leave_was_not_held_back() -> None:
    """Also where the kernel takes a part of the very first record, of which TLS says that nothing left."""
    looks = iter((True,))
    heard = []

    async def script(talk: Talk) -> None:
        await talk.request()
        talk.deaf()
        await talk.say(CREATED)
        await asyncio.sleep(0.02)
        heard.append(await talk.rest())

    async with serving(script, "https", room=1) as peer:
        with asking(peer) as connections:
            await connections.ask(post(), None)
            connections._idle[0][1]._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            with pytest.raises(ConnectionAbortedError):
                await connections.ask(post(bytes(2**14)), lambda: next(looks, False))
            await until(lambda: heard)


@schemes
async def test_an_answer_may_come_before_the_request_has_left(scheme: str) -> None:
    """It is the answer; what has not left never does, so the connection is of no use any more."""
    finish = asyncio.Event()

    async def script(talk: Talk) -> None:
        if b"Content-Length: 2\r\n" not in await talk.head():
            await talk.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await finish.wait()
        else:
            await talk.say(CREATED)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            assert (await connections.ask(post(bytes(LARGE)), None)).status == 413
            assert (await connections.ask(post(), None)).status == 201
            finish.set()

    assert len(peer.talks) == 2
