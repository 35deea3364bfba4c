"""The driver's side of the observer: starts it, hears how far it is, and takes what it has seen."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from bench.gated_process import ROOT
from bench.watcher import Asked, Progress, Seen
from tests.integration.control_plane import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.control_plane import ControlPlane


class WatcherProcess:
    """An observer at work."""

    def __init__(self, plane: ControlPlane, *, binds: int, events: int, tell: Callable[[Progress], None]) -> None:
        """Return when it watches; `tell` hears once a second how far it is, from another thread."""
        asked = Asked(plane.port, str(plane.ca), ADMIN_TOKEN, binds, events)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.watcher", msgspec.json.encode(asked).decode()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._tell = tell
        self._last = b""
        if self._read() != b"ready\n":
            raise OSError("cannot observe: the observer ended; its words are above")
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> bool:
        """Wait until it has seen everything, at most so long; whether it has."""
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def end(self) -> Seen:
        """Have what it has seen, whether or not that is all."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._reader.join(10)
        self.stop()
        return msgspec.json.decode(self._last, type=Seen)

    def stop(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()

    def _read(self) -> bytes:
        return self._process.stdout.readline() if self._process.stdout is not None else b""

    def _listen(self) -> None:
        while line := self._read():
            self._last = line
            if line.startswith(b'{"binds"'):
                self._tell(msgspec.json.decode(line, type=Progress))
