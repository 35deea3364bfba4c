"""Measures how long creates of pods take during an attack, and how many fail."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.objects import Object

RATE: Final = 20
"""Creates a second."""
THREADS: Final = 8
CREATED: Final = 201


class Creating:
    """Sends creates at a steady rate; a slow create does not delay the next one."""

    def __init__(self, create: Callable[[], tuple[int, Object]]) -> None:
        """`create` sends one create and returns status (201 on success) and answer."""
        self._ask = create
        self.seconds: list[float] = []
        self.failed: list[Object] = []

    def __str__(self) -> str:
        """Return the number of creates and their percentiles in seconds."""
        return f"{len(self.seconds)} creates, p50 {median(self.seconds):.3f} s, p99 {self.percentile(99):.3f} s"

    def percentile(self, percent: int) -> float:
        """Return this percentile of the creates' durations, in seconds."""
        return sorted(self.seconds)[len(self.seconds) * percent // 100]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Send creates until the block ends."""
        stop = threading.Event()
        # The threads take turns, so that a slow create does not delay the next.
        threads = [threading.Thread(target=self._create, args=(stop, number / RATE)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _create(self, stop: threading.Event, delay: float) -> None:
        due = time.monotonic() + delay
        while not stop.wait(max(0.0, due - time.monotonic())):
            due += THREADS / RATE
            began = time.monotonic()
            status, answer = self._ask()
            self.seconds.append(time.monotonic() - began)
            if status != CREATED:
                self.failed.append(answer)
