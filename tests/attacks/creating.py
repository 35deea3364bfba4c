"""What people notice of an attack: how long their creates take, and whether any fails."""

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
    """Creates at a steady rate, each on time whatever became of the one before."""

    def __init__(self, create: Callable[[], tuple[int, Object]]) -> None:
        """`create` gives the status, 201 where all is well, and what the API server says."""
        self._ask = create
        self.seconds: list[float] = []
        self.failed: list[Object] = []

    def __str__(self) -> str:
        """Figures for who reads the output."""
        return f"{len(self.seconds)} creates, p50 {median(self.seconds):.3f} s, p99 {self.percentile(99):.3f} s"

    def percentile(self, percent: int) -> float:
        """Of the seconds that a create took."""
        return sorted(self.seconds)[len(self.seconds) * percent // 100]

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Create until the block ends."""
        stop = threading.Event()
        # They take turns, so that a slow create does not delay the next.
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
