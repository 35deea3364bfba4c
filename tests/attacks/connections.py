"""Reads /proc/net/tcp and /proc/net/tcp6: the connections that a kernel has, whatever their clients believe."""

from __future__ import annotations

import socket
import sys
from typing import Final

_ESTABLISHED: Final = "01"


def established(table: str, port: int) -> list[str]:
    """Return the peers of the connections that are established with this local port, as the table writes addresses."""
    rows = (line.split() for line in table.splitlines())
    return [peer for _, local, peer, state, *_ in rows if local.endswith(f":{port:04X}") and state == _ESTABLISHED]


def written(address: str) -> str:
    """Return an IPv4 address as the table writes it: in hexadecimal digits, in the byte order of the host."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}"
