"""Finds the programs under test, and runs processes that end with their parent."""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.waiting import limit

if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-scheduler"
# Below the ports of outgoing connections (from 32768 on) and below Kubernetes' node ports.
PORTS: Final = range(20_000, 30_000)
OWN_PORTS: Final = 100
"""Ports that are reserved for one test run. Parallel runs choose a port seconds before they use it."""


def program(name: str) -> Path:
    """Return the path of the newest `name` that `make programs` made or fetched; FileNotFoundError without one."""
    found = sorted((CACHE / "bin").glob(f"*/{name}"), key=lambda path: _version(path.parent.name))
    if not found:
        raise FileNotFoundError(
            f"cannot find {name} under {CACHE / 'bin'}: build or fetch it first (example: make programs)"
        )
    return found[-1]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


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


_claims: list[socket.socket] = []


def free_port() -> int:
    """Return a port on which no process listens, and which no parallel test run uses."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", next(_ports())))
            return int(probe.getsockname()[1])


class Process:
    """A program under test, with its output in a file."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        """Start the process."""
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env)
        self.pid = self._process.pid

    def output(self) -> str:
        """Return its standard output and standard error so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def alive(self) -> bool:
        """Return whether it is running."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 10.0) -> int:
        """Wait for its end, at most `limit(seconds)`. Return its exit code."""
        return self._process.wait(limit(seconds))

    def stop(self, seconds: float = 10.0) -> int:
        """End it with SIGTERM, and after `limit(seconds)` with SIGKILL. Return its exit code."""
        if self.alive():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(limit(seconds))
            self._process.kill()
        return self._process.wait()
