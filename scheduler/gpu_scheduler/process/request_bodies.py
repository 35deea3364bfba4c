"""Request bodies: so many bytes at once, each within its time, and none in memory before it has arrived."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from gpu_scheduler.process.peer_connection import PeerConnection

SMALL: Final = 64 * 1024
"""Bytes of a body that always find room: their sum is bounded by the number of connections."""
IN_FLIGHT: Final = 16 * 1024 * 1024
"""Bytes of larger bodies at once: two of the largest, or sixteen pods as large as etcd takes them."""
PATIENCE: Final = 1.0
"""Seconds that a body may take to arrive while another waits for its room; 8 MiB need a tenth in a cluster."""
LOOK_AGAIN: Final = 0.1
"""Seconds between looks at who takes too long."""


class BodyError(Exception):
    """The body is not read; `status` is HTTP's, the text says why."""

    def __init__(self, status: int, text: str) -> None:
        """Keep both."""
        super().__init__(text)
        self.status = status


@dataclass(slots=True, eq=False)
class _Room:
    """What one body takes of the bytes in flight, from its announcement until it has been dealt with."""

    size: int
    connection: PeerConnection
    since: float = 0.0
    arrived: bool = False


@dataclass(order=True, slots=True)
class _Waiter:
    size: int
    number: int
    granted: asyncio.Future[None] = field(compare=False)


class BodyBudget:
    """Reads bodies of one server."""

    def __init__(self, largest: int, in_flight: int = IN_FLIGHT) -> None:
        """`largest` body that is read at all, and how many bytes of those over 64 KiB are held at once."""
        self._largest = largest
        self._free = in_flight
        self._rooms: dict[_Room, None] = {}
        self._waiters: list[_Waiter] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def body(self, request: web.Request, connection: PeerConnection) -> AsyncIterator[bytearray]:
        """All of the body, whose room is kept until the block ends. BodyError when it is not read."""
        size = request.content_length
        if size is None:
            raise BodyError(411, "no Content-Length")
        if size > self._largest:
            raise BodyError(413, f"over {self._largest} bytes")
        room = _Room(size, connection)
        if size > SMALL:
            await self._take(room)
        try:
            body = bytearray()
            while len(body) < size:
                # Not `read`, which keeps a second copy.
                chunk = await request.content.readany()
                if not chunk:
                    raise BodyError(400, "its body is cut short")
                body += chunk
            room.arrived = True
            connection.request_completed()
            yield body
        finally:
            if room in self._rooms:
                del self._rooms[room]
                self._free += size
                self._grant()

    async def _take(self, room: _Room) -> None:
        """Wait for room; of those that wait the smallest is next."""
        loop = asyncio.get_running_loop()
        if room.size <= self._free and not self._waiters:
            self._free -= room.size
        else:
            waiter = _Waiter(room.size, next(self._numbers), loop.create_future())
            heapq.heappush(self._waiters, waiter)
            self._close_late()
            try:
                await waiter.granted
            except asyncio.CancelledError:
                self._withdraw(waiter)
                raise
        room.since = loop.time()
        self._rooms[room] = None

    def _withdraw(self, waiter: _Waiter) -> None:
        """Whoever waited is gone, perhaps just after its room was granted."""
        if not waiter.granted.cancelled():
            self._free += waiter.size
        self._grant()

    def _grant(self) -> None:
        while self._waiters:
            waiter = self._waiters[0]
            if not waiter.granted.cancelled():
                if waiter.size > self._free:
                    return
                self._free -= waiter.size
                waiter.granted.set_result(None)
            heapq.heappop(self._waiters)

    def _close_late(self) -> None:
        """While others wait, close the connections whose bodies take too long to arrive."""
        loop = asyncio.get_running_loop()
        late = loop.time() - PATIENCE
        for room in self._rooms:
            if not room.arrived and room.since <= late:
                room.connection.close()
        if self._waiters and self._timer is None:
            self._timer = loop.call_later(LOOK_AGAIN, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        if self._waiters:
            self._close_late()
