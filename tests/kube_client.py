"""The tests' one client of an API server: blocking, paths and plain objects. The package's own client is under test."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from contextlib import closing, contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.objects import Object

MERGE_PATCH: Final = "application/merge-patch+json"
NOT_FOUND: Final = 404
NONE: Final[Mapping[str, str]] = MappingProxyType({})


class KubeClient:
    """Asks the API server on this port of this host; `ca` and `pair` (a client's certificate and key) are files."""

    def __init__(self, port: int, ca: str, token: str = "", pair: str = "", headers: Mapping[str, str] = NONE) -> None:
        """Connect with the first request."""
        self._port = port
        self._headers = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        self._tls = ssl.create_default_context(cafile=ca)
        if pair:
            self._tls.load_cert_chain(pair)
        # Each thread has a connection of its own, kept open: a handshake costs more than most requests.
        self._own = threading.local()
        self._made: list[http.client.HTTPSConnection] = []

    def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        """One request: status and decoded body."""
        status, text = self.raw(method, path, None if body is None else json.dumps(body).encode(), content_type)
        return status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}

    def raw(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """One request: status and body as bytes."""
        headers = {**self._headers, "Content-Type": content_type}
        kept: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            # One that the server has closed since is no fault: the request never left.
            with suppress(ConnectionError, ssl.SSLEOFError):
                return self._exchange(kept, method, path, body, headers)
        fresh = self._connect(60)
        self._made.append(fresh)
        return self._exchange(fresh, method, path, body, headers)

    @contextmanager
    def stream(self, path: str) -> Iterator[tuple[http.client.HTTPSConnection, http.client.HTTPResponse]]:
        """An answer that goes on, over a connection of its own."""
        with closing(self._connect(90)) as connection:
            connection.request("GET", path, headers=self._headers)
            # An answer after which the server closes has the socket for itself.
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
        """End every thread's connection."""
        for connection in self._made:
            connection.close()

    def get(self, path: str) -> Object | None:
        """Read an object; None when there is none."""
        status, body = self.call("GET", path)
        assert status in {200, NOT_FOUND}, body
        return body if status != NOT_FOUND else None

    def create(self, path: str, body: Object) -> Object:
        """Create an object; anything but success is an error."""
        status, answer = self.call("POST", path, body)
        assert status in {200, 201, 202}, answer
        return answer

    def merge(self, path: str, body: Object) -> tuple[int, Object]:
        """Merge `body` into an object: status and answer."""
        return self.call("PATCH", path, body, MERGE_PATCH)

    def patch(self, path: str, body: Object) -> Object:
        """Merge `body` into an object; anything but success is an error."""
        status, answer = self.merge(path, body)
        assert status == 200, answer
        return answer

    def delete(self, path: str) -> None:
        """Delete an object at once, if it is there."""
        status, answer = self.call("DELETE", path, {"gracePeriodSeconds": 0})
        assert status in {200, 202, NOT_FOUND}, answer
