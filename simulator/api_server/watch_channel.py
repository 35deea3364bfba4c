"""One watch: the server's end sends changes, and the client's end receives them after a latency."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gpu_scheduler.kube.http.client import NoResponseError
from simulator.api_server.store import bookmark, event_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable

    from simulator.api_server.store import Change, Collection, Selector
    from simulator.clock import Host, Timeline

BOOKMARKS: Final = 60.0
"""Seconds between two bookmarks."""
GONE: Final = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'


class Channel:
    """A watch connection that faults can break at any time."""

    def __init__(
        self, timeline: Timeline, host: Host, pause: Callable[[], float], collection: Collection, selector: Selector
    ) -> None:
        """`pause` gives the latency of each line."""
        self._timeline = timeline
        self._host = host
        self._pause = pause
        self.collection = collection
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
        self._last_received = 0.0
        self.duplicated = False
        """Whether each event is sent twice."""
        self.silent = False
        """Whether packets are dropped."""

    @property
    def live(self) -> bool:
        """Whether the server sends on it."""
        return self._open and not self._ended

    def open(self, version: int, seconds: float) -> None:
        """Send the changes since this version and all later ones; ExpiredVersionError if they are compacted."""
        for change in self.collection.since(version):
            self._send_change(change)
        self._version = max(version, self._version)
        self._open = True
        self.collection.watchers.append(self._send_change)
        self._timeline.after(seconds, self._finish)
        self._timeline.after(BOOKMARKS, self._send_bookmark)

    def close(self) -> None:
        """End the watch on the client's side."""
        if self._open:
            self.collection.watchers.remove(self._send_change)
            self._open = False
        self._ended = True

    def cut(self) -> None:
        """Break the connection; lines in flight are lost."""
        self._failed = "cut"
        self._notify_reader()

    def truncate(self) -> None:
        """Break the connection in the middle of a line."""
        self._buffer.append(b'{"type":"MODIFIED","object":{"metadata":{"na')
        self.cut()

    def expire(self) -> None:
        """Send error 410, as for a version that is too old."""
        self._push(GONE)

    def freeze(self) -> None:
        """Hold back later lines."""
        self._held = self._held or []

    def thaw(self) -> None:
        """Send the lines that were held back."""
        held, self._held = self._held or (), None
        for line in held:
            self._push(line)

    def send_bookmarks(self, times: int) -> None:
        """Send `times` bookmarks."""
        for _ in range(times):
            self._push(bookmark(self._version))

    async def chunks(self, limit: float, idle_limit: float) -> AsyncIterator[bytes]:
        """Give what the client reads; NoResponseError if the connection breaks or is idle for too long."""
        self._last_received = self._host.time()
        total = self._host.call_later(limit, self.cut)
        idle = self._host.call_later(idle_limit, self._check_idle, idle_limit)
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

    def _check_idle(self, idle_limit: float) -> None:
        left = self._last_received + idle_limit - self._host.time()
        if left <= 0:
            self._failed = "silence"
            self._notify_reader()
        elif not self._ended:
            self._host.call_later(left, self._check_idle, idle_limit)

    def _send_change(self, change: Change) -> None:
        self._version = change.version
        line = event_of(change, self._selector)
        if line is not None:
            self._push(line)
            if self.duplicated:
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
        self._last_received = self._timeline.now
        self._notify_reader()

    def _send_bookmark(self) -> None:
        if self.live:
            self._push(bookmark(self._version))
            self._timeline.after(BOOKMARKS, self._send_bookmark)

    def _finish(self) -> None:
        if self.live:
            self._ended = True
            self._notify_reader()

    def _notify_reader(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
