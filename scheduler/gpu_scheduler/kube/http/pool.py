"""Opens, keeps and closes connections, through a proxy too, on sockets that drop what was not sent."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohappyeyeballs

from gpu_scheduler.kube.http.connection import Connection
from gpu_scheduler.kube.http.watch_stream import WatchStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
    from urllib.parse import SplitResult

    from aiohappyeyeballs import AddrInfoType

    from gpu_scheduler.kube.http.connection import HttpReply

KEPT: Final = 15.0
"""Seconds after which a connection that nobody used is closed: before those in between forget it without a word."""
_SECOND_TRY: Final = 0.25
"""Seconds after which a host's next address is tried beside the one before (RFC 8305)."""
_CLOSED: Final = "the connection is closed"
_LINE: Final = b"\r\n\r\n"
_TCP: Final = socket.SOCK_STREAM
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Route:
    """Which way they go."""

    host: str
    """The base address."""
    server_name: str | None = None
    """Whose certificate is shown there, where it is not the host's."""
    proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None


class ConnectionPool:
    """To one address, through a proxy where one is named."""

    def __init__(self, route: Route, tls: ssl.SSLContext, limit: int) -> None:
        """ValueError for a host or a proxy that can't be spoken to."""
        self._address = _address(
            route.host, _PORTS, "an API server must speak HTTPS or HTTP (example: https://10.96.0.1:443)"
        )
        self._tls = tls if self._address.scheme == "https" else None
        self._name = route.server_name or self._address.hostname
        must = "a proxy must speak HTTP (example: http://proxy:3128)"
        self._proxy = _address(route.proxy, ("http",), must) if route.proxy else None
        self._proxy_headers = route.proxy_headers or {}
        self._places = asyncio.Semaphore(limit)
        # Whoever came back last goes first, so that those above need age unused.
        self._idle: list[tuple[float, Connection]] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False

    async def ask(
        self, request: bytes, guard: Callable[[], bool] | None, *, most: int = 0, harmless: bool = False
    ) -> HttpReply:
        """One request and its answer; OSError when there is none, GuardRefusedError when `guard` kept it back.

        TooLargeError where its body has more than `most` bytes, unless that is 0. What is `harmless` is asked again
        where a kept connection turns out to be closed.
        """
        async with self._places:
            kept = self._kept()
            if kept is not None:
                try:
                    return await self._asked(kept, request, guard, most)
                except ConnectionError:
                    if not harmless:
                        raise
            return await self._asked(Connection(await self._opened()), request, guard, most)

    @asynccontextmanager
    async def stream(self, pause: float) -> AsyncIterator[WatchStream]:
        """Open one for an answer that goes on."""
        async with self._places:
            if self._closed:
                raise ConnectionError(_CLOSED)
            stream = WatchStream(await self._opened(), pause)
            try:
                yield stream
            finally:
                stream.close()

    def close(self) -> None:
        """Close what is idle; what is under way ends with its own answer or time-out."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        for _, connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _asked(
        self, connection: Connection, request: bytes, guard: Callable[[], bool] | None, most: int
    ) -> HttpReply:
        try:
            return await connection.ask(request, guard, most)
        except BaseException:
            connection.close()
            raise
        finally:
            self._keep(connection)

    def _kept(self) -> Connection | None:
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
            self._sweeping = loop.call_later(KEPT, self._sweep)

    def _sweep(self) -> None:
        """Close those that nobody has used for long; the oldest come first."""
        loop = asyncio.get_running_loop()
        fresh = [each for each in self._idle if each[0] > loop.time() - KEPT and each[1].usable]
        for each in self._idle:
            if each not in fresh:
                each[1].close()
        self._idle = fresh
        self._sweeping = loop.call_at(fresh[0][0] + KEPT, self._sweep) if fresh else None

    async def _opened(self) -> socket.socket:
        """A socket that leads to the API server, TLS and all."""
        plain = await _connected(self._proxy or self._address)
        try:
            if self._proxy is not None:
                await self._tunnel(plain, self._proxy)
            if self._tls is None:
                return plain
            # It takes the socket's place, also where the handshake fails.
            plain = self._tls.wrap_socket(plain, server_hostname=self._name, do_handshake_on_connect=False)
            await _shaken(plain)
        except BaseException:
            plain.close()
            raise
        return plain

    async def _tunnel(self, plain: socket.socket, proxy: SplitResult) -> None:
        """Have the proxy lay through what it can't read."""
        loop, name, port = asyncio.get_running_loop(), f"{self._address.hostname}", _port(self._address)
        target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        headers = {"Host": target, **self._proxy_headers}
        if proxy.username:
            word = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {b64encode(word.encode()).decode()}"
        lines = [f"CONNECT {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        await loop.sock_sendall(plain, "\r\n".join(lines).encode() + _LINE)
        answer = b""
        # Byte by byte: what follows belongs to TLS.
        while not answer.endswith(_LINE):
            byte = await loop.sock_recv(plain, 1)
            if not byte:
                raise ConnectionResetError("the proxy closed the connection")
            answer += byte
        said, _, _ = answer.partition(b"\r")
        if said.split(b" ", 2)[1:2] != [b"200"]:
            raise ConnectionRefusedError(f"the proxy said {said.decode(errors='replace')!r}")


async def _connected(address: SplitResult) -> socket.socket:
    """A socket that does not block, to the first of a host's addresses that answers."""
    loop = asyncio.get_running_loop()
    return await aiohappyeyeballs.start_connection(
        await _looked_up(address),
        happy_eyeballs_delay=_SECOND_TRY,
        interleave=1,
        loop=loop,
        socket_factory=dropping_socket,
    )


async def _looked_up(address: SplitResult) -> Sequence[AddrInfoType]:
    """What is an address already, as in a pod, needs nobody to look it up, and no thread to wait in."""
    host, port = address.hostname, _port(address)
    with suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=_TCP, flags=socket.AI_NUMERICHOST)
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=_TCP)


async def _shaken(sock: ssl.SSLSocket) -> None:
    """Shake hands."""
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
    """ValueError, which shows no password, where it says of nobody how to speak to them."""
    with suppress(ValueError):
        address = urlsplit(text)
        if address.scheme in schemes and address.hostname and _port(address):
            return address
    shown = re.sub(r"^(\w+://)?.*@", r"\1", text)
    raise ValueError(f"cannot speak to {shown}: {rule}")


def _port(address: SplitResult) -> int:
    return address.port or _PORTS[address.scheme]


UNACKNOWLEDGED: Final = 4.0
"""Seconds after which the kernel drops what nobody has acknowledged, with its connection: shorter than a lease outlives
the time in which its holder binds."""


def dropping_socket(address: AddrInfoType) -> socket.socket:
    """Make a socket that forgets what nobody acknowledges."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # Linux has it, where schedulers run; the command line runs on other systems too.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNACKNOWLEDGED * 1000))
    return made


def proxy_of(host: str) -> str | None:
    """The environment's proxy for this address; to be asked once, since none changes while a process runs."""
    address = urlsplit(host)
    if proxy_bypass(address.netloc):
        return None
    return getproxies().get(address.scheme)
