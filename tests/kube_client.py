"""The tests' own client of an API server: blocking, with paths and plain objects.

Tests do not use the package's client, because it is under test.
"""

from __future__ import annotations

import errno
import http.client
import json
import ssl
import threading
from contextlib import closing, contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.waiting import limit

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Mapping

    from tests.objects import Object

MERGE_PATCH: Final = "application/merge-patch+json"
CREATED: Final = 201
NOT_FOUND: Final = 404
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class _ClosingSocket(ssl.SSLSocket):
    """Closes itself if the server, killed by a test, has reset the connection before the handshake.

    Python 3.11's own stays open then, until the garbage collector finds it in another test.
    """

    def getpeername(self) -> socket._RetAddress:
        """See socket.getpeername."""
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, "reset before the handshake") from error


class KubeClient:
    """A client of the API server on this port of 127.0.0.1.

    `ca` is a file, and so is `pair`, with a client certificate and its key.
    """

    def __init__(self, port: int, ca: str, token: str = "", pair: str = "", headers: Mapping[str, str] = NONE) -> None:
        """Connect with the first request."""
        self._port = port
        self._headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        self._tls = ssl.create_default_context(cafile=ca)
        self._tls.sslsocket_class = _ClosingSocket
        if pair:
            self._tls.load_cert_chain(pair)
        # Each thread has a connection of its own, kept open: a handshake costs more than most requests.
        self._own = threading.local()
        self._made: list[http.client.HTTPSConnection] = []

    def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        """Send one request; return its status and the decoded body."""
        status, text = self.raw(method, path, None if body is None else json.dumps(body).encode(), content_type)
        return status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}

    def raw(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Send one request; return its status and the body as bytes."""
        headers = {**self._headers, "Content-Type": content_type}
        kept: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            # The server may have closed the kept connection. Then the request was not executed: send it on a new one.
            with suppress(ConnectionError, ssl.SSLEOFError):
                return self._exchange(kept, method, path, body, headers)
        fresh = self._connect(60)
        self._made.append(fresh)
        return self._exchange(fresh, method, path, body, headers)

    @contextmanager
    def stream(self, path: str) -> Iterator[tuple[http.client.HTTPSConnection, http.client.HTTPResponse]]:
        """Open a request whose answer is read as a stream, on a connection of its own."""
        with closing(self._connect(90)) as connection:
            connection.request("GET", path, headers=self._headers)
            # If the server closes after the answer, http.client hands the socket over to the answer.
            with closing(connection.getresponse()) as answer:
                yield connection, answer

    def _connect(self, seconds: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=limit(seconds))

    def _exchange(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes]:
        self._own.connection = None
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._own.connection = connection
        return response.status, text

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._made:
            connection.close()

    def get(self, path: str) -> Object | None:
        """Return an object; None if it does not exist."""
        status, body = self.call("GET", path)
        assert status in {200, NOT_FOUND}, body
        return body if status != NOT_FOUND else None

    def create(self, path: str, body: Object) -> Object:
        """Create an object and return it; AssertionError unless it succeeds."""
        status, answer = self.call("POST", path, body)
        assert status in {200, 201, 202}, answer
        return answer

    def create_with_warnings(self, path: str, body: Object) -> list[str]:
        """Create an object and return the warnings that `kubectl` would print."""
        headers = {**self._headers, "Content-Type": "application/json"}
        with closing(self._connect(60)) as connection:
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        assert response.status == CREATED, text
        # `299 - "TEXT"`, where the text is UTF-8.
        given = (each.encode("latin-1").decode() for each in response.headers.get_all("Warning", ()))
        return [json.loads(each.partition(" - ")[2]) for each in given]

    def merge(self, path: str, body: Object) -> tuple[int, Object]:
        """Merge `body` into an object; return status and answer."""
        return self.call("PATCH", path, body, MERGE_PATCH)

    def patch(self, path: str, body: Object) -> Object:
        """Merge `body` into an object and return it; AssertionError unless it succeeds."""
        status, answer = self.merge(path, body)
        assert status == 200, answer
        return answer

    def delete(self, path: str) -> None:
        """Delete an object without a grace period, if it exists."""
        status, answer = self.call("DELETE", path, {"gracePeriodSeconds": 0})
        assert status in {200, 202, NOT_FOUND}, answer
