"""The HTTP servers: health, readiness and metrics for every command, and a listener that stops in good order.

Readiness tells the truth: each check is a function that answers None, or the sentence why not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from prometheus_client import CollectorRegistry

    Checks = Mapping[str, Callable[[], str | None]]
    Dumps = Mapping[str, Callable[[], object]]

SERVICE = "gpu-scheduler"
OK = 200
UNAVAILABLE = 503
# API servers keep idle webhook connections for 90 s: whoever waits longer never closes one that is about to be used.
KEEPALIVE = 120.0
# Health and metrics are answered at once: a client that is slower than that must not hold up the end of the process.
BRIEFLY = 0.2


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

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

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
    async def dump(_: web.Request) -> web.Response:
        return web.json_response(read())

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
    ) -> None:
        """`variable` is the setting an error names; `patience` the seconds that open requests get at the end."""
        self._runner = web.AppRunner(app, access_log=None, keepalive_timeout=KEEPALIVE, shutdown_timeout=patience)
        self._address = address
        self._port = port
        self._variable = variable
        self._tls = tls

    async def __aenter__(self) -> Self:
        """Listen; ListenError when the port is taken."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address or None, self._port, ssl_context=self._tls).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ListenError(
                f"cannot listen on {self._address or '*'}:{self._port}: {error.strerror or error} "
                f"(choose another port, example: {self._variable}={self._port + 1})",
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the socket, let open requests finish, then cut."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port in use, also when 0 asked for any."""
        address: tuple[str, int] = self._runner.addresses[0]
        return int(address[1])
