"""The API server over HTTP: credentials, requests and watches.

Bodies are raw bytes and an answer is its HTTP status, so no reply can be misread; every call has a time-out.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gpu_scheduler.kube.config.client_config import ClientConfigError, tls_of, trust
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.connection import GuardRefusedError, TooLargeError
from gpu_scheduler.kube.http.pool import ConnectionPool, Route, proxy_of
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import Status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from gpu_scheduler.kube.config.client_config import ClientConfig
    from gpu_scheduler.kube.http.connection import HttpReply
    from gpu_scheduler.kube.http.watch_stream import WatchStream

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
CALL_TIMEOUT = 3.0
# More than binds (64), announcements (80), leases, watches and lists together: none waits for another.
CONNECTIONS = 192
UNAUTHORIZED = 401

log = logging.getLogger(__name__)

_statuses = msgspec.json.Decoder(Status)


class NoResponseError(Exception):
    """The API server did not answer: refused, cut, or over the time-out. What it did with the request is unknown."""


class TooLongError(NoResponseError):
    """The answer has more bytes than were asked for; it was not read to its end."""


class NotSentError(NoResponseError):
    """Nothing of the request was sent, because its guard said no."""


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """One reply: HTTP status, raw body, and the seconds to wait that a Retry-After header asked for."""

    status: int
    body: bytes | bytearray
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the HTTP standard's own numbers


class ApiClient:
    """A connection to one cluster, authenticated; safe to share between tasks."""

    def __init__(self, configuration: ClientConfig, *, reload: ConfigLoader, user_agent: str = "gpu-scheduler") -> None:
        """`reload` makes a fresh configuration when the API server no longer accepts our credentials."""
        self._configuration = configuration
        self._reload = reload
        self._reloading = asyncio.Lock()
        self._tls = tls_of(configuration)
        self._proxy = proxy_of(configuration.host)
        self._connections = self._connections_to(configuration)
        self._streams: set[WatchStream] = set()
        self._user_agent = user_agent

    @property
    def host(self) -> str:
        """The API server's base address."""
        return str(self._configuration.host)

    @property
    def context(self) -> str:
        """The kubeconfig's context that leads there; empty inside a cluster."""
        return self._reload.context

    @property
    def namespace(self) -> str:
        """The namespace of that context; empty inside a cluster."""
        return self._reload.namespace

    async def close(self) -> None:
        """Close every connection."""
        self._connections.close()

    def poll_watches(self) -> bool:
        """Have each watch that rests read what has come meanwhile; whether one did."""
        hurried = [stream.poll_watches() for stream in tuple(self._streams)]
        return any(hurried)

    async def call(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = CALL_TIMEOUT,  # noqa: ASYNC109 - a limit for the transport, which then tells what it knows
        guard: Callable[[], bool] | None = None,
        most: int = 0,
    ) -> ApiResponse:
        """One request, one Answer whatever its status; NoResponseError when there was none within `timeout` seconds.

        Of a body longer than `most` bytes no more is read: TooLongError; 0 sets no limit. A `guard` is asked
        in the very call that sends the body: NotSentError when it said no before anything left. What it guards is not
        sent twice: a 401 is then the answer, though the credentials are read again.
        """
        try:
            async with asyncio.timeout(timeout):
                reply = await self._ask(method, path, query, content_type, body, guard, most)
        except GuardRefusedError as error:
            raise NotSentError(f"{method} {path}: {error}") from error
        except TooLargeError as error:
            raise TooLongError(f"{method} {path}: {error}") from error
        except (TimeoutError, OSError) as error:
            raise NoResponseError(f"{method} {path}: {_told(error)}") from error
        return _answer(reply)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], limit: float, idle_limit: float, pause: float = 0.0
    ) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes | bytearray]]]:
        """Open a watch: its Answer (body only when refused) and the raw chunks.

        Ends after `limit` seconds or `idle_limit` seconds of silence with NoResponseError. What comes is read every
        `pause` seconds, or sooner by `poll_watches`.
        """
        try:
            async with asyncio.timeout(limit), self._watch(path, query, idle_limit, pause) as (reply, stream):
                yield _answer(reply), stream.chunks(idle_limit)
        except (TimeoutError, OSError) as error:
            raise NoResponseError(f"watch {path}: {_told(error)}") from error

    async def _ask(  # noqa: PLR0913, PLR0917 - the parts of an HTTP request
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        content_type: str,
        body: bytes | None,
        guard: Callable[[], bool] | None,
        most: int,
    ) -> HttpReply:
        """Send; once more with reloaded credentials after a 401, which says that nothing was done."""
        for last in (False, True):
            configuration = self._configuration
            # Of a watch nothing may wait for more that could be packed with it.
            headers = await self._headers(content_type, "Accept-Encoding: gzip\r\n")
            request = self._request(method, path, query, headers, body)
            reply = await self._connections.ask(request, guard, most=most, harmless=method == "GET")
            refused = reply.status == UNAUTHORIZED and not last
            if refused:
                await self._reload_credentials(configuration)
            if not refused or guard is not None:
                break
        return reply

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], idle_limit: float, pause: float
    ) -> AsyncIterator[tuple[HttpReply, WatchStream]]:
        """Begin; once more with reloaded credentials after a 401."""
        for last in (False, True):
            configuration = self._configuration
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CALL_TIMEOUT):
                    stream = await stack.enter_async_context(self._connections.stream(pause))
                async with asyncio.timeout(idle_limit):
                    headers = await self._headers(JSON)
                    reply = await stream.begin(self._request("GET", path, query, headers))
                if reply.status != UNAUTHORIZED or last:
                    self._streams.add(stream)
                    stack.callback(self._streams.discard, stream)
                    yield reply, stream
                    return
            await self._reload_credentials(configuration)

    def _request(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        headers: str,
        body: bytes | None = None,
    ) -> bytes:
        """Head and body, as they are sent."""
        target = f"{path}?{urlencode(query)}" if query else path
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._base}{target} HTTP/1.1\r\n{self._named}{headers}{length}\r\n".encode()
        return head if body is None else head + body

    async def _headers(self, content_type: str, more: str = "") -> str:
        """Its lines, and `more` of them."""
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        who = f"Authorization: {token}\r\n" if token else ""
        return f"Accept: {JSON}\r\nContent-Type: {content_type}\r\nUser-Agent: {self._user_agent}\r\n{who}{more}"

    async def _reload_credentials(self, refused: ClientConfig) -> None:
        """Read token, certificates and CA again; many calls refused at once make one reload."""
        async with self._reloading:
            if self._configuration is not refused:
                return
            log.warning("The API server refused our credentials: reading them again", extra={"host": self.host})
            try:
                fresh = await self._reload()
                trust(self._tls, fresh)
                connections = self._connections_to(fresh)
            except (ClientConfigError, OSError, ssl.SSLError) as error:
                raise NoResponseError(f"cannot read credentials again: {error}") from error
            self._configuration = fresh
            # Those that are open show the client certificate that was refused.
            self._connections.close()
            self._connections = connections

    def _connections_to(self, configuration: ClientConfig) -> ConnectionPool:
        """ClientConfigError where there is no way."""
        try:
            route = Route(
                configuration.host,
                configuration.tls_server_name,
                configuration.proxy or self._proxy,
                configuration.proxy_headers,
            )
            connections = ConnectionPool(route, self._tls, CONNECTIONS)
        except ValueError as error:
            raise ClientConfigError(str(error)) from error
        address = urlsplit(configuration.host)
        # A host with a path in it stands behind a gateway for several clusters.
        self._named, self._base = f"Host: {address.netloc.rpartition('@')[2]}\r\n", address.path
        return connections


async def connect(kubeconfig: str | None, context: str | None, *, user_agent: str) -> ApiClient:
    """An Api for the cluster of `kubeconfig`, or the one this pod runs in; ClientConfigError when there is none."""
    reload = ConfigLoader(kubeconfig, context)
    return ApiClient(await reload(), reload=reload, user_agent=user_agent)


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _answer(reply: HttpReply) -> ApiResponse:
    return ApiResponse(reply.status, reply.body, _patience(reply.retry_after))


def _told(error: Exception) -> str:
    """A time-out has no words of its own."""
    return str(error) or type(error).__name__


def _patience(text: str) -> float | None:
    """Seconds that a Retry-After header asks for; a date there (nobody sends one here) counts as none."""
    return float(text) if text.isascii() and text.isdigit() else None


def status_message(answer: ApiResponse) -> str:
    """Find the sentence of a Status object, or the beginning of whatever else came."""
    try:
        message = _statuses.decode(answer.body).message
    except UNREADABLE:
        message = None
    return message or answer.body[:200].decode(errors="replace")
