"""HTTP client of the API server: credentials, requests and watches.

Bodies are raw bytes, and only the HTTP status says whether a request succeeded, so no response can be misread. Every
call has a time-out.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.config.client_config import ClientConfigError, tls_of, trust
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http.connection import GuardRefusedError, TooLargeError
from gpu_scheduler.kube.http.pool import UNACKNOWLEDGED, ConnectionPool, Route, proxy_of
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import Status

if TYPE_CHECKING:
    import ssl
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
# More than binds (64), events and conditions (80), Leases, watches and lists together: no request waits for another.
CONNECTIONS = 192
UNAUTHORIZED = 401
LONGEST_RETRY_AFTER: Final = 60.0
"""Most seconds of a Retry-After header that count: a proxy's maintenance page may ask for hours."""
LEASE_GAP: Final = 5.0
"""Seconds from the renew deadline of the shipped Lease, when its holder stops writing, to the Lease's end."""
_USED_GAP: Final = 0.8
"""Part of that gap after which a guarded request is given up. The rest is for timers that are late."""

log = logging.getLogger(__name__)

_statuses = msgspec.json.Decoder(Status)


class NoResponseError(Exception):
    """No response: the connection was refused or cut, or the time-out passed.

    Whether the API server executed the request is unknown.
    """


class TooLongError(NoResponseError):
    """The response has more bytes than the caller allowed; it was not read to its end."""


class NotSentError(NoResponseError):
    """No byte of the request was sent, because its guard returned False."""


@immutable
class ApiResponse:
    """One response: HTTP status, raw body, and the seconds of its Retry-After header, if any."""

    status: int
    body: bytes | bytearray
    retry_after: float | None = None
    date: str = field(default="", compare=False)
    """The text of its Date header, empty if it has none."""

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the HTTP standard's own numbers


