"""A request's body that asks the fence when it is about to be written, which may be long after the request was made.

Until then a connection may have to be opened, and the process may have been stopped and gone on: an early look proves
nothing. Headers leave together with the body, so where the fence is shut nothing at all was sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from gpu_scheduler.adapters.sockets import socket_of

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from gpu_scheduler.adapters.sockets import GuardedSocket
    from gpu_scheduler.ports import Fence


class FenceShutError(Exception):
    """Nothing was sent."""


class FencedBody(aiohttp.BytesPayload):
    """These bytes, while the fence is open."""

    def __init__(self, body: bytes, fence: Fence) -> None:
        """The fence is asked right before the write and at no other time."""
        super().__init__(body)
        self._fence = fence
        self._socket: GuardedSocket | None = None
        self._left = False
        self.held_back = False
        """The fence was shut before anything of it was sent."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write, or end the request. From here on the socket asks too: also what waits in a buffer may be too late."""
        if not self._fence.may_bind():
            self.held_back = True
            raise FenceShutError
        self._socket = socket_of(getattr(writer, "transport", None))
        if self._socket is not None:
            self._socket.guard = self._may_leave
        await super().write_with_length(writer, content_length)

    def answered(self) -> None:
        """All was sent: the connection is anybody's again. Without an answer it is never used again."""
        if self._socket is not None:
            self._socket.guard = None

    def _may_leave(self) -> bool:
        """Also asked when a connection that got no answer says good-bye, which tells nothing of what was sent."""
        if not self._fence.may_bind():
            self.held_back = not self._left
            return False
        self._left = True
        return True
