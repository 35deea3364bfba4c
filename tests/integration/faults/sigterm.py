"""Sends SIGTERM to a process and checks that it ends in order."""

from __future__ import annotations

import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.integration.faults.proxy_faults import Hang

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.command import Command

NO_ANSWER: Final = Hang(delivered=False)


def stop(command: Command) -> None:
    """Send SIGTERM; AssertionError unless the process ends with status 0.

    That a stop takes five seconds at most is tested in virtual time: scheduler/unit_tests/process/test_stops.py.
    """
    command.process.send(signal.SIGTERM)
    assert command.process.wait(60) == 0


@contextmanager
def half_asked(command: Command) -> Iterator[None]:
    """Keep an unfinished request open on the HTTP port of the process."""
    with socket.create_connection(("127.0.0.1", command.port)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        yield
