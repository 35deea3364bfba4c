"""A fake API server: scripted replies over real HTTP, and a record of the requests."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from gpu_scheduler.kube.config.client_config import ClientConfig
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import LEASE_GAP, ApiClient
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.objects import Object


@dataclass(frozen=True)
class Reply:
    """One response: status, body, headers, the event that it waits for, and whether it is never sent.

    With status 0 the connection is cut.
    """

    status: int = 200
    body: Object | str = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    after: asyncio.Event | None = None
    hang: bool = False


@dataclass(frozen=True)
class Watch:
    """One watch: its events, and whether the server closes it after them or sends nothing more."""

    events: tuple[Object | str, ...] = ()
    close: bool = False


@dataclass(frozen=True)
class Exec:
    """One WebSocket: its messages, the protocol that the server speaks, and whether it sends nothing more."""

    messages: tuple[bytes | str, ...] = ()
    protocol: str = "v5.channel.k8s.io"
    hang: bool = False


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class FakeServer:
    """Answers each path from its own script. The last reply of a script is repeated."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._scripts: dict[tuple[str, str], list[Reply | Watch | Exec]] = defaultdict(list)
        self._ending = asyncio.Event()
        self._server: TestServer | None = None

    def on(self, method: str, path: str, *replies: Reply | Watch | Exec) -> None:
        """Answer requests with `method` (WATCH for watches) to `path` with these replies, in order.

        A path that ends with `?fieldSelector=SELECTOR` is only for requests with this selector.
        """
        self._scripts[method, path].extend(replies)

    def asked(self, method: str, path: str | None = None) -> list[Request]:
        """Return the requests with this method, and this path if given, in order."""
        return [each for each in self.requests if each.method == method and path in {None, each.path}]

    @property
    def url(self) -> str:
        assert self._server is not None
        return str(self._server.make_url("")).rstrip("/")

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(app)
        await self._server.start_server()

    async def stop(self) -> None:
        self._ending.set()
        assert self._server is not None
        # The server knows a new connection only after the loop has run a few more times.
        await asyncio.sleep(0.01)
        await self._server.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method = "WATCH" if request.query.get("watch") else request.method
        text = await request.text()
        body = json.loads(text) if text.startswith(("{", "[")) else text
        self.requests.append(Request(method, request.path, dict(request.query), dict(request.headers), body))
        selected = f"{request.path}?fieldSelector={request.query.get('fieldSelector', '')}"
        script = self._scripts.get((method, selected)) or self._scripts[method, request.path]
        assert script, f"nothing scripted for {method} {request.path}"
        reply = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(reply, Watch):
            return await self._stream(request, reply)
        if isinstance(reply, Exec):
            return await self._exec(request, reply)
        if reply.hang:
            await self._ending.wait()
        if reply.after is not None:
            await reply.after.wait()
        if not reply.status and request.transport is not None:
            request.transport.close()
        content = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        return web.Response(
            status=reply.status or 500, body=content.encode(errors="surrogateescape"), headers=reply.headers
        )

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in watch.events:
            line = event if isinstance(event, str) else json.dumps(event) + "\n"
            # In pieces, as a network may deliver them.
            for start in range(0, len(line), 50):
                await response.write(line[start : start + 50].encode(errors="surrogateescape"))
        if not watch.close:
            await self._ending.wait()
        return response

    async def _exec(self, request: web.Request, reply: Exec) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=(reply.protocol,))
        await socket.prepare(request)
        for message in reply.messages:
            await (socket.send_str(message) if isinstance(message, str) else socket.send_bytes(message))
        if reply.hang:
            await self._ending.wait()
        await socket.close()
        return socket


class StaticReload(ConfigLoader):
    """Credentials from a list, one for each time they are read."""

    def __init__(self, url: str, *tokens: str) -> None:
        super().__init__()
        self._url = url
        self._tokens = list(tokens) or ["first"]
        self.reads = 0

    async def __call__(self) -> ClientConfig:
        self.reads += 1
        token = self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
        return ClientConfig(self._url, lambda: f"Bearer {token}")


@asynccontextmanager
async def connected(*tokens: str, lease_gap: float = LEASE_GAP) -> AsyncIterator[tuple[FakeServer, ApiClient]]:
    """Yield a fake server and an ApiClient that is connected to it."""
    server = FakeServer()
    await server.start()
    reload = StaticReload(server.url, *tokens)
    api = ApiClient(await reload(), reload=reload, lease_gap=lease_gap)
    try:
        yield server, api
    finally:
        await api.close()
        await server.stop()


async def until(ask: object, seconds: float = 3.0) -> None:
    """Wait until `ask()` is true, at most `limit(seconds)`."""
    assert callable(ask)
    async with asyncio.timeout(limit(seconds)):
        while not ask():  # noqa: ASYNC110 - the condition sets no event
            await asyncio.sleep(0.005)
