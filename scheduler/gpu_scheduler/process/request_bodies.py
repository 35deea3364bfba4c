"""Limits request bodies: the bytes in memory at once, and the time within which each body must arrive."""

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
"""Largest body, in bytes, that need not wait for room: the number of connections limits the sum of such bodies."""
IN_FLIGHT: Final = 16 * 1024 * 1024
"""Bytes of larger bodies at once: two of the largest, or sixteen pods as large as etcd accepts them."""
ARRIVAL_TIMEOUT: Final = 1.0
"""Seconds that a body may take to arrive while another waits for room; in a cluster 8 MiB need a tenth of that."""
CHECK_EVERY: Final = 0.1
"""Seconds between checks for bodies that take too long."""


class BodyError(Exception):
    """The body is not read. `status` is the HTTP status to answer with; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        """`text` is the error's text."""
        super().__init__(text)
        self.status = status


@dataclass(slots=True, eq=False)
class _Reservation:
    """The part of the bytes in flight that one body takes, from its announcement until it has been processed."""

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
    """Reads the bodies of one server within a limit of memory."""

    def __init__(self, largest: int, in_flight: int = IN_FLIGHT) -> None:
        """`largest`: bytes of the largest body that is read. `in_flight`: bytes of bodies over 64 KiB held at once."""
        self._largest = largest
        self._free = in_flight
        self._rooms: dict[_Reservation, None] = {}
        self._waiters: list[_Waiter] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def body(self, request: web.Request, connection: PeerConnection) -> AsyncIterator[bytearray]:
        """Yield the whole body, and keep its room until the block ends. Raise BodyError if it is not read."""
        size = request.content_length
        if size is None:
            raise BodyError(411, "no Content-Length")
        if size > self._largest:
            raise BodyError(413, f"over {self._largest} bytes")
        room = _Reservation(size, connection)
        if size > SMALL:
            await self._take(room)
        try:
            body = bytearray()
            while len(body) < size:
                # Not `read`, which would keep a second copy.
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

    async def _take(self, room: _Reservation) -> None:
        """Wait for room. The smallest of the waiting bodies is next."""
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
        """Remove a cancelled waiter, and release its room if that was just granted."""
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
        late = loop.time() - ARRIVAL_TIMEOUT
        for room in self._rooms:
            if not room.arrived and room.since <= late:
                room.connection.close()
        if self._waiters and self._timer is None:
            self._timer = loop.call_later(CHECK_EVERY, self._check_again)

    def _check_again(self) -> None:
        self._timer = None
        if self._waiters:
            self._close_late()
