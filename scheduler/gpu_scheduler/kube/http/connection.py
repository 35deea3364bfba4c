"""One kept connection to the API server, over which requests go one after the other: HTTP/1.1 by Node.js' parser.

Our own, because what only the leader may send has to ask whether it leads in the very call that hands its bytes to the
kernel: a process may be stopped, or its machine paused, between any two steps. And a request costs less than half of
what it costs in a client for all purposes, see docs/performance.md.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from zlib import _Decompress as Unpacker

_CHUNK: Final = 2**16
"""More than a record of TLS, so that of what it has opened nothing stays where the kernel does not know of it."""
_RECORD: Final = 2**14
"""What TLS seals at once: handed more, it may send some of it and say that it sent nothing."""
_WANTS: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)
_FINAL: Final = 200
"""A status below is not yet the answer."""
_FRAMES: Final = (b"content-length", b"transfer-encoding")
"""What says where an answer ends; without it, as in HTTP/1.0, it ends where the server closes."""

_GZIP: Final = 16 + zlib.MAX_WBITS
"""What zlib calls gzip's format."""


class GuardRefusedError(ConnectionError):
    """The guard said no before anything was sent; the connection is of no use any more."""


class TooLargeError(OSError):
    """The body is larger than was asked for; the rest of it was not read, so the connection is of no use any more."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What came back: HTTP status, body, and the value of a Retry-After header, empty where there was none."""

    status: int
    body: bytes | bytearray
    """Nobody changes it any more."""
    retry_after: str


class Connection:
    """A connected socket that does not block, with TLS or without."""

    def __init__(self, sock: socket.socket) -> None:
        """Listen at once: who is told good-bye while idle must not be asked again."""
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
        self._retry_after = ""
        self._unpacker: Unpacker | None = None
        self._packed = self._framed = self._lasting = False
        self.usable = True
        """Whether it may be asked again."""

    async def ask(self, request: bytes, guard: Callable[[], bool] | None, most: int = 0) -> HttpReply:
        """Send, where `guard` allows it as each byte leaves, and give the answer; OSError when there is none.

        Of a body of more than `most` bytes, unpacked, no more is read: TooLargeError; 0 sets no limit. Whoever is
        cancelled meanwhile has to close it: the answer to come would be taken for the next one's.
        """
        self._most = most
        reply: asyncio.Future[HttpReply] = self._loop.create_future()
        self._reply = reply
        self._guard, self._unsent, self._left = guard, memoryview(request), False
        self._send()
        return await reply

    def close(self) -> None:
        """Let go of it; what the kernel has not sent yet, it forgets (see sockets)."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
        self.usable = False

    def _send(self) -> None:
        """Hand to the kernel what it takes."""
        try:
            while self._unsent:
                self._ask()
                # Whatever comes of it: also of one record TLS may have sent a part when it says that it must wait.
                self._left = True
                self._unsent = self._unsent[self._socket.send(self._unsent[:_RECORD]) :]
        except _WANTS:
            self._loop.add_writer(self._socket, self._send_more)
        except OSError as error:
            self._fail(error)

    def _send_more(self) -> None:
        self._loop.remove_writer(self._socket)
        self._send()

    def _ask(self) -> None:
        if self._guard is not None and not self._guard():
            what = "this process may not send that any more"
            raise ConnectionAbortedError(what) if self._left else GuardRefusedError(what)

    def _readable(self) -> None:
        try:
            while self._take(self._socket.recv(_CHUNK)):
                pass
        except _WANTS:
            self._drained()
        except OSError as error:
            self._fail(error)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the answer is no HTTP: {error}"))

    def _take(self, data: bytes) -> bool:
        """Parse; True where more is to come."""
        if not data:
            if not self._lasting:
                raise ConnectionResetError("the server closed the connection")
            self.on_message_complete()
            return False
        if self._reply is None:
            raise ConnectionError("the server spoke without being asked")
        self._parser.feed_data(data)
        return self._reply is not None

    def _drained(self) -> None:
        """All that has come was taken."""

    def on_message_begin(self) -> None:
        """See HttpResponseParser; what follows an answer at once would be taken for the next one's."""
        if self._reply is None:
            self.close()
        self._retry_after, self._unpacker, self._packed, self._framed = "", None, False, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """See HttpResponseParser."""
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1")
        elif name == b"content-encoding":
            self._packed = value.lower() == b"gzip"
        elif name in _FRAMES:
            self._framed = True

    def on_headers_complete(self) -> None:
        """See HttpResponseParser."""
        self._lasting = not self._framed

    def on_body(self, body: bytes) -> None:
        """See HttpResponseParser; what is packed is unpacked as it comes, and never further than to the limit."""
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
        """Unpack what is packed, no further than just beyond the limit."""
        if not self._packed:
            self._body += body
            return
        while body and not self._is_too_large():
            if self._unpacker is None or self._unpacker.eof:
                # What was packed in two parts is one body.
                self._unpacker = zlib.decompressobj(_GZIP)
            self._body += self._unpacker.decompress(body, self._most and self._most + 1 - len(self._body))
            body = self._unpacker.unused_data

    def _is_too_large(self) -> bool:
        return 0 < self._most < len(self._body)

    def on_message_complete(self) -> None:
        """See HttpResponseParser."""
        self._lasting = False
        status, reply = self._parser.get_status_code(), self._reply
        if status < _FINAL:
            return
        if not self._parser.should_keep_alive() or self._unsent:
            self.close()
        if self._unpacker is not None and not self._unpacker.eof:
            self._fail(ConnectionError("the answer cannot be unpacked: it ends too early"))
            return
        body, self._body = self._body, bytearray()
        self._reply, self._guard = None, None
        if reply is not None and not reply.done():
            reply.set_result(HttpReply(status, body, self._retry_after))

    def _fail(self, error: OSError) -> None:
        self.close()
        reply, self._reply = self._reply, None
        if reply is not None and not reply.done():
            reply.set_exception(error)
