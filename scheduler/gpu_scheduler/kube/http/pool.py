"""Opens, keeps and closes connections, also through a proxy. Their sockets drop data that stays unacknowledged."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.http.connection import Connection
from gpu_scheduler.kube.http.watch_stream import WatchStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence
    from urllib.parse import SplitResult

    from aiohappyeyeballs import AddrInfoType

    from gpu_scheduler.kube.http.connection import HttpReply

IDLE_TIMEOUT: Final = 15.0
"""Seconds after which an unused connection is closed: before a load balancer or firewall drops it without a reset."""
UNACKNOWLEDGED: Final = 4.0
"""Seconds after which the kernel drops unacknowledged data, with its connection."""
_SECOND_TRY: Final = 0.25
"""Seconds after which a host's next address is tried in parallel to the one before (RFC 8305)."""
_CLOSED: Final = "the connection is closed"
_LINE: Final = b"\r\n\r\n"
_TCP: Final = socket.SOCK_STREAM
_PORTS: Final = {"http": 80, "https": 443}


@immutable
class Route:
    """The way to an API server: its address, and a proxy if there is one."""

    host: str
    """The base address."""
    server_name: str | None = None
    """The name in the server's certificate, if it is not the host."""
    proxy: str | None = None


class ConnectionPool:
    """Connections to one address, through a proxy if one is named."""

    def __init__(self, route: Route, tls: ssl.SSLContext, limit: int, unacknowledged: float = UNACKNOWLEDGED) -> None:
        """Raise ValueError if host or proxy is not a URL with a supported scheme.

        The kernel drops data that stays unacknowledged for `unacknowledged` seconds.
        """
        self._address = _address(
            route.host, _PORTS, "an API server must speak HTTPS or HTTP (example: https://10.96.0.1:443)"
        )
        self._tls = tls if self._address.scheme == "https" else None
        self._name = route.server_name or self._address.hostname
        must = "a proxy must speak HTTP (example: http://proxy:3128)"
        self._proxy = _address(route.proxy, ("http",), must) if route.proxy else None
        self._slots = asyncio.Semaphore(limit)
        self._new_socket = partial(dropping_socket, seconds=unacknowledged)
        # A stack: the last connection returned is used first, so that surplus connections stay unused and are closed.
        self._idle: list[tuple[float, Connection]] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(
        self, request: bytes, guard: Callable[[], bool] | None, *, most: int = 0, idempotent: bool = False
    ) -> HttpReply:
        """Send one request and return its response.

        Raise OSError if there is no response, GuardRefusedError if `guard` returned False, and TooLargeError if the
        body has more than `most` bytes (0 sets no limit). An `idempotent` request is sent again if a kept connection
        turns out to be closed.
        """
        async with self._slots:
            kept = self._pop_idle()
            if kept is not None:
                try:
                    return await self._ask(kept, request, guard, most)
                except ConnectionError:
                    if not idempotent:
                        raise
            return await self._ask(Connection(await self._open()), request, guard, most)

    @asynccontextmanager
    async def stream(self, pause: float) -> AsyncIterator[WatchStream]:
        """Open a connection for a watch; close it when the block ends."""
        async with self._slots:
            if self._closed:
                raise ConnectionError(_CLOSED)
            stream = WatchStream(await self._open(), pause)
            try:
                yield stream
            finally:
                stream.close()

    def close(self) -> None:
        """Close idle connections. Requests in progress end with their own response or time-out."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _ask(
        self, connection: Connection, request: bytes, guard: Callable[[], bool] | None, most: int
    ) -> HttpReply:
        try:
            return await connection.ask(request, guard, most)
        except BaseException:
            connection.close()
            raise
        finally:
            self._keep(connection)

    def _pop_idle(self) -> Connection | None:
        if self._closed:
            raise ConnectionError(_CLOSED)
        while self._idle:
            _, connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    def _keep(self, connection: Connection) -> None:
        if self._closed or not connection.usable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), connection))
        if self._sweeping is None:
            self._sweeping = loop.call_later(IDLE_TIMEOUT, self._sweep)

    def _sweep(self) -> None:
        """Close connections that were unused for KEPT seconds. `_idle` has the oldest first."""
        loop = asyncio.get_running_loop()
        fresh = [each for each in self._idle if each[0] > loop.time() - IDLE_TIMEOUT and each[1].usable]
        for each in self._idle:
            if each not in fresh:
                each[1].close()
        self._idle = fresh
        self._sweeping = loop.call_at(fresh[0][0] + IDLE_TIMEOUT, self._sweep) if fresh else None

    async def _open(self) -> socket.socket:
        """Return a socket that is connected to the API server, with TLS if the scheme asks for it."""
        plain = await _connect(self._proxy or self._address, self._new_socket)
        try:
            if self._proxy is not None:
                await self._tunnel(plain, self._proxy)
            if self._tls is None:
                return plain
            # The TLS socket replaces the plain one, so it is the one to close if the handshake fails.
            plain = self._tls.wrap_socket(plain, server_hostname=self._name, do_handshake_on_connect=False)
            await _do_handshake(plain)
        except BaseException:
            plain.close()
            raise
        return plain

    async def _tunnel(self, plain: socket.socket, proxy: SplitResult) -> None:
        """Open a tunnel through the proxy with CONNECT."""
        loop, name, port = asyncio.get_running_loop(), f"{self._address.hostname}", _port(self._address)
        target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        headers = {"Host": target}
        if proxy.username:
            word = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {b64encode(word.encode()).decode()}"
        lines = [f"CONNECT {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        await loop.sock_sendall(plain, "\r\n".join(lines).encode() + _LINE)
        answer = b""
        # Read byte by byte: the bytes after the head belong to TLS.
        while not answer.endswith(_LINE):
            byte = await loop.sock_recv(plain, 1)
            if not byte:
                raise ConnectionResetError("the proxy closed the connection")
            answer += byte
        status_line, _, _ = answer.partition(b"\r")
        if status_line.split(b" ", 2)[1:2] != [b"200"]:
            raise ConnectionRefusedError(f"the proxy answered {status_line.decode(errors='replace')!r}")


async def _connect(address: SplitResult, new_socket: Callable[[AddrInfoType], socket.socket]) -> socket.socket:
    """Return a non-blocking socket, connected to the first of the host's addresses that answers."""
    loop = asyncio.get_running_loop()
    return await aiohappyeyeballs.start_connection(
        await _resolve(address),
        happy_eyeballs_delay=_SECOND_TRY,
        interleave=1,
        loop=loop,
        socket_factory=new_socket,
    )


