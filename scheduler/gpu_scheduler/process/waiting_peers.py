"""Peers that have a connection and no place yet: who is next, and who gives way where too many wait."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gpu_scheduler.process.peer_connection import PeerConnection, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator


class Waiting:
    """Peers that are not served yet: those that have said nothing, and a queue for each address of those that have."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._silent: dict[PeerConnection, None] = {}
        self._queues: dict[str, deque[PeerConnection]] = {}

    def __iter__(self) -> Iterator[PeerConnection]:
        """All of them."""
        yield from self._silent
        for queue in self._queues.values():
            yield from queue

    def __len__(self) -> int:
        """How many."""
        return len(self._silent) + sum(len(queue) for queue in self._queues.values())

    def add(self, connection: PeerConnection) -> None:
        """Keep it until it says something."""
        self._silent[connection] = None

    def enqueue(self, connection: PeerConnection) -> None:
        """It has said something: it waits for its address's turn."""
        self._silent.pop(connection, None)
        connection.enter(Phase.QUEUED)
        self._queues.setdefault(connection.address, deque()).append(connection)

    def remove(self, connection: PeerConnection) -> None:
        """It waits no more."""
        self._silent.pop(connection, None)
        queue = self._queues.get(connection.address)
        if queue is not None and connection in queue:
            queue.remove(connection)
            if not queue:
                del self._queues[connection.address]

    def turns(self) -> list[PeerConnection]:
        """The next of each address; the address that was taken least recently stands first.

        It is the one that came last: a peer that is sent away again and again comes again and again, and who comes
        but once must not wait behind all of these.
        """
        return [queue[-1] for queue in self._queues.values()]

    def take(self, connection: PeerConnection) -> None:
        """Remove the next of its address, which is the last to have another turn."""
        queue = self._queues.pop(connection.address)
        queue.pop()
        if queue:
            self._queues[connection.address] = queue

    def crowding(self) -> PeerConnection:
        """Who gives way when too many wait: the oldest of the silent, or of the longest queue, whichever are more."""
        longest = max(self._queues.values(), key=len, default=deque[PeerConnection]())
        return longest[0] if len(longest) > len(self._silent) else next(iter(self._silent))
