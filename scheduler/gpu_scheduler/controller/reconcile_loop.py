"""Looks at keys as they come due, several at a time, and never lets one that fails hold up the others.

LAW: what a look does is its reconciler's business; a look that raises is one that failed, and is repeated later.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from gpu_scheduler.controller.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKERS = 8
BACKOFF_FIRST = 0.2
BACKOFF_LONGEST = 30.0
# The loop comes round at least so often, so that its heartbeat tells whether it is alive.
REST = 1.0

log = logging.getLogger(__name__)

Key = tuple[str, str]
Reconcile = Callable[[str], Awaitable[float | None]]


class ReconcileError(Exception):
    """The look came to nothing and is worth another; the text says why."""


class ReconcileLoop:
    """A queue of (kind, name); it may be added to at any time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, workers: int = WORKERS) -> None:
        """Nothing is looked at before `run`; `workers` is how many looks there may be at once."""
        self._clock = clock
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue(BACKOFF_FIRST, BACKOFF_LONGEST)
        self._looks: set[asyncio.Task[None]] = set()
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._heartbeat: float | None = None

    def add(self, kind: str, name: str) -> None:
        """Something changed about it."""
        self._queue.add((kind, name))
        self._wakeup.set()

    @property
    def waiting(self) -> int:
        """How many keys wait for a look, are looked at, or have a time at which they want to be."""
        return len(self._queue)

    @property
    def heartbeat_age(self) -> float:
        """Seconds by which the loop's next turn is late; 0 before it runs."""
        return 0.0 if self._heartbeat is None else max(0.0, self._clock() - self._heartbeat - REST)

    async def run(self, reconcilers: Mapping[str, Reconcile]) -> None:
        """Look until `drain`; `reconcilers` look at a name of their kind, and answer when they want to see it again."""
        while not self._stopping:
            self._heartbeat = now = self._clock()
            self._wakeup.clear()
            while len(self._looks) < self._workers and (key := self._queue.pop(now)) is not None:
                look = asyncio.create_task(self._look(key, reconcilers[key[0]]))
                self._looks.add(look)
                look.add_done_callback(self._looked)
            due = self._queue.next_due(now) if len(self._looks) < self._workers else None
            try:
                async with asyncio.timeout(REST if due is None else min(REST, due - now)):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    async def drain(self, seconds: float) -> bool:
        """Begin no more looks and let those under way end, at most so long; whether they did."""
        self._stopping = True
        self._wakeup.set()
        if self._looks:
            await asyncio.wait(self._looks, timeout=seconds)
        return not self._looks

    async def _look(self, key: Key, reconcile: Reconcile) -> None:
        kind, name = key
        try:
            again = await reconcile(name)
        except ReconcileError as error:
            log.info("%s %s is looked at again: %s", kind, name, error)
            self._queue.failed(key, self._clock())
        except Exception:
            log.exception("Looking ended in an error of our own", extra={"kind": kind, "key": name})
            self._queue.failed(key, self._clock())
        else:
            self._queue.done(key, self._clock(), again)

    def _looked(self, look: asyncio.Task[None]) -> None:
        self._looks.discard(look)
        self._wakeup.set()
