"""A stand-in for the API server: scripted answers over real HTTP, and a record of what was asked."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client.configuration import Configuration

from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.client import ApiClient
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.objects import Object


@dataclass(frozen=True)
class Reply:
    """One answer: status, body, headers, and how long it takes."""

    status: int = 200
    body: Object | str = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    after: float = 0.0


@dataclass(frozen=True)
class Watch:
    """One watch: its events, and whether the server then closes it or falls silent."""

    events: tuple[Object | str, ...] = ()
    close: bool = False


@dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class FakeServer:
    """Answers each path from its own script; the last answer of a script stands for ever."""

    def __init__(self) -> None:
        """No path is known."""
        self.requests: list[Request] = []
        self._scripts: dict[tuple[str, str], list[Reply | Watch]] = defaultdict(list)
        self._ending = asyncio.Event()
        self._server: TestServer | None = None

    def on(self, method: str, path: str, *replies: Reply | Watch) -> None:
        """Answer requests of `method` (WATCH for watches) to `path` in this order."""
        self._scripts[method, path].extend(replies)

    def asked(self, method: str, path: str | None = None) -> list[Request]:
        """Give the requests of this kind, in order."""
        return [each for each in self.requests if each.method == method and path in {None, each.path}]

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self._server is not None
        return str(self._server.make_url("")).rstrip("/")

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._server = TestServer(app)
        await self._server.start_server()

    async def stop(self) -> None:
        """End; watches that hang are let go."""
        self._ending.set()
        assert self._server is not None
        # A connection that was made a moment ago is known to the server from the loop's next turns on.
        await asyncio.sleep(0.01)
        await self._server.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method = "WATCH" if request.query.get("watch") else request.method
        text = await request.text()
        body = json.loads(text) if text.startswith(("{", "[")) else text
        self.requests.append(Request(method, request.path, dict(request.query), dict(request.headers), body))
        script = self._scripts[method, request.path]
        assert script, f"nothing scripted for {method} {request.path}"
        reply = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(reply, Watch):
            return await self._stream(request, reply)
        await asyncio.sleep(reply.after)
        said = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        return web.Response(status=reply.status, body=said.encode(errors="surrogateescape"), headers=reply.headers)

    async def _stream(self, request: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in watch.events:
            line = event if isinstance(event, str) else json.dumps(event) + "\n"
            # In pieces, as networks deliver.
            for start in range(0, len(line), 50):
                await response.write(line[start : start + 50].encode(errors="surrogateescape"))
        if not watch.close:
            await self._ending.wait()
        return response


class StaticReload(ConfigLoader):
    """Credentials from a list, one for each time they are read."""

    def __init__(self, url: str, *tokens: str) -> None:
        """The last token stands for ever."""
        super().__init__()
        self._url = url
        self._tokens = list(tokens) or ["first"]
        self.reads = 0

    async def __call__(self) -> Configuration:
        """See Reload."""
        self.reads += 1
        configuration = Configuration(host=self._url)
        token = self._tokens.pop(0) if len(self._tokens) > 1 else self._tokens[0]
        configuration.api_key["BearerToken"] = f"Bearer {token}"
        return configuration


@asynccontextmanager
async def connected(*tokens: str) -> AsyncIterator[tuple[FakeServer, ApiClient]]:
    """A server and an Api that talks to it."""
    server = FakeServer()
    await server.start()
    reload = StaticReload(server.url, *tokens)
    api = ApiClient(await reload(), reload=reload)
    try:
        yield server, api
    finally:
        await api.close()
        await server.stop()


async def until(ask: object, seconds: float = 3.0) -> None:
    """Wait until `ask()` is true, at most `limit(seconds)`."""
    assert callable(ask)
    async with asyncio.timeout(limit(seconds)):
        while not ask():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.005)
