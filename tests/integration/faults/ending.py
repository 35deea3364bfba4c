"""How a process is told to stop, and what may hold it up."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.integration.faults.acts import Hang
from tests.integration.faults.replicas import note
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command

LIMIT: Final = 5.0
"""Seconds that a stop may take."""
NO_ANSWER: Final = Hang(delivered=False)


def stop(command: Command) -> None:
    """Tell it to stop; that must end in good order and in time."""
    began = time.monotonic()
    command.process.send(signal.SIGTERM)
    code = command.process.wait(2 * LIMIT)
    took = time.monotonic() - began
    note(f"{command.process.name} ended {took:.2f} s after SIGTERM")
    assert code == 0
    assert took <= limit(LIMIT)


@contextmanager
def half_asked(command: Command) -> Iterator[None]:
    """Let somebody begin to ask its HTTP port and never end."""
    with socket.create_connection(("127.0.0.1", command.port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        yield
