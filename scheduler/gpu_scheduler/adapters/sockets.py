"""Sockets whose packets do not outlive their sender's right to send them.

A network that heals would still deliver what was given up long ago, when another replica may lead already: closing a
connection does not take back what the kernel has yet to send.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohappyeyeballs import AddrInfoType

UNACKNOWLEDGED: Final = 4.0
"""Seconds after which the kernel drops what nobody has acknowledged, with its connection: shorter than a lease outlives
the time in which its holder binds."""


def forgetful(address: AddrInfoType) -> socket.socket:
    """Make a socket that forgets what nobody acknowledges."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    # Linux has it, where schedulers run; the command line runs on other systems too.
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNACKNOWLEDGED * 1000))
    return made
