"""The fault proxy between a program under test and the API server: it injects faults and logs requests.

Both sides use TLS. The proxy forwards the program's own token. Every fault names verb and path. A test fails if its
fault struck no request, because it then proves nothing.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web

from tests.integration.faults.proxy_faults import WATCH, Answer, Call, Cut, Delay, Hang, SmallPages, Truncate, Twice
from tests.integration.faults.watch_faults import changed_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.faults.proxy_faults import Act, Fault

_BIG: Final = 2**24
# Headers that are not forwarded: they belong to one connection, or no longer match the body.
_OWN: Final = frozenset(
    {
        "host",
        "connection",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
        "content-encoding",
        "keep-alive",
    }
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that the proxy received; `at` is the monotonic clock in seconds."""

    at: float
    verb: str
    path: str
    agent: str
    fault: Fault | None


class FaultProxy:
    """A proxy that listens on `port` with a certificate of the control plane's authority."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        """Start to listen."""
        self._plane = plane
        self._inward = plane.serving_context(folder / "proxy")
        self._faults: list[tuple[Fault, asyncio.Event]] = []
        self.seen: list[Seen] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    @contextmanager
    def breaking(self, fault: Fault) -> Iterator[Fault]:
        """Inject the fault, before all earlier ones. AssertionError at the end if it struck no request."""
        ended = asyncio.Event()
        entry = (fault, ended)
        self._faults.insert(0, entry)
        try:
            yield fault
        finally:
            self._faults.remove(entry)
            self._loop.call_soon_threadsafe(ended.set)
        assert fault.struck, f"it never struck: {fault}"

    def count(self, verb: str, path: str) -> int:
        """Return the number of requests with this verb whose path contains a match of the expression."""
        return len(self.times(verb, path))

    def times(self, verb: str, path: str) -> list[float]:
        """Return when these requests arrived, in seconds of the monotonic clock."""
        return [each.at for each in self.seen if each.verb == verb and re.search(path, each.path) is not None]

    def close(self) -> None:
        """Close every connection and stop the thread."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        outward = ssl.create_default_context(cafile=str(self._plane.ca))
        no_limit = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(ssl=outward, limit=0, force_close=False)
        self._session = aiohttp.ClientSession(connector=connector, timeout=no_limit, read_bufsize=_BIG)
        app = web.Application(client_max_size=_BIG)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._inward)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        for _, ended in self._faults:
            ended.set()
        await self._session.close()
        await self._runner.cleanup()
        # Requests that hang by a fault, and open watches, do not end by themselves.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        verb = WATCH if request.query.get("watch") == "true" else request.method
        fault, ended = self._fault_of(request, verb)
        self.seen.append(Seen(time.monotonic(), verb, request.path_qs, request.headers.get("User-Agent", ""), fault))
        body = await request.read()
        act = None if fault is None else fault.act
        match act:
            case Cut(delivered) | Hang(delivered) | Answer(delivered=delivered):
                if delivered:
                    await self._ask(request, body)
                if isinstance(act, Hang):
                    await ended.wait()
                if isinstance(act, Answer):
                    return _answer(act)
                return _abort(request)
            case Delay(seconds):
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), seconds)
            case Call(do, after, lost):
                if after:
                    await self._ask(request, body)
                await asyncio.to_thread(do)
                if lost:
                    return _abort(request)
            case Twice() if verb != WATCH:
                await self._ask(request, body)
        return await self._pass_on(request, body, verb, act, ended)

    def _fault_of(self, request: web.Request, verb: str) -> tuple[Fault | None, asyncio.Event]:
        bearer = request.headers.get("Authorization", "")
        for entry in tuple(self._faults):
            if entry[0].takes(verb, request.path_qs, bearer):
                return entry
        return None, asyncio.Event()

    async def _ask(self, request: web.Request, body: bytes) -> None:
        """Send the request to the API server and discard the answer."""
        async with self._request(request, body) as answer:
            # A watch does not end: the headers of its answer suffice.
            if request.query.get("watch") != "true":
                await answer.read()

    def _request(
        self, request: web.Request, body: bytes, act: Act | None = None
    ) -> aiohttp.client._RequestContextManager:
        headers = [(key, value) for key, value in request.headers.items() if key.lower() not in _OWN]
        what = request.rel_url.update_query(limit=act.size) if isinstance(act, SmallPages) else request.rel_url
        url = f"https://127.0.0.1:{self._plane.port}{what}"
        return self._session.request(request.method, url, data=body or None, headers=headers)

    async def _pass_on(
        self, request: web.Request, body: bytes, verb: str, act: Act | None, ended: asyncio.Event
    ) -> web.StreamResponse:
        try:
            async with self._request(request, body, act) as answer:
                headers = {key: value for key, value in answer.headers.items() if key.lower() not in _OWN}
                response = web.StreamResponse(status=answer.status, headers=headers)
                if verb != WATCH:
                    text = await answer.read()
                    response.content_length = len(text)
                    await response.prepare(request)
                    if isinstance(act, Truncate):
                        await response.write(text[: len(text) // 2])
                        return _abort(request)
                    await response.write(text)
                    return response
                response.enable_chunked_encoding()
                await response.prepare(request)
                async for line in changed_lines(answer.content, act, ended):
                    await response.write(line)
                return response
        except (aiohttp.ClientError, ConnectionError):
            return _abort(request)


def _answer(act: Answer) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": act.message, "code": act.status}
    return web.json_response(status, status=act.status, headers=dict(act.headers))


def _abort(request: web.Request) -> web.Response:
    """Abort the connection as a crash would, without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
