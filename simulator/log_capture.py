"""Two things that the payload has in common with its whole process: the log, and the numbers that spread its load."""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class ErrorCapture(logging.Handler):
    """Keeps errors of our own: whatever is logged with a traceback. A fault of others is no such thing."""

    def __init__(self) -> None:
        """Nothing was logged yet."""
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it where it is one."""
        told = record.msg if isinstance(record.msg, dict) else {"event": record.getMessage()}
        if record.exc_info or told.get("exc_info"):
            self.errors.append(f"{told.get('event')}: {record.exc_info[1] if record.exc_info else told}")

    def __enter__(self) -> Self:
        """Capture from now on."""
        logging.getLogger().addHandler(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Capture no longer."""
        logging.getLogger().removeHandler(self)


@contextmanager
def jitter(seed: int) -> Iterator[None]:
    """What the payload draws to spread its load follows from the seed; outside, others go on with their own."""
    before = random.getstate()
    random.seed(f"{seed}/payload")
    try:
        yield
    finally:
        random.setstate(before)
