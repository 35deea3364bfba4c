"""Virtual time: one timeline, and an event loop for each process that lives on it. Whoever waits costs nothing.

A host may be stopped while time goes on, as SIGSTOP does it, and goes on with everything that is overdue.
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


class StuckError(Exception):
    """Something goes on and on without letting time pass."""


class Timeline:
    """What happens when; what the cluster's actors do, and all hosts."""

    def __init__(self) -> None:
        """Time begins at a number that is no special case for anybody."""
        self.now = 1000.0
        self._number = 0
        self._doings: list[tuple[float, int, Callable[[], None]]] = []
        self.hosts: list[Host] = []

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Have it done then; what is due at one moment is done in the order in which it was asked for."""
        self._number += 1
        heappush(self._doings, (self.now + seconds, self._number, do))

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.now + seconds
        while True:
            self._settle()
            dues = [host.due for host in self.hosts if not host.stopped]
            if self._doings:
                dues.append(self._doings[0][0])
            due = min(dues, default=inf)
            if due > end:
                break
            self.now = max(self.now, due)
            while self._doings and self._doings[0][0] <= self.now:
                heappop(self._doings)[2]()
        self.now = end

    def _settle(self) -> None:
        """Let every host do what it can do without waiting."""
        again, turns = True, 0
        while again:
            again = False
            for host in self.hosts:
                while host.ready and not host.stopped:
                    host.turn()
                    again = True
                    turns += 1
                    if turns > _PATIENCE:
                        raise StuckError(f"{host.name} never rests at {self.now:.3f} s")


_PATIENCE: Final = 20_000


class _Nothing:
    """A selector of no files: a host has none."""

    def select(self, _timeout: float | None) -> tuple[()]:
        return ()

    def close(self) -> None:
        return


class Host(asyncio.BaseEventLoop):
    """One process: an event loop that runs when the timeline lets it."""

    def __init__(self, timeline: Timeline, name: str) -> None:
        """It joins the timeline at once."""
        super().__init__()
        self.name = name
        self.stopped = False
        self.skew = 0.0
        """Seconds by which its wall clock is ahead."""
        self._timeline = timeline
        self._selector = _Nothing()
        self._clock_resolution = _RESOLUTION
        self._ready: Any
        self._timer_cancelled_count: int
        self._scheduled: Any
        # Tasks of a process that was killed end as they are.
        self.set_exception_handler(lambda _loop, _context: None)
        timeline.hosts.append(self)

    def time(self) -> float:
        """The timeline's."""
        return self._timeline.now

    def wall(self) -> datetime:
        """What its wall clock shows."""
        return _BEGIN + timedelta(seconds=self._timeline.now + self.skew)

    @property
    def ready(self) -> bool:
        """Whether it has something to do now."""
        return bool(self._ready) or self.due <= self._timeline.now

    @property
    def due(self) -> float:
        """When its next timer is due."""
        while self._scheduled and self._scheduled[0].cancelled():
            self._drop_timer()
        return float(self._scheduled[0].when()) if self._scheduled else inf

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run it as this process' main task."""
        return self.create_task(work)

    def turn(self) -> None:
        """Do what is ready, once."""
        asyncio._set_running_loop(self)  # noqa: SLF001 - asyncio lists it for those who write event loops
        try:
            self._run_once()  # type: ignore[attr-defined]
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001 - likewise

    def end(self) -> None:
        """Take it from the timeline: what it still had to do is never done."""
        self._timeline.hosts.remove(self)
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(_FAREWELL):
            if not self._ready:
                break
            self.turn()
        self.close()

    def _drop_timer(self) -> None:
        handle = heappop(self._scheduled)
        handle._scheduled = False  # noqa: SLF001 - as the loop itself does
        self._timer_cancelled_count = max(0, self._timer_cancelled_count - 1)

    def _process_events(self, _events: object) -> None:
        return


_FAREWELL: Final = 1000
