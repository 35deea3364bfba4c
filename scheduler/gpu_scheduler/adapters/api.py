"""The API server over HTTP: connection, credentials, requests and watches.

Bodies are raw bytes and an answer is its HTTP status, so no reply can be misread; every call has a time-out. Inside a
cluster the client is not even imported: it costs 14 MB in each process, and a monitor runs on every GPU node.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import quote

import aiohttp
import msgspec

from gpu_scheduler.adapters import objects
from gpu_scheduler.adapters.decoding import UNREADABLE
from gpu_scheduler.adapters.in_cluster import InCluster
from gpu_scheduler.adapters.logs import get_logger
from gpu_scheduler.adapters.proxies import proxy_of
from gpu_scheduler.adapters.sockets import forgetful

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
CALL_TIMEOUT = 3.0
# More than binds (64), announcements, leases, watches and lists together: none waits for another.
CONNECTIONS = 128
READ_BUFFER = 2**21
UNAUTHORIZED = 401

log = get_logger(__name__)

# asyncio counts a whole request's time: aiohttp's own total swallows the cancellation of a task whose time is up in the
# same turn of the loop, as after SIGCONT, and who waits for that task waits for ever (see aiohttp issue 5979).
_UNTIMED: Final = aiohttp.ClientTimeout(total=None)

_statuses = msgspec.json.Decoder(objects.Status)


class NoAnswerError(Exception):
    """The API server did not answer: refused, cut, or over the time-out. What it did with the request is unknown."""


class AccessError(Exception):
    """Neither a kubeconfig nor a service account leads to an API server; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One reply: HTTP status, raw body, and the seconds to wait that a Retry-After header asked for."""

    status: int
    body: bytes
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """True for 2xx."""
        return 200 <= self.status < 300  # noqa: PLR2004 - the HTTP standard's own numbers


class Access(Protocol):
    """How a cluster is reached, as the client's Configuration says it, and InCluster for the pod's own cluster."""

    host: str
    ssl_ca_cert: str | None
    ca_cert_data: str | bytes | None
    cert_file: str | None
    key_file: str | None
    verify_ssl: bool
    proxy: str | None
    proxy_headers: Any
    tls_server_name: str | None

    async def get_api_key_with_prefix(self, _identifier: str, /, alias: str | None = None) -> str | None:
        """What goes into the Authorization header, read again where it has aged."""


class Api:
    """A connection to one cluster, authenticated; safe to share between tasks."""

    def __init__(self, configuration: Access, *, reload: Reload, user_agent: str = "gpu-scheduler") -> None:
        """`reload` makes a fresh configuration when the API server no longer accepts our credentials."""
        self._configuration = configuration
        self._reload = reload
        self._reloading = asyncio.Lock()
        self._tls = _context(configuration)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._tls, socket_factory=forgetful),
            # A watch event may be longer than aiohttp's own buffer.
            read_bufsize=READ_BUFFER,
        )
        self._user_agent = user_agent
        self._proxy = proxy_of(configuration.host)

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
        await self._session.close()

    async def call(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | aiohttp.BytesPayload | None = None,
        content_type: str = JSON,
        timeout: float = CALL_TIMEOUT,  # noqa: ASYNC109 - a limit for the transport, which then tells what it knows
        repeat: bool = True,
    ) -> Answer:
        """One request, one Answer whatever its status; NoAnswerError when there was none within `timeout` seconds.

        Without `repeat`, a 401 is the answer, though the credentials are read again: for what may only be sent now.
        """
        asked = self._open(method, path, query=query, body=body, content_type=content_type, repeat=repeat)
        try:
            async with asyncio.timeout(timeout), asked as response:
                return Answer(response.status, await response.read(), _retry_after(response))
        # The last is what aiohttp raises where the session was closed, because the process ends, under a request.
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError) as error:
            raise NoAnswerError(f"{method} {path}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        query: Mapping[str, str],
        limit: float,
        idle_limit: float,
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """Open a watch: its Answer (body only when refused) and the raw chunks.

        Ends after `limit` seconds or `idle_limit` seconds of silence with NoAnswerError.
        """
        timeouts = aiohttp.ClientTimeout(total=None, connect=CALL_TIMEOUT, sock_read=idle_limit)
        try:
            async with asyncio.timeout(limit), self._open("GET", path, timeouts=timeouts, query=query) as response:
                body = b"" if response.ok else await response.read()
                yield Answer(response.status, body, _retry_after(response)), response.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswerError(f"watch {path}: {error or type(error).__name__}") from error

    @asynccontextmanager
    async def _open(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        method: Method,
        path: str,
        *,
        timeouts: aiohttp.ClientTimeout = _UNTIMED,
        query: Mapping[str, str] | None = None,
        body: bytes | aiohttp.BytesPayload | None = None,
        content_type: str = JSON,
        repeat: bool = True,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send; once more with reloaded credentials after a 401, which says that nothing was done."""
        for last in (False, True):
            configuration = self._configuration
            extra: dict[str, Any] = {
                "proxy": configuration.proxy or self._proxy,
                "proxy_headers": configuration.proxy_headers,
            }
            if configuration.tls_server_name:
                extra["server_hostname"] = configuration.tls_server_name
            response = await self._session.request(
                method,
                self.host + path,
                params=query,
                data=body,
                headers=await self._headers(content_type),
                timeout=timeouts,
                allow_redirects=False,
                **extra,
            )
            async with response:
                refused = response.status == UNAUTHORIZED and not last
                if refused:
                    await self._reload_credentials(configuration)
                if not (refused and repeat):
                    yield response
                    return

    async def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": JSON, "Content-Type": content_type, "User-Agent": self._user_agent}
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return headers

    async def _reload_credentials(self, refused: Access) -> None:
        """Read token, certificates and CA again; many calls refused at once make one reload."""
        async with self._reloading:
            if self._configuration is not refused:
                return
            log.warning("The API server refused our credentials: reading them again", host=self.host)
            try:
                fresh = await self._reload()
                trust(self._tls, fresh)
            except (AccessError, OSError, ssl.SSLError) as error:
                raise NoAnswerError(f"cannot read credentials again: {error}") from error
            self._configuration = fresh