async def _resolve(address: SplitResult) -> Sequence[AddrInfoType]:
    """Return the host's addresses. A numeric address, as in a pod, needs neither DNS nor a thread."""
    host, port = address.hostname, _port(address)
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=_TCP, flags=socket.AI_NUMERICHOST)
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=_TCP)


async def _do_handshake(sock: ssl.SSLSocket) -> None:
    """Complete the TLS handshake."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            await _ready(sock, loop.add_reader, loop.remove_reader)
        except ssl.SSLWantWriteError:
            await _ready(sock, loop.add_writer, loop.remove_writer)
        else:
            return


async def _ready(sock: ssl.SSLSocket, add: Callable[..., None], remove: Callable[..., bool]) -> None:
    ready = asyncio.Event()
    add(sock, ready.set)
    try:
        await ready.wait()
    finally:
        remove(sock)


def _address(text: str, schemes: Collection[str], rule: str) -> SplitResult:
    """Parse a URL; raise ValueError if it lacks a host or its scheme is not in `schemes`. The text hides a password."""
    with suppress(ValueError):
        address = urlsplit(text)
        if address.scheme in schemes and address.hostname and _port(address):
            return address
    shown = re.sub(r"^(\w+://)?.*@", r"\1", text)
    raise ValueError(f"cannot connect to {shown}: {rule}")


def _port(address: SplitResult) -> int:
    return address.port or _PORTS[address.scheme]


def dropping_socket(address: AddrInfoType, seconds: float) -> socket.socket:
    """Return a socket that drops data that stays unacknowledged for so many seconds."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # Only Linux has this option. Schedulers run on Linux; the command line runs on other systems too.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))
    return made


def proxy_of(host: str) -> str | None:
    """Return the environment's proxy for this address. Call it once: it does not change while a process runs."""
    address = urlsplit(host)
    if proxy_bypass(address.netloc):
        return None
    return getproxies().get(address.scheme)
