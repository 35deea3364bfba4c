"""Sockets whose packets do not outlive their sender's right to send them.

A network that heals would still deliver what was given up long ago, when another replica may lead already: closing a
connection does not take back what the kernel has yet to send. And a process may be stopped, or its machine paused,
between any two steps: what only the leader may send asks whether it leads in the very call that sends.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from asyncio import BaseTransport
    from collections.abc import Callable

    from aiohttp.connector import AddrInfoType

UNACKNOWLEDGED: Final = 4.0
"""Seconds after which the kernel drops what nobody has acknowledged, with its connection: shorter than a lease outlives
the time in which its holder binds."""


class HeldBackError(ConnectionError):
    """The guard kept a packet back; the connection is of no use any more."""


class GuardedSocket(socket.socket):
    """Asks `guard`, where there is one, right before the kernel is called."""

    guard: Callable[[], bool] | None = None

    def send(self, *given: object) -> int:
        """See socket.send; HeldBackError when the guard says no."""
        self._ask()
        return super().send(*given)  # type: ignore[arg-type]  # as it was called

    def sendmsg(self, *given: object) -> int:
        """See socket.sendmsg, which asyncio calls from Python 3.12 on."""
        self._ask()
        return super().sendmsg(*given)  # type: ignore[arg-type]  # as it was called

    def _ask(self) -> None:
        if self.guard is not None and not self.guard():
            raise HeldBackError("this process may not send that any more")


# asyncio shows of its sockets little more than their number.
_made: WeakValueDictionary[int, GuardedSocket] = WeakValueDictionary()


def forgetful(address: AddrInfoType) -> GuardedSocket:
    """Make a socket that forgets what nobody acknowledges."""
    family, kind, protocol, _, _ = address
    made = GuardedSocket(family, kind, protocol)
    _made[made.fileno()] = made
    # Linux has it, where schedulers run; the command line runs on other systems too.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNACKNOWLEDGED * 1000))
    return made


def socket_of(transport: BaseTransport | None) -> GuardedSocket | None:
    """The socket that a connection sends through; None where it is closed, or not one of ours."""
    shown = None if transport is None else transport.get_extra_info("socket")
    return None if shown is None else _made.get(shown.fileno())