def _context(configuration: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    # Python 3.13 turned on checks that Kubernetes' own clients do not make and that many clusters' CAs fail.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def trust(context: ssl.SSLContext, configuration: Access) -> None:
    """Teach the live context a new CA and client certificate; connections that are open live on."""
    if configuration.ssl_ca_cert or configuration.ca_cert_data:
        context.load_verify_locations(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)


class Reload:
    """How this process finds its cluster: a kubeconfig when one is named, else the pod's service account."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None) -> None:
        """`kubeconfig` None means: inside the cluster."""
        self._kubeconfig = kubeconfig
        self.context = context or ""
        self.namespace = ""

    async def __call__(self) -> Access:
        """A fresh configuration; AccessError says what is missing."""
        try:
            if self._kubeconfig is None:
                return InCluster()
            # Here, because the client costs 14 MB that no pod needs.
            from gpu_scheduler.adapters.kubeconfig import read_kubeconfig  # noqa: PLC0415

            found = await read_kubeconfig(self._kubeconfig, self.context or None)
        except (OSError, TypeError, ValueError) as error:
            where = "a service account" if self._kubeconfig is None else f"kubeconfig {self._kubeconfig}"
            raise AccessError(
                f"cannot reach a cluster through {where}: {error} "
                "(example: --kubeconfig ~/.kube/config --context kind-gpu-scheduler)",
            ) from error
        self.context, self.namespace = found.context, found.namespace
        return found.access


async def connect(kubeconfig: str | None, context: str | None, *, user_agent: str) -> Api:
    """An Api for the cluster of `kubeconfig`, or the one this pod runs in; AccessError when there is none."""
    reload = Reload(kubeconfig, context)
    return Api(await reload(), reload=reload, user_agent=user_agent)


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Seconds that a Retry-After header asks for; a date there (nobody sends one here) counts as none."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def status_message(answer: Answer) -> str:
    """Find the sentence of a Status object, or the beginning of whatever else came."""
    try:
        message = _statuses.decode(answer.body).message
    except UNREADABLE:
        message = None
    return message or answer.body[:200].decode(errors="replace")
