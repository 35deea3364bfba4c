"""One connection that a peer opened, and the peers that wait for a slot.

A connection knows its phase, its deadline, and whether another connection may take its slot. It is a layer between
asyncio's transport and aiohttp's handler, because aiohttp limits neither the number of connections nor the time that a
request takes to arrive.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, cast

from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.web_protocol import RequestHandler

READ_AHEAD: Final = 32 * 1024
"""Bytes that one connection may read ahead, in TLS and again in HTTP; most reviews are smaller."""

SILENT_SHARE: Final = 0.25
"""Share of the waiting connections from which those that have sent nothing are evicted first."""


@immutable
class Limits:
    """How many connections a server may have at once, and the time limits of a connection."""

    served: int
    served_per_address: int
    handshakes: int
    # Connections that have sent nothing yet or have no slot: each costs a socket.
    waiting: int
    # Seconds from accept until the handshake is complete, from a request's first byte until it is complete, and from
    # then until it is answered.
    request_timeout: float = 10.0
    # Seconds without a request. API servers keep idle connections for 90 s, also those that they opened in a burst and
    # have not used: a longer time never closes one that is about to be used.
    idle_timeout: float = 120.0
    # Seconds in a phase until another connection may take the slot: a hundred times what an API server needs.
    evictable_after: float = 1.0


class ConnectionPhase(Enum):
    """What a connection waits for."""

    SILENT = auto()  # its first byte
    QUEUED = auto()  # a slot
    HANDSHAKE = auto()  # the end of the TLS handshake
    IDLE = auto()  # the first byte of a request
    RECEIVING = auto()  # the rest of the request
    ANSWERING = auto()  # the answer


class ConnectionOwner(Protocol):
    """The methods of the acceptor that a connection calls."""

    def make_handler(self) -> RequestHandler:
        """Return a new aiohttp handler for one connection."""

    def opened(self, connection: PeerConnection) -> None:
        """Handle the start of HTTP on the connection."""

    def lost(self, connection: PeerConnection) -> None:
        """Handle the end of the connection."""


class PeerConnection(asyncio.Protocol):
    """A connection from accept on; `sock` is used directly until a transport takes it."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        owner: ConnectionOwner,
        limits: Limits,
    ) -> None:
        """`address` is the peer's, without its port."""
        self._clock = asyncio.get_running_loop().time
        self.address = address
        self.phase = ConnectionPhase.SILENT
        self.without_request_since = self._clock()
        self.handler: RequestHandler | None = None
        self.task: asyncio.Task[None] | None = None
        self.sock = sock
        self._owner = owner
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._phase_since = self.without_request_since
        self._deadline = self.without_request_since + self._limits.request_timeout
        self._has_been_answered = False

    def enter(self, phase: ConnectionPhase) -> None:
        """Change to `phase` now."""
        self.phase, self._phase_since = phase, self._clock()

    def request_completed(self) -> None:
        """Record that a whole request has arrived."""
        self.enter(ConnectionPhase.ANSWERING)
        self.without_request_since = self._phase_since
        self._deadline = self._phase_since + self._limits.request_timeout

    def request_answered(self) -> None:
        """Record that the request was answered. If it was never complete, the phase stays unchanged."""
        if self.phase is ConnectionPhase.ANSWERING:
            self.enter(ConnectionPhase.IDLE)
            self._has_been_answered = True

    def is_overdue(self, now: float) -> bool:
        """Whether the deadline has passed. Between two requests, aiohttp closes a connection that idles."""
        if now < self._deadline:
            return False
        if self._transport is None or not self.is_between_requests():
            return True
        return self._transport.get_write_buffer_size() > 0

    def is_between_requests(self) -> bool:
        """Whether the last request was answered and the next has not begun."""
        return self.phase is ConnectionPhase.IDLE and self._has_been_answered

    def is_evictable(self, now: float) -> bool:
        """Whether another connection may take its slot, unless it is being answered. An unread request keeps it."""
        if now - self._phase_since < self._limits.evictable_after:
            return False
        return self.phase is not ConnectionPhase.IDLE or not self.unread()

    def unread(self) -> bytes | None:
        """Return the first unread byte in the socket; b"" at the end of the stream, None if no data is there."""
        try:
            return self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """Close at once, in any phase."""
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()
        else:
            self.sock.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin HTTP. If TLS is used, its handshake is complete."""
        self._transport = cast("asyncio.Transport", transport)
        # asyncio's TLS transport has this method but does not document it. The default reads 256 KiB ahead.
        limit = getattr(transport, "set_read_buffer_limits", None)
        if limit is not None:
            limit(high=READ_AHEAD)
        self.handler = self._owner.make_handler()
        self.enter(ConnectionPhase.IDLE)
        self._deadline = self._phase_since + self._limits.idle_timeout
        self._owner.opened(self)
        self.handler.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Pass on one request at a time. Close if the next comes before the answer: no legitimate client does so."""
        if self.phase is ConnectionPhase.ANSWERING:
            self.close()
            return
        if self.phase is ConnectionPhase.IDLE:
            self.enter(ConnectionPhase.RECEIVING)
            self._deadline = self._phase_since + self._limits.request_timeout
        if self.handler is not None:
            self.handler.data_received(data)

    def eof_received(self) -> None:
        """Pass the call to the handler."""
        if self.handler is not None:
            self.handler.eof_received()

    def pause_writing(self) -> None:
        """Pass the call to the handler."""
        if self.handler is not None:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Pass the call to the handler."""
        if self.handler is not None:
            self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the slot, and pass the call to the handler."""
        self._owner.lost(self)
        if self.handler is not None:
            self.handler.connection_lost(exc)


