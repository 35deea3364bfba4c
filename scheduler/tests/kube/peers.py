"""Servers that do byte by byte what a test has them do, over TCP or TLS, and connections to them."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme

from gpu_scheduler.kube.http.pool import ConnectionPool, Route
from tests.kube.server import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from gpu_scheduler.kube.http.watch_stream import WatchStream

    Script = Callable[["Talk"], Awaitable[None]]

CREATED: Final = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
WATCH: Final = b"GET /watch HTTP/1.1\r\nHost: api\r\n\r\n"
HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
schemes = pytest.mark.parametrize("scheme", ["http", "https"])
LARGE: Final = 2**23
"""More bytes than the kernel holds for a connection whose other end does not read."""


def post(body: bytes = b"{}") -> bytes:
    """A request."""
    return b"POST /bind HTTP/1.1\r\nHost: api\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def chunk(data: bytes) -> bytes:
    """One part of an answer that goes on."""
    return b"%x\r\n%s\r\n" % (len(data), data)


END: Final = chunk(b"")


async def broken(stream: WatchStream, idle_limit: float = 3.0) -> tuple[list[bytearray], OSError]:
    """What comes before the error, and the error."""
    pieces = []
    try:
        async for piece in stream.chunks(idle_limit):
            pieces.append(piece)  # noqa: PERF401 - what came before the error counts
    except OSError as error:
        return pieces, error
    pytest.fail("the stream ended without an error")


@dataclass(eq=False)
class Talk:
    """One connection, as the server has it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def _transport(self) -> asyncio.Transport:
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        return transport

    async def head(self) -> bytes:
        """Read the next request's head."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> bytes:
        """Read one whole request."""
        head = await self.head()
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        return head + await self.reader.readexactly(int(length[1]))

    async def say(self, *pieces: bytes) -> None:
        """Send each of them as a packet of its own."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def deaf(self) -> None:
        """Leave what comes where the kernel has it, until the rest is read."""
        self._transport.pause_reading()

    async def rest(self) -> bytes:
        """Read what comes until the other end closes."""
        self._transport.resume_reading()
        return await self.reader.read()


async def obliging(talk: Talk) -> None:
    """Answer whatever is asked."""
    while True:
        await talk.request()
        await talk.say(CREATED)


@dataclass
class Peer:
    """One server: where it is, and the connections to it."""

    url: str = ""
    talks: list[Talk] = field(default_factory=list)
    ended: list[Talk] = field(default_factory=list)
    """Those that are over, whoever ended them."""

    @property
    def open(self) -> int:
        """How many connections live."""
        return len(self.talks) - len(self.ended)


@asynccontextmanager
async def serving(
    script: Script, scheme: str = "http", *, tls: ssl.SSLContext | None = None, room: int = 2**16
) -> AsyncIterator[Peer]:
    """Play the script on each connection, and then close it; the kernel keeps `room` for what was not read yet."""
    peer, tasks, others = Peer(), set[asyncio.Task[Any] | None](), watched()

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        talk = Talk(reader, writer)
        peer.talks.append(talk)
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            await script(talk)
        peer.ended.append(talk)
        writer.close()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    peer.url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    context = (tls or presenting()) if scheme == "https" else None
    server = await asyncio.start_server(play, sock=listener, ssl=context)
    try:
        yield peer
    finally:
        server.close()
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        await until(lambda: watched() <= others)


def watched() -> int:
    """How many sockets the event loop listens to, its own apart."""
    loop: Any = asyncio.get_running_loop()
    return len(loop._selector.get_map()) - 1


@contextmanager
def asking(peer: Peer, limit: int = 4, **way: Any) -> Iterator[ConnectionPool]:
    """Connections to it."""
    made = ConnectionPool(Route(peer.url, **way), trusting(), limit)
    try:
        yield made
    finally:
        made.close()


@cache
def authority() -> trustme.CA:
    """Who signs."""
    return trustme.CA()


@cache
def presenting(*names: str) -> ssl.SSLContext:
    """A server's context with a certificate for these names."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert(*names or ("127.0.0.1",)).configure_cert(context)
    return context


@cache
def trusting() -> ssl.SSLContext:
    """A client's context."""
    return ssl.create_default_context(cadata=authority().cert_pem.bytes().decode())
