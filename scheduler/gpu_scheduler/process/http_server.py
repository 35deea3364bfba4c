"""The HTTP servers: health, readiness and metrics for every command, and a listener that stops in good order.

Readiness tells the truth: each check is a function that answers None, or the sentence why not.
"""

from __future__ import annotations

import json
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gpu_scheduler.process.acceptor import BACKLOG, HEALTH_LIMITS, Acceptor
from gpu_scheduler.process.peer_connection import READ_AHEAD, PeerConnection
from gpu_scheduler.process.turns import sparingly

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp.typedefs import Handler
    from prometheus_client import CollectorRegistry

    from gpu_scheduler.process.peer_connection import Limits

    Checks = Mapping[str, Callable[[], str | None]]
    Dumps = Mapping[str, Callable[[], object]]

SERVICE = "gpu-scheduler"
OK = 200
UNAVAILABLE = 503
# API servers keep idle webhook connections for 90 s: whoever waits longer never closes one that is about to be used.
KEEPALIVE = 120.0
# Health and metrics are answered at once: a client that is slower than that must not hold up the end of the process.
BRIEFLY = 0.2
# Nobody who asks us sends more: a service account's token has 1.5 KB, and a proxy adds some headers.
LONGEST_LINE: Final = 4096
MOST_HEADERS: Final = 32
# Where a request has the connection that it came over.
CONNECTION: Final = web.RequestKey("connection", PeerConnection)


def _is_ours(record: logging.LogRecord) -> bool:
    """A peer that sends no HTTP writes no log of ours."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_server_log = logging.getLogger("aiohttp.server")
_server_log.addFilter(_is_ours)


class ListenError(Exception):
    """The address cannot be listened on; the text names it and the variable that changes it."""


def health_app(
    *, alive: Checks, ready: Checks, registry: CollectorRegistry, dumps: Dumps | None = None
) -> web.Application:
    """`alive` fails when only a restart helps, `ready` when traffic should wait; /ready and /readyz ask both.

    `dumps` are further paths, and the functions that give the JSON they answer.
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

    exposition = sparingly(lambda: generate_latest(registry))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

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


def _dump(read: Callable[[], object]) -> Callable[[web.Request], Awaitable[web.Response]]:
    text = sparingly(lambda: json.dumps(read()))

    async def dump(_: web.Request) -> web.Response:
        return web.json_response(text=text())

    return dump


def _report(request: web.Request, checks: Checks) -> web.Response:
    """Answer as Kubernetes' own components do: `ok`, or every check with + or - when asked or when one fails."""
    results = {name: check() for name, check in checks.items()}
    well = not any(results.values())
    if well and "verbose" not in request.query:
        return web.Response(text="ok")
    told = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in results.items()]
    told.append(f"{request.path.removeprefix('/')} check {'passed' if well else 'failed'}")
    return web.Response(text="\n".join(told) + "\n", status=OK if well else UNAVAILABLE)


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
        patience: float = BRIEFLY,
        limits: Limits = HEALTH_LIMITS,
    ) -> None:
        """`variable` is the setting an error names; `patience` the seconds that open requests get at the end."""
        app.middlewares.insert(0, self._follow)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            keepalive_timeout=KEEPALIVE,
            shutdown_timeout=patience,
            # A peer that is gone needs no answer, and one that goes on sending after its answer gets no ear.
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
        """Listen; ListenError when the port is taken."""
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
        """Close the socket, let open requests finish, then cut."""
        self._acceptor.stop()
        await self._runner.cleanup()

    @web.middleware
    async def _follow(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tell a connection how far its request has come; who reads a body tells of its end."""
        connection = self._acceptor.connection_of(request.protocol)
        request[CONNECTION] = connection
        if not request.body_exists:
            connection.request_completed()
        try:
            return await handler(request)
        finally:
            connection.request_answered()


def _listen(address: str, port: int) -> socket.socket:
    """All addresses are one socket, where the host has IPv6."""
    if not address and socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=BACKLOG)
