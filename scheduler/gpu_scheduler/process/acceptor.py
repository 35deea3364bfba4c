"""Accepts connections and limits their number, in total and per address, so that no peer can block the others.

A peer that has sent nothing costs a socket only. Its first byte moves it into its address's queue; addresses are served
in turn. When no slot is free, a connection of the address that has most without a complete request is closed: the one
that has gone longest so. Those between two requests are closed last.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from asyncio.sslproto import SSLProtocol
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from gpu_scheduler.process.peer_connection import READ_AHEAD, ConnectionPhase, Limits, PeerConnection, WaitingPeers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable

    from aiohttp.web_protocol import RequestHandler

BACKLOG: Final = 1024
"""Connections that the kernel queues while the event loop is busy; the kernel's own limit applies too."""
ACCEPTS_A_TURN: Final = 32
"""Most connections accepted in one iteration of the event loop."""
ADMISSIONS_A_TURN: Final = 2
"""Most handshakes begun in one iteration of the event loop: 1 to 2 ms each."""
RETRY_AFTER: Final = 0.05
"""Seconds until the queue is tried again: by then another connection may be evictable."""
SWEEPS: Final = 20
"""How often deadlines are checked within one request timeout."""
SHUTDOWN_TIMEOUT: Final = 1.0
"""Seconds that a peer has to confirm the end of TLS."""
LOG_EVERY: Final = 10.0
"""Seconds between two log lines about evicted peers."""

log = logging.getLogger(__name__)

# The sockets of both servers together stay below 1,024 descriptors, the limit in some container runtimes.
HEALTH_LIMITS: Final = Limits(served=128, served_per_address=64, handshakes=128, waiting=256)
# Memory sets these limits: a connection takes up to 0.2 MB. An API server keeps 25 idle connections to a webhook.
WEBHOOK_LIMITS: Final = Limits(served=128, served_per_address=64, handshakes=16, waiting=384)


