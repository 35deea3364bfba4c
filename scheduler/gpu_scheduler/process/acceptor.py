"""Which peers are served: so many in all, so many of each address, and nobody who is idle keeps another out.

A peer that says nothing costs a socket. Its first byte brings it into a queue, whose addresses take turns. When no
place is free, the connection that has gone longest without a complete request is closed.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from asyncio.sslproto import SSLProtocol
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.process.peer_connection import READ_AHEAD, Limits, PeerConnection, Phase
from gpu_scheduler.process.waiting_peers import Waiting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from aiohttp.web_protocol import RequestHandler

BACKLOG: Final = 1024
"""Connections that the kernel keeps for us while the loop is busy; the kernel's own limit holds too."""
ACCEPTS_A_TURN: Final = 32
"""Connections accepted before others get the loop again."""
ADMISSIONS_A_TURN: Final = 2
"""Handshakes that begin before others get the loop again: 1 to 2 ms each."""
LOOK_AGAIN: Final = 0.05
"""Seconds until peers in the queue are looked at again: by then another connection may give way."""
SWEEPS: Final = 20
"""Looks at deadlines within the time that a request has."""
SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds for a peer to agree to the end of TLS."""
TOLD_EVERY: Final = 10.0
"""Seconds between two log lines about peers that were sent away."""

log = get_logger(__name__)

# All sockets of both fit under 1,024 descriptors, which is all that some container runtimes give.
HEALTH_LIMITS: Final = Limits(served=128, served_per_address=64, handshakes=128, waiting=256)
# Memory decides: one costs up to 0.2 MB. An API server keeps 25 idle connections to a webhook.
WEBHOOK_LIMITS: Final = Limits(served=128, served_per_address=64, handshakes=16, waiting=384)


class Acceptor:
    """Accepts connections on one socket, and hands those that are served to aiohttp."""

    def __init__(
        self,
        listening: socket.socket,
        make_handler: Callable[[], RequestHandler],
        limits: Limits,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Begin at once, in the running loop; `stop` closes the socket."""
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self.make_handler = make_handler
        self._limits = limits
        self._tls = tls
        self._waiting = Waiting()
        self._served: dict[PeerConnection, None] = {}
        self._of_address: Counter[str] = Counter()
        self._by_handler: dict[object, PeerConnection] = {}
        self._admitting = False
        self._look_again: asyncio.TimerHandle | None = None
        self._sent_away: Counter[str] = Counter()
        self._told_at = float("-inf")
        if tls is not None:
            # 256 KiB otherwise, of the 0.3 MB that a connection costs. Nothing documented makes it smaller.
            SSLProtocol.max_size = READ_AHEAD
        # Inherited by what is accepted. What a socket holds unread counts as memory of the container.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_AHEAD)
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)
        self._sweeper = self._loop.call_later(self._limits.request_timeout / SWEEPS, self._sweep)

    def connection_of(self, handler: object) -> PeerConnection:
        """The connection that one of aiohttp's handlers answers."""
        return self._by_handler[handler]

    def stop(self) -> None:
        """Accept nobody any more, and close every connection that has no complete request to be answered."""
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._sweeper.cancel()
        if self._look_again is not None:
            self._look_again.cancel()
        unfinished = [each for each in self._served if each.phase in {Phase.HANDSHAKE, Phase.RECEIVING}]
        for connection in [*self._waiting, *unfinished]:
            self._close(connection)

    def opened(self, connection: PeerConnection) -> None:
        """HTTP begins on a connection."""
        self._by_handler[connection.handler] = connection

    def lost(self, connection: PeerConnection) -> None:
        """A connection is gone; its place is free."""
        self._by_handler.pop(connection.handler, None)
        if connection in self._served:
            self._free(connection)
            self._admit_soon()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, peer = self._listening.accept()
            except OSError as error:
                # Mostly nobody else is there. Where descriptors run out, the loop would never rest.
                if error.errno in {errno.EMFILE, errno.ENFILE} and self._waiting:
                    self._send_away(self._waiting.crowding())
                break
            sock.setblocking(False)
            connection = PeerConnection(sock, str(peer[0]), self, self._limits)
            if len(self._waiting) >= self._limits.waiting:
                self._send_away(self._waiting.crowding())
            if connection.unread():
                self._waiting.enqueue(connection)
            else:
                self._waiting.add(connection)
                self._loop.add_reader(sock, self._first_byte, connection)
        self._admit_soon()

    def _first_byte(self, connection: PeerConnection) -> None:
        self._loop.remove_reader(connection.sock)
        if connection.unread():
            self._waiting.enqueue(connection)
            self._admit_soon()
        else:
            self._close(connection)

    def _admit_soon(self) -> None:
        if not self._admitting:
            self._admitting = True
            self._loop.call_soon(self._admit)

    def _admit(self) -> None:
        """Serve who waits, a few in each turn of the loop: the begin of a handshake is its costly part."""
        self._admitting = False
        now = self._loop.time()
        for _ in range(ADMISSIONS_A_TURN):
            connection = self._next(now)
            if connection is None:
                break
            self._waiting.take(connection)
            self._serve(connection)
        else:
            self._admit_soon()
            return
        if self._waiting.turns() and self._look_again is None:
            self._look_again = self._loop.call_later(LOOK_AGAIN, self._look)

    def _look(self) -> None:
        self._look_again = None
        self._admit()

    def _next(self, now: float) -> PeerConnection | None:
        """Who is served next; where no place is free, another connection is closed for it, or nobody is next."""
        limits, peers = self._limits, None
        handshakes = [each for each in self._served if each.phase is Phase.HANDSHAKE]
        if len(handshakes) >= limits.handshakes:
            peers = handshakes
        elif len(self._served) >= limits.served:
            peers = list(self._served)
        oldest = None if peers is None else _oldest(peers, now)
        if peers is not None and oldest is None:
            return None
        for connection in self._waiting.turns():
            if self._of_address[connection.address] >= limits.served_per_address:
                own = _oldest((each for each in self._served if each.address == connection.address), now)
                if own is None:
                    continue
                self._send_away(own)
                if peers is not handshakes or own in handshakes:
                    return connection
            if oldest is not None:
                self._send_away(oldest)
            return connection
        return None

    def _serve(self, connection: PeerConnection) -> None:
        self._served[connection] = None
        self._of_address[connection.address] += 1
        connection.enter(Phase.HANDSHAKE)
        connection.task = self._loop.create_task(self._connect(connection))
        connection.task.add_done_callback(partial(self._connected, connection))

    async def _connect(self, connection: PeerConnection) -> None:
        encrypted = self._tls is not None
        await self._loop.connect_accepted_socket(
            lambda: connection,
            connection.sock,
            ssl=self._tls,
            ssl_handshake_timeout=self._limits.request_timeout if encrypted else None,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT if encrypted else None,
        )

    def _connected(self, connection: PeerConnection, task: asyncio.Task[None]) -> None:
        """A handshake that failed, or was cancelled, frees the place; why it did is the peer's affair."""
        if task.cancelled() or task.exception():
            connection.sock.close()
            self.lost(connection)

    def _sweep(self) -> None:
        """Close what is overdue."""
        now = self._loop.time()
        for connection in [each for each in (*self._waiting, *self._served) if each.is_overdue(now)]:
            self._send_away(connection)
        if self._sent_away and now - self._told_at >= TOLD_EVERY:
            address, most = self._sent_away.most_common(1)[0]
            log.warning(
                "Closing connections that send no complete request",
                connections=self._sent_away.total(),
                most_of=address,
                of_that_address=most,
            )
            self._sent_away.clear()
            self._told_at = now
        self._sweeper = self._loop.call_later(self._limits.request_timeout / SWEEPS, self._sweep)

    def _send_away(self, connection: PeerConnection) -> None:
        self._sent_away[connection.address] += 1
        self._close(connection)

    def _close(self, connection: PeerConnection) -> None:
        """Its place is free at once; asyncio tells of its end later."""
        if connection in self._served:
            self._free(connection)
        else:
            self._loop.remove_reader(connection.sock)
            self._waiting.remove(connection)
        connection.close()

    def _free(self, connection: PeerConnection) -> None:
        del self._served[connection]
        self._of_address[connection.address] -= 1
        if not self._of_address[connection.address]:
            del self._of_address[connection.address]


def _oldest(among: Iterable[PeerConnection], now: float) -> PeerConnection | None:
    """The connection that has gone longest without a complete request; None when none may be closed yet."""
    evictable = (each for each in among if each.is_evictable(now))
    return min(evictable, key=lambda each: each.without_request_since, default=None)
