"""`gpu-scheduler` that logs each step of its event loop that takes too long.

A step is one call of a callback, such as a task from one await to the next. It is measured by the processor time of the
thread, for which it does not matter how long other programs have the processor. A slower machine needs more of it, and
so does one whose caches other programs fill: up to 2.7 times as much was measured. So after each long step a fixed copy
of small objects, as the scheduler makes them, is measured in the same thread. Where it takes longer than REFERENCE, the
step is divided by how many times longer.

Not counted are two things that cannot be divided into steps. A full garbage collection is rare, and takes 20 to 90 ms
of a process with 4,000 pods; collections of the younger generations count. And the main task reads the certificates and
starts everything else, before anybody waits for the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from statistics import median
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LONG: Final = 0.020
"""Seconds of processor time of the longest step, on a machine of the reference's speed."""
REFERENCE: Final = 0.010
"""Seconds that the copy takes on a machine of the reference's speed, an Intel Xeon where the additions of tests.waiting
take 0.0024 s. The least of 300 tries there, beside other programs: 0.0105 s."""
COPIED: Final = 8_000
TRIES: Final = 5
MAIN: Final = "Task-1"
"""The name of the task of `asyncio.run`."""
OLDEST: Final = 2
"""The generation that a full garbage collection collects."""

log = logging.getLogger(__name__)


class WatchedLoop(asyncio.SelectorEventLoop):
    """Measures each callback that it calls: of tasks, timers and sockets."""

    def call_soon(  # type: ignore[override]  # the types of the arguments do not matter here
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Call it in the next iteration."""
        return super().call_soon(_measure, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # the types of the arguments do not matter here
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Any = None,
    ) -> asyncio.TimerHandle:
        """Call it at this time."""
        return super().call_at(when, _measure, callback, *args, context=context)

    def _add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> object:
        """Call it when there is something to read. Transports call this method, and none that is public."""
        return super()._add_reader(fd, _measure, callback, *args)  # type: ignore[misc]  # typeshed has no private methods

    def _add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> object:
        """Call it when there is room to write."""
        return super()._add_writer(fd, _measure, callback, *args)  # type: ignore[misc]  # typeshed has no private methods


def _measure(callback: Callable[..., object], *args: object) -> None:
    task = getattr(callback, "__self__", None)
    before, began = _full_collections.seconds, thread_time()
    callback(*args)
    seconds = thread_time() - began - (_full_collections.seconds - before)
    if seconds > LONG and not (isinstance(task, asyncio.Task) and task.get_name() == MAIN):
        slowness = _slowness()
        if seconds > LONG * slowness:
            step = _name(task.get_coro() if isinstance(task, asyncio.Task) else callback)
            milliseconds = round(1000 * seconds / slowness, 1)
            log.warning("Long step", extra={"step": step, "milliseconds": milliseconds, "slowness": round(slowness, 2)})


def _name(called: object) -> str:
    """Return the name that all steps of one function have."""
    return str(getattr(called, "__qualname__", called))


def _slowness() -> float:
    """Return how many times longer the copy takes in this thread now than the reference; at least 1."""
    tries = []
    gc.disable()
    for _ in range(TRIES):
        began = thread_time()
        _copy()
        tries.append(thread_time() - began)
    gc.enable()
    return max(1.0, median(tries) / REFERENCE)


def _copy() -> dict[str, object]:
    return {key: (_objects[key][0], {**_objects[key][1]}) for key in _order}


def _shuffled(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: int(key) * 2_654_435_761 % 2**32)[:COPIED]


_objects: Final = {str(number): ((number, str(number)), {str(number): number}) for number in range(30_000)}
_order: Final = _shuffled(_objects)
"""An order in which the memory is not read from its beginning to its end."""


class _FullCollections:
    """Sums up the processor time of full garbage collections."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] != OLDEST:
            return
        if phase == "start":
            self._began = thread_time()
        else:
            self.seconds += thread_time() - self._began


_full_collections: Final = _FullCollections()


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return WatchedLoop()


if __name__ == "__main__":
    gc.callbacks.append(_full_collections)
    asyncio.set_event_loop_policy(_Policy())
    main()
