"""Starts the observer, follows its progress, and collects its result."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from bench.gated_process import ROOT
from bench.watcher import Progress, Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.watcher import WatchRequest


class WatcherProcess:
    """A running observer."""

    def __init__(self, asked: WatchRequest, log: Callable[[Progress], None]) -> None:
        """Return when it watches; `log` receives its progress once a second, from another thread."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.watcher", msgspec.json.encode(asked).decode()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._progress = log
        self._last = b""
        if self._read() != b"ready\n":
            raise OSError("cannot observe: the observer ended; its words are above")
        self._reader = threading.Thread(target=self._receive, daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether it has received everything."""
        self._reader.join(seconds)
        return not self._reader.is_alive()

    def end(self) -> Seen:
        """Stop it and return what it has received so far."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._reader.join(10)
        self.stop()
        return msgspec.json.decode(self._last, type=Seen)

    def stop(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()

    def _read(self) -> bytes:
        return self._process.stdout.readline() if self._process.stdout is not None else b""

    def _receive(self) -> None:
        while line := self._read():
            self._last = line
            if line.startswith(b'{"binds"'):
                self._progress(msgspec.json.decode(line, type=Progress))
