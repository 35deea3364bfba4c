"""One watch: a response whose body is read in chunks until the server ends it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from gpu_scheduler.kube.http.connection import Connection, HttpReply
from gpu_scheduler.kube.turns import Turn

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

_AHEAD: Final = 2**19
"""Bytes in the buffer above which the socket is not read."""
_OK: Final = range(200, 300)


class WatchStream(Connection):
    """A connection for a single request, a watch."""

    def __init__(self, sock: socket.socket, pause: float) -> None:
        """`pause`: seconds that data may wait in the kernel. Reading many events at once costs less CPU."""
        super().__init__(sock)
        self._pause = pause
        self._resuming: asyncio.TimerHandle | None = None
        self._streaming = self._ended = self._fresh = False
        self._error: OSError | None = None
        self._wakeup = asyncio.Event()

    async def begin(self, request: bytes) -> HttpReply:
        """Send the request; return the response's head, with a body only if refused. OSError if there is none."""
        if self._error is not None:
            raise self._error
        return await self.ask(request, None)

    async def chunks(self, idle_limit: float) -> AsyncIterator[bytearray]:
        """Yield data until the server ends the response.

        Raise OSError if the connection breaks, TimeoutError after `idle_limit` seconds without data.
        """
        while True:
            if self._body:
                chunk, self._body = self._body, bytearray()
                if len(chunk) > _AHEAD:
                    self._resume()
                yield chunk
            elif self._ended:
                return
            elif self._error is not None:
                raise self._error
            else:
                self._wakeup.clear()
                async with asyncio.timeout(idle_limit):
                    await self._wakeup.wait()

    def poll_watches(self) -> bool:
        """If reading is paused, read the socket now. Return whether it was paused."""
        if self._resuming is None:
            return False
        self._resuming.cancel()
        self._resume()
        if self.usable:
            self._readable()
        return True

    def _take(self, data: bytes) -> bool:
        more = super()._take(data) and self.usable
        if more and self._streaming and len(self._body) > _AHEAD:
            self._loop.remove_reader(self._socket)
            return False
        return more

    def _drained(self) -> None:
        if self._pause and self._fresh:
            self._fresh = False
            self._loop.remove_reader(self._socket)
            self._resuming = self._loop.call_later(self._pause, self._resume)

    def _resume(self) -> None:
        """Watch the socket again, unless it was closed in the meantime."""
        self._resuming = None
        if self.usable:
            self._loop.add_reader(self._socket, self._readable)

    def on_headers_complete(self) -> None:
        """See HttpResponseParser."""
        super().on_headers_complete()
        status = self._parser.get_status_code()
        if status in _OK and self._reply is not None and not self._reply.done():
            self._streaming = True
            self._reply.set_result(HttpReply(status, b"", ""))

    def on_body(self, body: bytes) -> None:
        """See HttpResponseParser. Drop data after the end of the response."""
        if self._ended:
            return
        super().on_body(body)
        self._fresh = self._streaming
        self._wakeup.set()

    def on_message_complete(self) -> None:
        """See HttpResponseParser."""
        if not self._streaming:
            super().on_message_complete()
            return
        self._ended = True
        self._wakeup.set()
        self.close()

    def _fail(self, error: OSError) -> None:
        super()._fail(error)
        self._error = error
        self._wakeup.set()


LARGE_LINE: Final = 2**20
"""Bytes of a line above which `lines` holds the lock `large`."""


async def lines(chunks: AsyncIterator[bytes | bytearray], large: asyncio.Lock) -> AsyncIterator[bytes | bytearray]:
    """Split a stream into its lines; drop the incomplete text after the last line feed.

    `large` is held while a line of megabytes is in memory, so that only one of many streams has such a line at a time.
    The consumer must not keep a line. A chunk of many lines is yielded in turns.
    """
    rest, ours = bytearray(), False
    async with AsyncExitStack() as alone:
        async for chunk in chunks:
            turn = Turn()
            first, *others = chunk.split(b"\n")
            rest += first
            if others:
                # Yield the buffer itself: a copy would need as much memory again.
                line, rest = rest, bytearray(others.pop())
                if line:
                    yield line
                del line
                await alone.aclose()
                ours = False
            for other in others:
                await turn.pause()
                if other:
                    yield other
            del chunk, first, others
            if len(rest) > LARGE_LINE and not ours:
                await alone.enter_async_context(large)
                ours = True
