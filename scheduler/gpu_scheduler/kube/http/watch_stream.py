"""One answer that goes on for as long as it is read: a watch."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from gpu_scheduler.kube.http.connection import Connection, HttpReply

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator

_AHEAD: Final = 2**19
"""Bytes that may lie here before nothing more is read."""
_OK: Final = range(200, 300)


class WatchStream(Connection):
    """A connection for one request, and for none after it."""

    def __init__(self, sock: socket.socket, pause: float) -> None:
        """`pause` is how many seconds news may lie at the kernel: reading many at once costs less."""
        super().__init__(sock)
        self._pause = pause
        self._resuming: asyncio.TimerHandle | None = None
        self._streaming = self._ended = self._fresh = False
        self._error: OSError | None = None
        self._wakeup = asyncio.Event()

    async def begin(self, request: bytes) -> HttpReply:
        """Send; the answer's head, with a body only where it is a refusal. OSError when there is none."""
        if self._error is not None:
            raise self._error
        return await self.ask(request, None)

    async def chunks(self, idle_limit: float) -> AsyncIterator[bytearray]:
        """What comes, until the server ends it; OSError where it breaks, TimeoutError after so long a silence."""
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
        """Read what lies at the kernel, if news may; whether they may have."""
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
        """Read on, where it was not closed meanwhile."""
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
        """See HttpResponseParser; what follows the end at once is nobody's."""
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


LONG: Final = 2**20
"""Bytes of a line from which on it is a long one."""


async def lines(chunks: AsyncIterator[bytes | bytearray], large: asyncio.Lock) -> AsyncIterator[bytes | bytearray]:
    """Cut a stream into its lines; what stands after the last line feed is incomplete and dropped.

    `large` is held while a line of megabytes is here, so that of many streams only one has such a line at a time.
    Whoever takes a line must not keep it.
    """
    rest, ours = bytearray(), False
    async with AsyncExitStack() as alone:
        async for chunk in chunks:
            first, *others = chunk.split(b"\n")
            rest += first
            if others:
                # It is given away as it is: a copy would be as long.
                line, rest = rest, bytearray(others.pop())
                if line:
                    yield line
                del line
                await alone.aclose()
                ours = False
            for other in others:
                if other:
                    yield other
            del chunk, first, others
            if len(rest) > LONG and not ours:
                await alone.enter_async_context(large)
                ours = True
