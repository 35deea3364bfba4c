"""Ports for programs under test."""

from __future__ import annotations

import itertools
import socket
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Below the ports of outgoing connections (from 32768 on) and below Kubernetes' node ports.
PORTS: Final = range(20_000, 30_000)
OWN_PORTS: Final = 100
"""Ports that are reserved for one test run. Parallel runs choose a port seconds before they use it."""

_claims: list[socket.socket] = []


def free_port() -> int:
    """Return a port on which no process listens, and which no parallel test run uses."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", next(_ports())))
            return int(probe.getsockname()[1])


@cache
def _ports() -> Iterator[int]:
    """Return an endless cycle of the ports of this run. It binds the first one, to reserve all for this run."""
    for first in PORTS[::OWN_PORTS]:
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
        else:
            _claims.append(claim)
            return itertools.cycle(range(first + 1, first + OWN_PORTS))
    raise OSError(f"cannot find {OWN_PORTS} free ports in {PORTS}: end the tests that hold them")
