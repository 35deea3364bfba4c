"""HTTP servers: health, readiness and metrics for every command, and a listener with a graceful stop.

Each check is a function that returns None, or a sentence that says why the check fails.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from gpu_scheduler.kube.turns import Turn
from gpu_scheduler.process.acceptor import BACKLOG, HEALTH_LIMITS, Acceptor
from gpu_scheduler.process.peer_connection import READ_AHEAD, PeerConnection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from aiohttp.typedefs import Handler
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.samples import Sample

    from gpu_scheduler.process.peer_connection import Limits

    Checks = Mapping[str, Callable[[], str | None]]
    Dumps = Mapping[str, Callable[[], object]]

T = TypeVar("T")

SERVICE = "gpu-scheduler"
PROGRESS: Final = "/progress"
"""The path that says what a program has seen of the cluster, and what it has yet to do about it."""
OK = 200
UNAVAILABLE = 503
# Seconds. Health and metrics are answered at once: a slower client must not delay the end of the process.
DEFAULT_SHUTDOWN_TIMEOUT = 0.2
# No legitimate client sends more: a service account's token has 1.5 KB, and a proxy adds some headers.
LONGEST_LINE: Final = 4096
MOST_HEADERS: Final = 32
# How long `throttled` reuses a result, in multiples of the time that it took to make.
PAUSE: Final = 4
# Samples of a family that are written in one step: 2 to 3 ms.
PART: Final = 500
# The key of a request's connection.
CONNECTION: Final = web.RequestKey("connection", PeerConnection)


def _is_ours(record: logging.LogRecord) -> bool:
    """Return False for the error of a peer that does not send HTTP: no peer may cause our log lines."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_server_log = logging.getLogger("aiohttp.server")
_server_log.addFilter(_is_ours)


class ListenError(Exception):
    """The address cannot be listened on; the text names it and the variable that changes it."""


def health_app(
    *, alive: Checks, ready: Checks, registry: CollectorRegistry, dumps: Dumps | None = None
) -> web.Application:
    """Return the application with the health, readiness and metrics paths.

    `alive` checks fail if only a restart helps, `ready` checks if traffic should wait; /ready and /readyz run both.
    `dumps` maps further paths to functions, whose results are answered as JSON.
    """
    everything = {**alive, **ready}

    async def health(_: web.Request) -> web.Response:
        well = not any(check() for check in alive.values())
        body = json.dumps({"service": SERVICE, "status": "healthy" if well else "unhealthy"}, separators=(",", ":"))
        return web.json_response(text=body, status=OK if well else UNAVAILABLE)

    async def live(request: web.Request) -> web.Response:
        return _report(request, alive)

    async def readiness(request: web.Request) -> web.Response:
        return _report(request, everything)

    exposition = throttled(lambda: _exposition(registry))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/metrics", metrics)
    for path in ("/livez", "/healthz"):
        app.router.add_get(path, live)
    for path in ("/readyz", "/ready"):
        app.router.add_get(path, readiness)
    for path, read in (dumps or {}).items():
        app.router.add_get(path, _dump(read))
    return app


async def _exposition(registry: Collector) -> bytes:
    """Return all metrics as text. It is made in turns: each family is read alone, and written in parts."""
    texts, turn = [], Turn()
    for family in registry.collect():
        await turn.pause()
        head = generate_latest(_Part(family, []))
        texts.append(head)
        for first in range(0, len(family.samples), PART):
            samples = family.samples[first : first + PART]
            texts.append(generate_latest(_Part(family, samples)).removeprefix(head))
            await turn.pause()
    return b"".join(texts)


class _Part(Collector):
    """Some samples of a family."""

    def __init__(self, family: Metric, samples: list[Sample]) -> None:
        self._part = copy(family)
        self._part.samples = samples

    def collect(self) -> Iterable[Metric]:
        """Return the family with these samples."""
        return (self._part,)


def _dump(read: Callable[[], object]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def make() -> str:
        return json.dumps(read())

    text = throttled(make)

    async def dump(_: web.Request) -> web.Response:
        return web.json_response(text=await text())

    return dump


def throttled(make: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """Return a function that calls `make` or returns its last result, so that `make` runs at most 1/5 of the time.

    One call makes it while others wait. A call that is cancelled counts too: its peer has closed the connection.
    """
    made: list[T] = []
    not_before = 0.0
    alone = asyncio.Lock()

    async def give() -> T:
        nonlocal not_before
        async with alone:
            began = time.perf_counter()
            if began >= not_before or not made:
                try:
                    made[:] = [await make()]
                finally:
                    ended = time.perf_counter()
                    not_before = ended + PAUSE * (ended - began)
            return made[0]

    return give


def _report(request: web.Request, checks: Checks) -> web.Response:
    """Answer as Kubernetes' own components do: `ok`, or every check with + or - if `verbose` is set or one fails."""
    results = {name: check() for name, check in checks.items()}
    well = not any(results.values())
    if well and "verbose" not in request.query:
        return web.Response(text="ok")
    lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in results.items()]
    lines.append(f"{request.path.removeprefix('/')} check {'passed' if well else 'failed'}")
    return web.Response(text="\n".join(lines) + "\n", status=OK if well else UNAVAILABLE)


class Listener:
    """One application on one port; `async with` opens and closes it."""

    def __init__(  # noqa: PLR0913 - what a listener is made of
        self,
        app: web.Application,
        *,
        address: str,
        port: int,
        variable: str,
        tls: ssl.SSLContext | None = None,
        shutdown_timeout: float = DEFAULT_SHUTDOWN_TIMEOUT,
        limits: Limits = HEALTH_LIMITS,
    ) -> None:
        """Errors name `variable`, a setting. Open requests get `shutdown_timeout` seconds at the end."""
        app.middlewares.insert(0, self._follow)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=limits.idle_timeout,
            shutdown_timeout=shutdown_timeout,
            # Cancel the handler if the peer disconnects, and do not read what a peer sends after its answer.
            handler_cancellation=True,
            lingering_time=0,
            auto_decompress=False,
            read_bufsize=READ_AHEAD,
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
            max_headers=MOST_HEADERS,
            logger=_server_log,
        )
        self._address = address
        self._port = port
        self._variable = variable
        self._tls = tls
        self._limits = limits
        self._acceptor: Acceptor

    async def __aenter__(self) -> Self:
        """Listen; raise ListenError if the port is taken."""
        await self._runner.setup()
        try:
            listening = _listen(self._address, self._port)
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(
                f"cannot listen on {self._address or '*'}:{self._port}: {error.strerror or error} "
                f"(choose another port, example: {self._variable}={self._port + 1})",
            ) from error
        self.port = int(listening.getsockname()[1])
        self._acceptor = Acceptor(listening, cast("web.Server", self._runner.server), self._limits, self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the listening socket, wait `shutdown_timeout` seconds for open requests, then close all connections."""
        self._acceptor.stop()
        await self._runner.cleanup()

    @web.middleware
    async def _follow(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Set the phase of the request's connection. If the request has a body, its reader reports it complete."""
        connection = self._acceptor.connection_of(request.protocol)
        request[CONNECTION] = connection
        if not request.body_exists:
            connection.request_completed()
        try:
            return await handler(request)
        finally:
            connection.request_answered()


def _listen(address: str, port: int) -> socket.socket:
    """Return a listening socket. An empty address means all addresses: one dual-stack socket if the host has IPv6."""
    if not address and socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=BACKLOG)
