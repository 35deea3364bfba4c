"""Process-wide state of the shipped code that a simulation controls: log, random numbers, and turns of long work."""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from gpu_scheduler.kube import turns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


class ErrorCapture(logging.Handler):
    """Keeps what is logged with a traceback: an error of our own, not an injected fault."""

    def __init__(self) -> None:
        """Start without errors."""
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record if it has a traceback."""
        if record.exc_info:
            self.errors.append(f"{record.getMessage()}: {record.exc_info[1]}")

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
def deterministic(seed: int) -> Iterator[None]:
    """Seed the random numbers of the shipped code, and let long work give way always, not as processor time goes by.

    The previous state is restored at the end.
    """
    before, turn = random.getstate(), turns.TURN
    random.seed(f"{seed}/payload")
    turns.TURN = 0.0
    try:
        yield
    finally:
        random.setstate(before)
        turns.TURN = turn