class ApiClient:
    """An authenticated client of one cluster; safe to share between tasks."""

    def __init__(
        self,
        configuration: ClientConfig,
        *,
        reload: ConfigLoader,
        user_agent: str = "gpu-scheduler",
        lease_gap: float = LEASE_GAP,
    ) -> None:
        """`reload` reads the configuration again when the API server no longer accepts our credentials.

        `lease_gap`: seconds from the moment when guards begin to refuse to the moment when another replica may lead.
        """
        # Derived rather than refused: a short Lease stays possible, and none lets a write outlive its holder's time.
        self._guarded_limit = lease_gap * _USED_GAP
        self._configuration = configuration
        self._reload = reload
        self._reloading: asyncio.Task[ClientConfigError | None] | None = None
        self._tls = tls_of(configuration)
        self._proxy = proxy_of(configuration.host)
        self._connections = self._connections_to(configuration)
        self._streams: set[WatchStream] = set()
        self._user_agent = user_agent

    @property
    def host(self) -> str:
        """The API server's base address."""
        return self._configuration.host

    @property
    def context(self) -> str:
        """The kubeconfig's context in use; empty inside a cluster."""
        return self._reload.context

    @property
    def namespace(self) -> str:
        """The namespace of that context; empty inside a cluster."""
        return self._reload.namespace

    @property
    def route(self) -> Route:
        """The way to the API server, for a client of another protocol than HTTP."""
        return self._route

    @property
    def tls(self) -> ssl.SSLContext:
        """The CA to trust and the client certificate, for the same client."""
        return self._tls

    async def identity(self) -> dict[str, str]:
        """Return the headers that say who asks, for the same client."""
        token = (await self._valid()).authorization()
        return {"User-Agent": self._user_agent, **({"Authorization": token} if token else {})}

    async def close(self) -> None:
        """Close every connection."""
        self._connections.close()

    def poll_watches(self) -> bool:
        """Make each watch that pauses read its socket now; return whether any watch paused."""
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
        timeout: float = CALL_TIMEOUT,  # noqa: ASYNC109 - a limit for the transport, which then says what it knows
        guard: Callable[[], bool] | None = None,
        most: int = 0,
    ) -> ApiResponse:
        """Send one request; return its response, whatever its status.

        Raise NoResponseError if no response comes within `timeout` seconds. Raise TooLongError if the body has more
        than `most` bytes; 0 sets no limit. The call that sends the bytes first calls `guard`: raise NotSentError if it
        returns False before any byte was sent. A guarded request is never sent twice: after a 401 the credentials are
        read again, and the caller gets the 401. It is also given up within the Lease's gap.
        """
        try:
            async with asyncio.timeout(timeout if guard is None else min(timeout, self._guarded_limit)):
                reply = await self._ask(method, path, query, content_type, body, guard, most)
        except GuardRefusedError as error:
            raise NotSentError(f"{method} {path}: {error}") from error
        except TooLargeError as error:
            raise TooLongError(f"{method} {path}: {error}") from error
        except (TimeoutError, OSError) as error:
            raise NoResponseError(f"{method} {path}: {_message_of(error)}") from error
        return _answer(reply)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], limit: float, idle_limit: float, pause: float = 0.0
    ) -> AsyncIterator[tuple[ApiResponse, AsyncIterator[bytes | bytearray]]]:
        """Open a watch: yield its response (with a body only if refused) and its raw chunks.

        Raise NoResponseError after `limit` seconds, or after `idle_limit` seconds without data. After each read the
        socket rests for `pause` seconds; `poll_watches` reads it earlier.
        """
        try:
            async with asyncio.timeout(limit), self._watch(path, query, idle_limit, pause) as (reply, stream):
                yield _answer(reply), stream.chunks(idle_limit)
        except (TimeoutError, OSError) as error:
            raise NoResponseError(f"watch {path}: {_message_of(error)}") from error

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
        """Send the request. After a 401 the API server did nothing: reload credentials and, unguarded, send again."""
        for last in (False, True):
            configuration = await self._valid()
            # A watch does not ask for gzip: the server could delay an event to compress it with later ones.
            headers = self._headers(configuration, content_type, "Accept-Encoding: gzip\r\n")
            request = self._request(method, path, query, headers, body)
            reply = await self._connections.ask(request, guard, most=most, idempotent=method == "GET")
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
        """Open the watch; after a 401, open it once more with reloaded credentials."""
        for last in (False, True):
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CALL_TIMEOUT):
                    configuration = await self._valid()
                    stream = await stack.enter_async_context(self._connections.stream(pause))
                async with asyncio.timeout(idle_limit):
                    headers = self._headers(configuration, JSON)
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
        """Return the bytes of head and body."""
        target = f"{path}?{urlencode(query)}" if query else path
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        head = f"{method} {self._base}{target} HTTP/1.1\r\n{self._named}{headers}{length}\r\n".encode()
        return head if body is None else head + body

    def _headers(self, configuration: ClientConfig, content_type: str, more: str = "") -> str:
        """Return the lines that every request has, then `more`."""
        token = configuration.authorization()
        who = f"Authorization: {token}\r\n" if token else ""
        return f"Accept: {JSON}\r\nContent-Type: {content_type}\r\nUser-Agent: {self._user_agent}\r\n{who}{more}"

    async def _valid(self) -> ClientConfig:
        """Return the configuration; read it again first if its credentials have expired."""
        configuration = self._configuration
        if time.time() >= configuration.expires:
            await self._reload_credentials(configuration)
        return self._configuration

    async def _reload_credentials(self, refused: ClientConfig) -> None:
        """Read token, certificates and CA again; calls that are refused at the same time share one reload."""
        if self._configuration is not refused:
            return
        if self._reloading is None:
            self._reloading = asyncio.create_task(self._replace_credentials())
        # A plugin may take longer than this call may: it goes on, and a later call finds what it printed.
        error = await asyncio.shield(self._reloading)
        if error is not None:
            raise NoResponseError(f"cannot read credentials again: {error}") from error

    async def _replace_credentials(self) -> ClientConfigError | None:
        """Use newly read credentials; return why they cannot be used."""
        if time.time() >= self._configuration.expires:
            log.info("Our credentials have expired: reading them again", extra={"host": self.host})
        else:
            log.warning("The API server refused our credentials: reading them again", extra={"host": self.host})
        try:
            fresh = await self._reload()
            trust(self._tls, fresh)
            connections = self._connections_to(fresh)
        except ClientConfigError as error:
            return error
        finally:
            self._reloading = None
        self._configuration = fresh
        # Open connections used the client certificate that was refused.
        self._connections.close()
        self._connections = connections
        return None

    def _connections_to(self, configuration: ClientConfig) -> ConnectionPool:
        """Return a pool of connections; raise ClientConfigError if host or proxy cannot be used."""
        try:
            route = Route(configuration.host, configuration.server_name, configuration.proxy or self._proxy)
            unacknowledged = min(UNACKNOWLEDGED, self._guarded_limit)
            connections = ConnectionPool(route, self._tls, CONNECTIONS, unacknowledged)
        except ValueError as error:
            raise ClientConfigError(str(error)) from error
        address = urlsplit(configuration.host)
        self._route = route
        # The host's URL may have a path: a gateway to several clusters distinguishes them by it.
        self._named, self._base = f"Host: {address.netloc.rpartition('@')[2]}\r\n", address.path
        return connections


async def connect(
    kubeconfig: str | None, context: str | None, *, user_agent: str, lease_gap: float = LEASE_GAP
) -> ApiClient:
    """Return a client of the kubeconfig's cluster, or of the pod's own; raise ClientConfigError if there is none.

    A command with leader election passes its Lease's `lease_gap`, see ApiClient.
    """
    reload = ConfigLoader(kubeconfig, context)
    return ApiClient(await reload(), reload=reload, user_agent=user_agent, lease_gap=lease_gap)


def segment(name: str) -> str:
    """Return a name, quoted as one segment of a URL path."""
    return quote(name, safe="")


def _answer(reply: HttpReply) -> ApiResponse:
    return ApiResponse(reply.status, reply.body, _retry_after_seconds(reply.retry_after), reply.date)


def _message_of(error: Exception) -> str:
    """Return the error's text, or its class: a TimeoutError has no text."""
    return str(error) or type(error).__name__


def _retry_after_seconds(text: str) -> float | None:
    """Return the seconds of a Retry-After header, at most LONGEST_RETRY_AFTER, or None.

    A date counts as None: no API server sends one.
    """
    return min(float(text), LONGEST_RETRY_AFTER) if text.isascii() and text.isdigit() else None


def status_message(answer: ApiResponse) -> str:
    """Return the message of a Status object, or the first 200 bytes of any other body, in one line."""
    try:
        message = _statuses.decode(answer.body).message
    except UNREADABLE:
        message = None
    # Some API servers leave out the reason after the colon of "is forbidden:".
    return " ".join((message or answer.body[:200].decode(errors="replace")).split()).removesuffix(":")