class WaitingPeers:
    """Peers without a slot, by address: those that have sent nothing, and a queue of the others."""

    def __init__(self) -> None:
        """Start empty."""
        self._silent: dict[str, dict[PeerConnection, None]] = {}
        self._queues: dict[str, deque[PeerConnection]] = {}

    def __iter__(self) -> Iterator[PeerConnection]:
        """Yield all waiting peers."""
        for peers in (*self._silent.values(), *self._queues.values()):
            yield from peers

    def __len__(self) -> int:
        """Return the number of waiting peers."""
        return sum(map(len, (*self._silent.values(), *self._queues.values())))

    def add(self, connection: PeerConnection) -> None:
        """Keep a connection until its first byte."""
        self._silent.setdefault(connection.address, {})[connection] = None

    def enqueue(self, connection: PeerConnection) -> None:
        """Put a connection that sent its first byte into its address's queue."""
        self._forget_silent(connection)
        connection.enter(ConnectionPhase.QUEUED)
        self._queues.setdefault(connection.address, deque()).append(connection)

    def remove(self, connection: PeerConnection) -> None:
        """Remove a connection that no longer waits."""
        self._forget_silent(connection)
        queue = self._queues.get(connection.address)
        if queue is not None and connection in queue:
            queue.remove(connection)
            if not queue:
                del self._queues[connection.address]

    def _forget_silent(self, connection: PeerConnection) -> None:
        peers = self._silent.get(connection.address, {})
        peers.pop(connection, None)
        if not peers:
            self._silent.pop(connection.address, None)

    def next_of_each_address(self) -> list[PeerConnection]:
        """Return the next connection of each address, beginning with the address that was served least recently.

        The next connection is the newest. Evicted peers connect again and again, and a peer that connects once must not
        wait behind all of them.
        """
        return [queue[-1] for queue in self._queues.values()]

    def take(self, connection: PeerConnection) -> None:
        """Remove a connection that is the next of its address, and put the address behind all others."""
        queue = self._queues.pop(connection.address)
        queue.pop()
        if queue:
            self._queues[connection.address] = queue

    def first_to_evict(self) -> PeerConnection:
        """Return the connection to evict if too many wait: the oldest of the address with most that have sent nothing.

        If these are few, of the longest queue. An API server sends its first byte at once, and then waits in a queue.
        If it gets no processor for a moment, it has sent nothing, but an attacker's address has more such connections.
        """
        if sum(map(len, self._silent.values())) > SILENT_SHARE * len(self):
            most = max(self._silent.values(), key=len)
            return next(iter(most))
        return max(self._queues.values(), key=len)[0]
