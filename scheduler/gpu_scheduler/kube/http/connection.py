"""One kept connection to the API server: HTTP/1.1, one request after the other, with Node.js' parser.

It is our own code for two reasons. A request that only the leader may send must check leadership directly before the
system call that hands its bytes to the kernel, because the process or its machine may be paused between any two steps.
A pause between the check and that system call is not noticed: that window has microseconds. And a request costs less
than half of the CPU that it costs in a general-purpose client, see docs/performance.md.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from zlib import _Decompress as Unpacker

_CHUNK: Final = 2**16
"""Bytes of one read: more than a TLS record. Decrypted bytes left inside TLS would not make the socket readable."""
_RECORD: Final = 2**14
"""Bytes of a TLS record. Given more, TLS may send a part of it and report that it sent nothing."""
_WOULD_BLOCK: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)
_FIRST_FINAL_STATUS: Final = 200
"""Lowest status of a final response."""
_FRAMING_HEADERS: Final = (b"content-length", b"transfer-encoding")
"""Headers that say where a body ends. Without them, as in HTTP/1.0, it ends when the server closes."""

_GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib's `wbits` for the gzip format."""


class GuardRefusedError(ConnectionError):
    """The guard returned False before any byte was sent. The connection cannot be used again."""


class TooLargeError(OSError):
    """The body is larger than the caller allowed. Its rest was not read, so the connection cannot be used again."""


@immutable
class HttpReply:
    """A response: HTTP status, body, and the text of its Retry-After header, empty if it has none."""

    status: int
    body: bytes | bytearray
    """Must not be modified."""
    retry_after: str
    date: str = field(default="", compare=False)
    """The text of its Date header, empty if it has none."""


class Connection:
    """A connected, non-blocking socket, with or without TLS."""

    def __init__(self, sock: socket.socket) -> None:
        """Start reading at once: a connection that the server closed while idle must not be used again."""
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._readable)
        self._parser = HttpResponseParser(self)
        self._reply: asyncio.Future[HttpReply] | None = None
        self._guard: Callable[[], bool] | None = None
        self._unsent = memoryview(b"")
        self._left = False
        self._body = bytearray()
        self._most = 0
        self._headers: dict[bytes, bytes] = {}
        self._unpacker: Unpacker | None = None
        self._gzipped = self._until_close = False
        self.usable = True
        """Whether the connection may be used for another request."""

    async def ask(self, request: bytes, guard: Callable[[], bool] | None, most: int = 0) -> HttpReply:
        """Send a request and return its response; raise OSError if there is none.

        `guard` is called before each send to the kernel and must return True. Raise TooLargeError if the decompressed
        body has more than `most` bytes; 0 sets no limit. A caller that is cancelled must close the connection:
        otherwise the late response is taken for that of the next request.
        """
        self._most = most
        reply: asyncio.Future[HttpReply] = self._loop.create_future()
        self._reply = reply
        self._guard, self._unsent, self._left = guard, memoryview(request), False
        self._send()
        return await reply

    def close(self) -> None:
        """Close the socket. The kernel soon drops bytes that it has not delivered (see pool.dropping_socket)."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self.usable = False

    def _send(self) -> None:
        """Send as much as the kernel accepts now; send the rest when the socket is writable."""
        try:
            while self._unsent:
                self._ask()
                # Set before the call: TLS may have sent a part of the record even if it reports that it must wait.
                self._left = True
                self._unsent = self._unsent[self._socket.send(self._unsent[:_RECORD]) :]
        except _WOULD_BLOCK:
            self._loop.add_writer(self._socket, self._send_more)
        except OSError as error:
            self._fail(error)

    def _send_more(self) -> None:
        self._loop.remove_writer(self._socket)
        self._send()

    def _ask(self) -> None:
        if self._guard is not None and not self._guard():
            what = "the guard no longer allows this request"
            raise ConnectionAbortedError(what) if self._left else GuardRefusedError(what)

    def _readable(self) -> None:
        try:
            while self._take(self._socket.recv(_CHUNK)):
                pass
        except _WOULD_BLOCK:
            self._drained()
        except OSError as error:
            self._fail(error)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"))

    def _take(self, data: bytes) -> bool:
        """Parse `data`; return whether the response is still incomplete."""
        if not data:
            if not self._until_close:
                raise ConnectionResetError("the server closed the connection")
            self.on_message_complete()
            return False
        if self._reply is None:
            raise ConnectionError("the server sent data without a request")
        self._parser.feed_data(data)
        return self._reply is not None

    def _drained(self) -> None:
        """Called when no bytes are left to read; subclasses may override it."""

    def on_message_begin(self) -> None:
        """See HttpResponseParser. Close if no request is open: the response would be taken for the next request's."""
        if self._reply is None:
            self.close()
        self._headers, self._unpacker = {}, None

    def on_header(self, name: bytes, value: bytes) -> None:
        """See HttpResponseParser."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """See HttpResponseParser."""
        self._gzipped = self._headers.get(b"content-encoding", b"").lower() == b"gzip"
        self._until_close = self._headers.keys().isdisjoint(_FRAMING_HEADERS)

    def on_body(self, body: bytes) -> None:
        """See HttpResponseParser. Decompress each part as it comes, and never beyond the limit."""
        if self._reply is None:
            return
        try:
            self._add(body)
        except zlib.error as error:
            self._fail(ConnectionError(f"the answer cannot be unpacked: {error}"))
            return
        if self._is_too_large():
            self._body = bytearray()
            self._fail(TooLargeError(f"the answer has more than {self._most} bytes"))

    def _add(self, body: bytes) -> None:
        """Append `body`, decompressed if it is gzip, at most one byte beyond the limit."""
        if not self._gzipped:
            self._body += body
            return
        while body and not self._is_too_large():
            if self._unpacker is None or self._unpacker.eof:
                # One body may consist of several gzip members.
                self._unpacker = zlib.decompressobj(_GZIP)
            self._body += self._unpacker.decompress(body, self._most and self._most + 1 - len(self._body))
            body = self._unpacker.unused_data

    def _is_too_large(self) -> bool:
        return 0 < self._most < len(self._body)

    def on_message_complete(self) -> None:
        """See HttpResponseParser."""
        self._until_close = False
        status, reply = self._parser.get_status_code(), self._reply
        if status < _FIRST_FINAL_STATUS:
            return
        if not self._parser.should_keep_alive() or self._unsent:
            self.close()
        if self._unpacker is not None and not self._unpacker.eof:
            self._fail(ConnectionError("the answer cannot be unpacked: it ends too early"))
            return
        body, self._body = self._body, bytearray()
        self._reply, self._guard = None, None
        if reply is not None and not reply.done():
            reply.set_result(HttpReply(status, body, self._text_of(b"retry-after"), self._text_of(b"date")))

    def _text_of(self, header: bytes) -> str:
        return self._headers.get(header, b"").decode("latin-1")

    def _fail(self, error: OSError) -> None:
        self.close()
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            reply.set_exception(error)
