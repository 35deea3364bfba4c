"""One connection that a peer opened: what it waits for, until when it may, and whether it may be closed for another.

It stands between asyncio's transport and aiohttp's handler, which bounds neither how many connections there are nor how
long a request takes to arrive.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    from aiohttp.web_protocol import RequestHandler

READ_AHEAD: Final = 32 * 1024
"""Bytes that one connection may have read ahead, under TLS and again under HTTP; most reviews are smaller."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections a server has at once, and how long one may take."""

    served: int
    served_per_address: int
    handshakes: int
    # Those that have said nothing yet, or have no place: a socket each.
    waiting: int
    # Seconds from accept, later from a request's first byte, until the request is complete; then until it is answered.
    request_timeout: float = 10.0
    # Seconds for each step until the place may go to another: a hundred times what an API server needs.
    evictable_after: float = 1.0


class Phase(Enum):
    """What a connection waits for."""

    SILENT = auto()  # its first byte
    QUEUED = auto()  # a place among those that are served
    HANDSHAKE = auto()  # the end of the TLS handshake
    IDLE = auto()  # the first byte of a request
    RECEIVING = auto()  # the rest of the request
    ANSWERING = auto()  # the answer


class Owner(Protocol):
    """Who keeps count of connections."""

    def make_handler(self) -> RequestHandler:
        """Make aiohttp's half of a connection."""

    def opened(self, connection: PeerConnection) -> None:
        """HTTP begins."""

    def lost(self, connection: PeerConnection) -> None:
        """The connection is gone."""


class PeerConnection(asyncio.Protocol):
    """A connection from accept on; `sock` is used directly until a transport takes it."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        owner: Owner,
        limits: Limits,
    ) -> None:
        """`address` is the peer's, without its port."""
        self._clock = asyncio.get_running_loop().time
        self.address = address
        self.phase = Phase.SILENT
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

    def enter(self, phase: Phase) -> None:
        """Wait for something else from now on."""
        self.phase, self._phase_since = phase, self._clock()

    def request_completed(self) -> None:
        """All of a request has arrived."""
        self.enter(Phase.ANSWERING)
        self.without_request_since = self._phase_since
        self._deadline = self._phase_since + self._limits.request_timeout

    def request_answered(self) -> None:
        """Nothing is owed to the peer; a request that never was complete stays so."""
        if self.phase is Phase.ANSWERING:
            self.enter(Phase.IDLE)
            self._has_been_answered = True

    def is_overdue(self, now: float) -> bool:
        """Whether it took too long. Idle between two requests is no fault, as long as the last answer was read."""
        if now < self._deadline:
            return False
        kept = self.phase is Phase.IDLE and self._has_been_answered
        return not (kept and self._transport is not None and self._transport.get_write_buffer_size() == 0)

    def is_evictable(self, now: float) -> bool:
        """Whether its place may go to another. A request that is here already, unread, is not made to fail."""
        if self.phase is Phase.ANSWERING or now - self._phase_since < self._limits.evictable_after:
            return False
        return self.phase is not Phase.IDLE or not self.unread()

    def unread(self) -> bytes | None:
        """The first byte that waits in the socket; empty at its end, None when there is nothing."""
        try:
            return self.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def close(self) -> None:
        """Close at once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()
        else:
            self.sock.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin HTTP: TLS, where there is any, is agreed on."""
        self._transport = cast("asyncio.Transport", transport)
        # asyncio's TLS transport has it, its documentation does not; 256 KiB are read ahead otherwise.
        limit = getattr(transport, "set_read_buffer_limits", None)
        if limit is not None:
            limit(high=READ_AHEAD)
        self.handler = self._owner.make_handler()
        self.enter(Phase.IDLE)
        self._owner.opened(self)
        self.handler.connection_made(self._transport)

    def data_received(self, data: bytes) -> None:
        """Hand on what belongs to one request at a time: nobody who asks us sends the next before the answer."""
        if self.phase is Phase.ANSWERING:
            self.close()
            return
        if self.phase is Phase.IDLE:
            self.enter(Phase.RECEIVING)
            if self._has_been_answered:
                self._deadline = self._phase_since + self._limits.request_timeout
        if self.handler is not None:
            self.handler.data_received(data)

    def eof_received(self) -> None:
        """Hand on."""
        if self.handler is not None:
            self.handler.eof_received()

    def pause_writing(self) -> None:
        """Hand on."""
        if self.handler is not None:
            self.handler.pause_writing()

    def resume_writing(self) -> None:
        """Hand on."""
        if self.handler is not None:
            self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on, and free the place."""
        self._owner.lost(self)
        if self.handler is not None:
            self.handler.connection_lost(exc)
