"""How a request is sent: however slowly the server reads it, and only as far as its guard allows."""

import asyncio
import socket
from dataclasses import dataclass

import pytest

from gpu_scheduler.kube.http.connection import GuardRefusedError
from unit_tests.kube.peers import CREATED, LARGE, ServerConnection, answer_all, pooled, post, schemes
from unit_tests.kube.server import until
from unit_tests.virtual import settle


@schemes
async def test_a_long_request_is_sent_as_the_server_reads_it(scheme: str) -> None:
    """Every byte once and in order. The guard is called before each record, and not for the next request."""
    body = bytes(range(251)) * (LARGE // 251)
    arrived = []
    calls = 0

    async def script(connection: ServerConnection) -> None:
        # Until the kernel's buffers are full.
        await settle()
        arrived.append(await connection.request())
        await connection.send(CREATED)
        await answer_all(connection)

    def guard() -> bool:
        nonlocal calls
        calls += 1
        return True

    async with pooled(script, scheme) as (_, connections):
        assert (await connections.ask(post(body), guard)).status == 201
        before = calls
        assert (await connections.ask(post(), None)).status == 201

    assert arrived == [post(body)]
    assert LARGE // 2**14 <= before == calls


@schemes
async def test_a_refusing_guard_sends_nothing(scheme: str) -> None:
    """Not one byte is sent, and the connection is not used again."""
    received = []

    async def script(connection: ServerConnection) -> None:
        received.append(await connection.read_rest())

    async with pooled(script, scheme) as (_, connections):
        with pytest.raises(GuardRefusedError):
            await connections.ask(post(), lambda: False)
        await until(lambda: received)

    assert received == [b""]


@dataclass
class Gate:
    open: bool = True


@pytest.mark.promise("lead-2")
@schemes
async def test_a_guard_that_refuses_midway_leaves_a_partial_request(scheme: str) -> None:
    """The rest is not sent, and the error never means that nothing was sent."""
    gate, whole = Gate(), post(bytes(LARGE))
    received = []

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        # Until the kernel's buffers are full.
        await settle()
        gate.open = False
        received.append(await connection.read_rest())

    async with pooled(script, scheme) as (_, connections):
        with pytest.raises(ConnectionError, match="guard no longer allows") as raised:
            await connections.ask(whole, lambda: gate.open)
        await until(lambda: received)

    assert not isinstance(raised.value, GuardRefusedError)
    assert 0 < len(received[0]) < LARGE


@pytest.mark.promise("hold-1")
async def test_a_partly_sent_request_does_not_count_as_unsent() -> None:
    """Also if the kernel takes only a part of the first record: TLS then reports that nothing was sent."""
    allowed = iter((True,))
    received = []

    async def script(connection: ServerConnection) -> None:
        await connection.request()
        connection.pause_reading()
        await connection.send(CREATED)
        await settle()
        received.append(await connection.read_rest())

    async with pooled(script, "https", room=1) as (_, connections):
        await connections.ask(post(), None)
        connections._idle[0][1]._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        with pytest.raises(ConnectionAbortedError):
            await connections.ask(post(bytes(2**14)), lambda: next(allowed, False))
        await until(lambda: received)


@schemes
async def test_a_response_may_come_before_the_request_is_sent(scheme: str) -> None:
    """The response is returned. The rest of the request is never sent, so the connection is not used again."""
    finish = asyncio.Event()

    async def script(connection: ServerConnection) -> None:
        if b"Content-Length: 2\r\n" not in await connection.head():
            await connection.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await finish.wait()
        else:
            await connection.send(CREATED)

    async with pooled(script, scheme) as (peer, connections):
        assert (await connections.ask(post(bytes(LARGE)), None)).status == 413
        assert (await connections.ask(post(), None)).status == 201
        finish.set()

    assert len(peer.accepted) == 2
