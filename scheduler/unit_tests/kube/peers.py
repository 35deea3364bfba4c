"""HTTP servers that follow a test's script byte by byte, over TCP or TLS, and connections to them."""

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

from gpu_scheduler.kube.config.client_config import ClientConfig
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient
from gpu_scheduler.kube.http.pool import ConnectionPool, Route
from unit_tests.kube.server import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from gpu_scheduler.kube.http.watch_stream import WatchStream

    Script = Callable[["ServerConnection"], Awaitable[None]]

CREATED: Final = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
WATCH: Final = b"GET /watch HTTP/1.1\r\nHost: api\r\n\r\n"
HEAD: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
schemes = pytest.mark.parametrize("scheme", ["http", "https"])
LARGE: Final = 2**23
"""More bytes than the kernel buffers for a connection whose other end does not read."""


def post(body: bytes = b"{}") -> bytes:
    return b"POST /bind HTTP/1.1\r\nHost: api\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


END: Final = chunk(b"")


async def read_until_error(stream: WatchStream, idle_limit: float = 3.0) -> tuple[list[bytearray], OSError]:
    """Read the stream until it raises OSError; return the pieces before the error, and the error."""
    pieces = []
    try:
        async for piece in stream.chunks(idle_limit):
            pieces.append(piece)  # noqa: PERF401 - the pieces before the error count
    except OSError as error:
        return pieces, error
    pytest.fail("the stream ended without an error")


@dataclass(eq=False)
class ServerConnection:
    """One connection, as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def _transport(self) -> asyncio.Transport:
        transport = self.writer.transport
        assert isinstance(transport, asyncio.Transport)
        return transport

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> bytes:
        head = await self.head()
        length = re.search(rb"Content-Length: (\d+)", head)
        assert length is not None
        return head + await self.reader.readexactly(int(length[1]))

    async def send(self, *pieces: bytes) -> None:
        """Send each piece as its own packet."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    def pause_reading(self) -> None:
        """Stop reading: received bytes stay in the kernel until `read_rest`."""
        self._transport.pause_reading()

    async def read_rest(self) -> bytes:
        """Read until the other end closes."""
        self._transport.resume_reading()
        return await self.reader.read()


async def answer_all(connection: ServerConnection) -> None:
    while True:
        await connection.request()
        await connection.send(CREATED)


@dataclass
class Peer:
    """One server: its URL, and the connections to it."""

    url: str = ""
    accepted: list[ServerConnection] = field(default_factory=list)
    ended: list[ServerConnection] = field(default_factory=list)
    """Connections that have ended, whichever side closed them."""

    @property
    def open(self) -> int:
        return len(self.accepted) - len(self.ended)


@asynccontextmanager
async def serving(
    script: Script, scheme: str = "http", *, tls: ssl.SSLContext | None = None, room: int = 2**16
) -> AsyncIterator[Peer]:
    """Run the script on each connection, then close it. The kernel buffers at most `room` unread bytes."""
    peer, tasks, before = Peer(), set[asyncio.Task[Any] | None](), watched_sockets()

    async def serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        connection = ServerConnection(reader, writer)
        peer.accepted.append(connection)
        with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            await script(connection)
        peer.ended.append(connection)
        writer.close()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    # Otherwise the kernel keeps a small packet back until the last one is acknowledged.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    context = (tls or server_context()) if scheme == "https" else None
    server = await asyncio.start_server(serve_connection, sock=listener, ssl=context)
    try:
        yield peer
    finally:
        server.close()
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        await until(lambda: watched_sockets() <= before)


def watched_sockets() -> int:
    """Return the number of sockets that the event loop watches, without the loop's own."""
    loop: Any = asyncio.get_running_loop()
    return len(loop._selector.get_map()) - 1


@contextmanager
def connection_pool(peer: Peer, limit: int = 4, **route: Any) -> Iterator[ConnectionPool]:
    """Yield a pool of connections to the server, and close it at the end."""
    pool = ConnectionPool(Route(peer.url, **route), client_context(), limit)
    try:
        yield pool
    finally:
        pool.close()


@asynccontextmanager
async def pooled(
    script: Script, scheme: str = "http", *, limit: int = 4, **served: Any
) -> AsyncIterator[tuple[Peer, ConnectionPool]]:
    """Run the script on each connection; yield the server and a pool of connections to it."""
    async with serving(script, scheme, **served) as peer:
        with connection_pool(peer, limit) as connections:
            yield peer, connections


@asynccontextmanager
async def serving_client(script: Script) -> AsyncIterator[tuple[Peer, ApiClient]]:
    """Run the script on each connection; yield the server and an ApiClient that is connected to it."""
    async with serving(script) as peer:
        api = ApiClient(ClientConfig(peer.url), reload=ConfigLoader("nowhere"))
        try:
            yield peer, api
        finally:
            await api.close()


def answering(*pieces: bytes) -> Script:
    """Return a script that answers one request with these packets, and then reads until the other end closes."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(*pieces)
        await connection.read_rest()

    return script


@cache
def authority() -> trustme.CA:
    """Return the CA that signs the servers' certificates."""
    return trustme.CA()


@cache
def server_context(*names: str) -> ssl.SSLContext:
    """Return a server's TLS context with a certificate for these names."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert(*names or ("127.0.0.1",)).configure_cert(context)
    return context


@cache
def client_context() -> ssl.SSLContext:
    """Return a client's TLS context that trusts the CA."""
    return ssl.create_default_context(cadata=authority().cert_pem.bytes().decode())
