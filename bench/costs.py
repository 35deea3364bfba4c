"""Reads from /proc what a process used: CPU, resident memory and proportional memory."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

from bench.results import Cost

_TICK: Final = os.sysconf("SC_CLK_TCK")
# proc(5) counts the fields of /proc/PID/stat from 1: utime and stime are the 14th and 15th. Here the list begins with
# the third field, after the closing bracket of the name, and counts from 0.
_UTIME: Final = 14 - 3
_STIME: Final = 15 - 3


class Meter:
    """Measures the costs of one process, from the creation of the meter."""

    def __init__(self, pid: int) -> None:
        """Start to count."""
        self._folder = Path(f"/proc/{pid}")
        self._before = self._cpu()

    def read(self) -> Cost:
        """Return the costs so far; the process must still run."""
        sizes = {}
        for line in (self._folder / "smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
            key, _, value = line.partition(":")
            sizes[key] = int(value.split()[0]) / 1024
        return Cost(cpu=self._cpu() - self._before, rss=sizes["Rss"], pss=sizes["Pss"])

    def _cpu(self) -> float:
        fields = (self._folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICK


class Samples:
    """Samples of the memory of a process."""

    def __init__(self, pid: int, every: float) -> None:
        """Take a sample every `every` seconds from now on, in a thread."""
        self._meter = Meter(pid)
        self._every = every
        self._over = threading.Event()
        self._taken: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def end(self) -> list[tuple[float, float]]:
        """Stop. Return for each sample the seconds since the start and the resident MiB."""
        self._over.set()
        self._thread.join()
        return self._taken

    def _take(self) -> None:
        began = time.monotonic()
        while not self._over.wait(self._every):
            rss = self._meter.read().rss
            self._taken.append((time.monotonic() - began, rss))
