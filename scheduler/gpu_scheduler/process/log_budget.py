"""Limits log lines that clients can cause: a rate of lines, then one line with how many were left out."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

RATE: Final = 100.0
"""Lines a second for any length of time: 40 KB a second."""
BURST: Final = 2_000
"""Lines at once: as many pods as a large workload has."""


class LogBudget(logging.Filter):
    """Passes as many lines as the rate allows. Lines above INFO always pass."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        super().__init__()
        self._clock = clock
        self._left = float(BURST)
        self._filled_at = clock()
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the line; count it if not."""
        if record.levelno > logging.INFO:
            return True
        now = self._clock()
        self._left = min(self._left + RATE * (now - self._filled_at), BURST)
        self._filled_at = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            log = logging.getLogger(record.name)
            log.warning("Dropped log lines: rate limit exceeded", extra={"lines": left_out})
        return True
