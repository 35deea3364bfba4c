"""One watch: the server's end, which tells of changes, and the client's, which hears of them a little later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gpu_scheduler.kube.http.client import NoResponseError
from simulator.api_server.store import bookmark, event_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from simulator.api_server.store import Change, Selector, Shelf
    from simulator.clock import Host, Timeline

BOOKMARKS: Final = 60.0
"""Seconds between two of them."""
GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'


class Channel:
    """Opened by the server; broken by faults at any time."""

    def __init__(
        self, timeline: Timeline, host: Host, pause: Callable[[], float], shelf: Shelf, selector: Selector
    ) -> None:
        """`pause` is how long each line is under way."""
        self._timeline = timeline
        self._host = host
        self._pause = pause
        self.shelf = shelf
        self._selector = selector
        self._last = 0.0
        self._version = 0
        self._open = False
        self._lines: deque[bytes] = deque()
        self._held: list[bytes] | None = None
        self._buffer: list[bytes] = []
        self._ended = False
        self._failed: str | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._heard = 0.0
        self.twice = False
        """Whether every event is said twice."""
        self.silent = False
        """Whether packets are dropped."""

    @property
    def live(self) -> bool:
        """Whether the server tells through it."""
        return self._open and not self._ended

    def open(self, version: int, seconds: float) -> None:
        """Tell what happened since, and what happens from now on; ExpiredVersionError where that can't be told."""
        for change in self.shelf.since(version):
            self._tell(change)
        self._version = max(version, self._version)
        self._open = True
        self.shelf.told.append(self._tell)
        self._timeline.after(seconds, self._finish)
        self._timeline.after(BOOKMARKS, self._mark)

    def close(self) -> None:
        """The client has left."""
        if self._open:
            self.shelf.told.remove(self._tell)
            self._open = False
        self._ended = True

    def cut(self) -> None:
        """The connection breaks; what is under way is lost."""
        self._failed = "cut"
        self._wake()

    def truncate(self) -> None:
        """It breaks in the middle of a line."""
        self._buffer.append(b'{"type":"MODIFIED","object":{"metadata":{"na')
        self.cut()

    def expire(self) -> None:
        """The server says that the version is too old, and ends."""
        self._push(GONE)

    def freeze(self) -> None:
        """Hold back what is to come."""
        self._held = self._held or []

    def thaw(self) -> None:
        """Say all that was held back."""
        held, self._held = self._held or (), None
        for line in held:
            self._push(line)

    def mark(self, times: int) -> None:
        """Say so many bookmarks, and nothing else."""
        for _ in range(times):
            self._push(bookmark(self._version))

    async def chunks(self, limit: float, idle_limit: float) -> AsyncIterator[bytes]:
        """What the client reads; NoResponseError where it breaks, or is silent for too long."""
        self._heard = self._host.time()
        total = self._host.call_later(limit, self.cut)
        idle = self._host.call_later(idle_limit, self._listen, idle_limit)
        try:
            while True:
                if self._buffer:
                    chunk = b"".join(self._buffer)
                    self._buffer.clear()
                    yield chunk
                elif self._failed is not None:
                    raise NoResponseError(f"watch: {self._failed}")
                elif self._ended:
                    return
                else:
                    self._waiter = self._host.create_future()
                    await self._waiter
        finally:
            total.cancel()
            idle.cancel()
            self.close()

    def _listen(self, idle_limit: float) -> None:
        left = self._heard + idle_limit - self._host.time()
        if left <= 0:
            self._failed = "silence"
            self._wake()
        elif not self._ended:
            self._host.call_later(left, self._listen, idle_limit)

    def _tell(self, change: Change) -> None:
        self._version = change.version
        line = event_of(change, self._selector)
        if line is not None:
            self._push(line)
            if self.twice:
                self._push(line)

    def _push(self, line: bytes) -> None:
        if self._held is not None:
            self._held.append(line)
        elif not self.silent:
            self._last = max(self._last, self._timeline.now + self._pause())
            self._lines.append(line)
            self._timeline.after(self._last - self._timeline.now, self._arrive)

    def _arrive(self) -> None:
        self._buffer.append(self._lines.popleft())
        self._heard = self._timeline.now
        self._wake()

    def _mark(self) -> None:
        if self.live:
            self._push(bookmark(self._version))
            self._timeline.after(BOOKMARKS, self._mark)

    def _finish(self) -> None:
        if self.live:
            self._ended = True
            self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
