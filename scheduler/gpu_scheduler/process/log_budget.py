"""Log lines that anybody can cause: so many a second, and then how many were left out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.process.logs import Logger

RATE: Final = 100.0
"""Lines a second for any length of time: 40 KB."""
BURST: Final = 2_000
"""Lines at once: as many pods as a large workload has."""


class LogBudget:
    """Logs through `log` what the rate allows."""

    def __init__(self, log: Logger, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._log = log
        self._clock = clock
        self._left = float(BURST)
        self._filled_at = clock()
        self._left_out = 0

    def info(self, event: str, **fields: object) -> None:
        """Log a line, or count it as left out."""
        now = self._clock()
        self._left = min(self._left + RATE * (now - self._filled_at), BURST)
        self._filled_at = now
        if self._left < 1:
            self._left_out += 1
            return
        self._left -= 1
        if self._left_out:
            self._log.warning("Left out log lines: too many in too short a time", lines=self._left_out)
            self._left_out = 0
        self._log.info(event, **fields)