class Acceptor:
    """Accepts connections on one socket, and passes those that get a slot to aiohttp."""

    def __init__(
        self,
        listening: socket.socket,
        make_handler: Callable[[], RequestHandler],
        limits: Limits,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Start accepting at once, in the running loop; `stop` closes the socket."""
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self.make_handler = make_handler
        self._limits = limits
        self._tls = tls
        self._waiting = WaitingPeers()
        self._served: dict[PeerConnection, None] = {}
        self._of_address: Counter[str] = Counter()
        self._by_handler: dict[object, PeerConnection] = {}
        self._admitting = False
        self._retry: asyncio.TimerHandle | None = None
        self._evicted: Counter[str] = Counter()
        self._logged_at = float("-inf")
        if tls is not None:
            # The default is 256 KiB, of the 0.3 MB that a connection takes. asyncio documents no way to change it.
            SSLProtocol.max_size = READ_AHEAD
        # Accepted sockets inherit it. Unread bytes of a socket count as memory of the container.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_AHEAD)
        listening.setblocking(False)
        self._loop.add_reader(listening, self._accept)
        self._sweeper = self._loop.call_later(self._limits.request_timeout / SWEEPS, self._sweep)

    def connection_of(self, handler: object) -> PeerConnection:
        """Return the connection of one of aiohttp's handlers."""
        return self._by_handler[handler]

    def stop(self) -> None:
        """Stop accepting, and close every connection without a complete request. Complete requests are answered."""
        self._loop.remove_reader(self._listening)
        self._listening.close()
        self._sweeper.cancel()
        if self._retry is not None:
            self._retry.cancel()
        unfinished = [
            each for each in self._served if each.phase in {ConnectionPhase.HANDSHAKE, ConnectionPhase.RECEIVING}
        ]
        for connection in [*self._waiting, *unfinished]:
            self._close(connection)

    def opened(self, connection: PeerConnection) -> None:
        """Register the handler of a connection on which HTTP begins."""
        self._by_handler[connection.handler] = connection

    def lost(self, connection: PeerConnection) -> None:
        """Forget a closed connection and free its slot."""
        self._by_handler.pop(connection.handler, None)
        if connection in self._served:
            self._free(connection)
            self._admit_soon()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, peer = self._listening.accept()
            except OSError as error:
                # Usually no more connections wait. If descriptors run out, evict one: otherwise the loop would spin.
                if error.errno in {errno.EMFILE, errno.ENFILE} and self._waiting:
                    self._evict(self._waiting.first_to_evict())
                break
            sock.setblocking(False)
            connection = PeerConnection(sock, str(peer[0]), self, self._limits)
            if len(self._waiting) >= self._limits.waiting:
                self._evict(self._waiting.first_to_evict())
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
        """Serve waiting peers, a few in each iteration of the loop, because the start of a handshake is expensive."""
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
        if self._waiting.next_of_each_address() and self._retry is None:
            self._retry = self._loop.call_later(RETRY_AFTER, self._admit_again)

    def _admit_again(self) -> None:
        self._retry = None
        self._admit()

    def _next(self, now: float) -> PeerConnection | None:
        """Return the peer to serve next, or None. If no slot is free, close another connection for it if possible."""
        limits, peers = self._limits, None
        handshakes = [each for each in self._served if each.phase is ConnectionPhase.HANDSHAKE]
        if len(handshakes) >= limits.handshakes:
            peers = handshakes
        elif len(self._served) >= limits.served:
            peers = list(self._served)
        oldest = None if peers is None else self._first_to_evict(peers, now)
        if peers is not None and oldest is None:
            return None
        for connection in self._waiting.next_of_each_address():
            if self._of_address[connection.address] >= limits.served_per_address:
                own = self._first_to_evict([each for each in self._served if each.address == connection.address], now)
                if own is None:
                    continue
                self._evict(own)
                if peers is not handshakes or own in handshakes:
                    return connection
            if oldest is not None:
                self._evict(oldest)
            return connection
        return None

    def _first_to_evict(self, among: list[PeerConnection], now: float) -> PeerConnection | None:
        """Return the connection that has gone longest without a complete request; None if none may be closed yet.

        It is one of the address that has most of them, whatever they wait for. Connections between two requests are
        evicted only if there are no others. An API server that gets no processor for a second would lose its own to
        peers that never send a request, and fail each create that it sends on a closed one.
        """
        candidates = _without_request(among)
        of_address = Counter(each.address for each in _without_request(self._served))
        most = max((of_address[each.address] for each in candidates), default=0)
        evictable = (each for each in candidates if of_address[each.address] == most and each.is_evictable(now))
        return min(evictable, key=lambda each: each.without_request_since, default=None)

    def _serve(self, connection: PeerConnection) -> None:
        self._served[connection] = None
        self._of_address[connection.address] += 1
        connection.enter(ConnectionPhase.HANDSHAKE)
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
        """Free the slot if the handshake failed or was cancelled. The cause concerns only the peer: do not log it."""
        if task.cancelled() or task.exception():
            connection.sock.close()
            self.lost(connection)

    def _sweep(self) -> None:
        """Close overdue connections, and log all evictions at most every LOG_EVERY seconds."""
        now = self._loop.time()
        for connection in [each for each in (*self._waiting, *self._served) if each.is_overdue(now)]:
            self._evict(connection)
        if self._evicted and now - self._logged_at >= LOG_EVERY:
            address, most = self._evicted.most_common(1)[0]
            log.warning(
                "Closing connections that send no complete request",
                extra={"connections": self._evicted.total(), "most_of": address, "of_that_address": most},
            )
            self._evicted.clear()
            self._logged_at = now
        self._sweeper = self._loop.call_later(self._limits.request_timeout / SWEEPS, self._sweep)

    def _evict(self, connection: PeerConnection) -> None:
        self._evicted[connection.address] += 1
        self._close(connection)

    def _close(self, connection: PeerConnection) -> None:
        """Close a connection. Its slot is free at once; asyncio reports its end later."""
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


def _without_request(among: Iterable[PeerConnection]) -> list[PeerConnection]:
    """Return the connections that have sent no complete request, or, if all have, those that wait for the next."""
    served = [each for each in among if each.phase is not ConnectionPhase.ANSWERING]
    return [each for each in served if not each.is_between_requests()] or served
