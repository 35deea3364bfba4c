"""Sends SIGTERM to a process and checks that it ends in time."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.integration.faults.proxy_faults import Hang
from tests.integration.faults.replicas import note
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command

LIMIT: Final = 5.0
"""Seconds within which a program must end after SIGTERM."""
NO_ANSWER: Final = Hang(delivered=False)


def stop(command: Command) -> None:
    """Send SIGTERM; AssertionError unless the process ends with status 0 in time."""
    began = time.monotonic()
    command.process.send(signal.SIGTERM)
    code = command.process.wait(2 * LIMIT)
    took = time.monotonic() - began
    note(f"{command.process.name} ended {took:.2f} s after SIGTERM")
    assert code == 0
    assert took <= limit(LIMIT)


@contextmanager
def half_asked(command: Command) -> Iterator[None]:
    """Keep an unfinished request open on the HTTP port of the process."""
    with socket.create_connection(("127.0.0.1", command.port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        yield
