"""Reconciles keys when they are due, several at a time. A key that fails does not delay the others.

LAW: this module does not depend on what a reconciler does. If a reconcile raises, it is repeated after a back-off.
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
# Seconds. The loop runs at least this often, so that its heartbeat shows that it works.
LONGEST_WAIT = 1.0

log = logging.getLogger(__name__)

Key = tuple[str, str]
Reconcile = Callable[[str], Awaitable[float | None]]


class ReconcileError(Exception):
    """The reconcile failed and must be repeated; the text says why."""


class ReconcileLoop:
    """A queue of (kind, name) and the workers that reconcile its keys; keys may be added at any time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, workers: int = WORKERS) -> None:
        """Start nothing: reconciling begins with `run`. At most `workers` keys are reconciled at once."""
        self._clock = clock
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue(BACKOFF_FIRST, BACKOFF_LONGEST)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakeup = asyncio.Event()
        self._stopping = False
        self._heartbeat: float | None = None

    def add(self, kind: str, name: str) -> None:
        """Queue a key, because its object or an object that it depends on changed."""
        self._queue.add((kind, name))
        self._wakeup.set()

    @property
    def waiting(self) -> int:
        """Number of keys that wait, are being reconciled, or have a time at which they are due again."""
        return len(self._queue)

    @property
    def due(self) -> int:
        """Number of keys that wait or are being reconciled now."""
        return self._queue.now_due(self._clock())

    @property
    def heartbeat_age(self) -> float:
        """Seconds by which the next iteration of the loop is late; 0 before `run`."""
        return 0.0 if self._heartbeat is None else max(0.0, self._clock() - self._heartbeat - LONGEST_WAIT)

    async def run(self, reconcilers: Mapping[str, Reconcile]) -> None:
        """Reconcile until `drain`.

        `reconcilers` are by kind. Each returns the seconds after which the name is due again, or None.
        """
        while not self._stopping:
            self._heartbeat = now = self._clock()
            self._wakeup.clear()
            while len(self._tasks) < self._workers and (key := self._queue.pop(now)) is not None:
                task = asyncio.create_task(self._reconcile(key, reconcilers[key[0]]))
                self._tasks.add(task)
                task.add_done_callback(self._on_end)
            due = self._queue.next_due(now) if len(self._tasks) < self._workers else None
            try:
                async with asyncio.timeout(LONGEST_WAIT if due is None else min(LONGEST_WAIT, due - now)):
                    await self._wakeup.wait()
            except TimeoutError:
                pass

    async def drain(self, seconds: float) -> bool:
        """Start no more reconciles and wait at most `seconds` for those that run. Return whether all have ended."""
        self._stopping = True
        self._wakeup.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        return not self._tasks

    async def _reconcile(self, key: Key, reconcile: Reconcile) -> None:
        kind, name = key
        try:
            again = await reconcile(name)
        except ReconcileError as error:
            log.info("%s %s is requeued: %s", kind, name, error)
            self._queue.failed(key, self._clock())
        except Exception:
            log.exception("Reconciling failed with an internal error", extra={"kind": kind, "key": name})
            self._queue.failed(key, self._clock())
        else:
            self._queue.done(key, self._clock(), again)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wakeup.set()
