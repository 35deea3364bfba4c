"""Virtual time: one timeline, and one event loop for each simulated process. Waiting takes no real time.

A host can be stopped while time continues, as by SIGSTOP. When it continues, its overdue timers fire.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_RESOLUTION: Final = 1e-6


class NoProgressError(Exception):
    """A host has ready callbacks without end, so the clock cannot advance."""


class Timeline:
    """The clock, the pending callbacks of the cluster's actors, and all hosts."""

    def __init__(self) -> None:
        """Start at a time that is no special case for any code."""
        self.now = 1000.0
        self._number = 0
        self._callbacks: list[tuple[float, int, Callable[[], None]]] = []
        self.hosts: list[Host] = []

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Call `do` after these seconds; callbacks for the same time run in the order of registration."""
        self._number += 1
        heappush(self._callbacks, (self.now + seconds, self._number, do))

    def run(self, seconds: float) -> None:
        """Advance the clock by these seconds."""
        end = self.now + seconds
        while True:
            self._settle()
            dues = [host.due for host in self.hosts if not host.stopped]
            if self._callbacks:
                dues.append(self._callbacks[0][0])
            due = min(dues, default=inf)
            if due > end:
                break
            self.now = max(self.now, due)
            while self._callbacks and self._callbacks[0][0] <= self.now:
                heappop(self._callbacks)[2]()
        self.now = end

    def _settle(self) -> None:
        """Run all hosts until none has a ready callback."""
        again, rounds = True, 0
        while again:
            again = False
            for host in self.hosts:
                while host.ready and not host.stopped:
                    host.run_ready()
                    again = True
                    rounds += 1
                    if rounds > _MAX_ROUNDS:
                        raise NoProgressError(f"{host.name} never rests at {self.now:.3f} s")


_MAX_ROUNDS: Final = 20_000


class _Nothing:
    """A selector without files: a simulated host has none."""

    def select(self, _timeout: float | None) -> tuple[()]:
        return ()

    def close(self) -> None:
        return


class Host(asyncio.BaseEventLoop):
    """One simulated process: an event loop that the timeline runs."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        """Join the timeline."""
        super().__init__()
        self.name = name
        self.stopped = False
        self.skew = 0.0
        """Seconds by which its wall clock is ahead of the timeline."""
        self._timeline = timeline
        self._selector = _Nothing()
        self._clock_resolution = _RESOLUTION
        self._ready: Any
        self._timer_cancelled_count: int
        self._scheduled: Any
        # A killed process does not report its tasks.
        self.set_exception_handler(lambda _loop, _context: None)
        timeline.hosts.append(self)

    def time(self) -> float:
        """Give the time of the timeline."""
        return self._timeline.now

    def wall(self) -> datetime:
        """Give the time of its wall clock."""
        return _BEGIN + timedelta(seconds=self._timeline.now + self.skew)

    @property
    def ready(self) -> bool:
        """Whether a callback or a timer is due."""
        return bool(self._ready) or self.due <= self._timeline.now

    @property
    def due(self) -> float:
        """When its next timer is due."""
        while self._scheduled and self._scheduled[0].cancelled():
            self._drop_timer()
        return float(self._scheduled[0].when()) if self._scheduled else inf

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine as the main task of this process."""
        return self.create_task(work)

    def run_ready(self) -> None:
        """Run the callbacks that are ready, once."""
        asyncio._set_running_loop(self)  # noqa: SLF001 - asyncio lists it for those who write event loops
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - likewise

    def end(self) -> None:
        """Remove it from the timeline; pending work is dropped."""
        self._timeline.hosts.remove(self)
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(_CANCEL_ROUNDS):
            if not self._ready:
                break
            self.run_ready()
        self.close()

    def _drop_timer(self) -> None:
        handle = heappop(self._scheduled)
        handle._scheduled = False  # noqa: SLF001 - as the loop itself does
        self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)

    def _process_events(self, _events: object) -> None:
        return


_CANCEL_ROUNDS: Final = 1000
