"""An event loop with virtual time, which never sleeps."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


QUIET: Final = 0.005
"""Seconds without a byte after which none is under way: both ends of each connection are in this process."""


class _Skipping(selectors.DefaultSelector):
    """A selector that adds up the timeouts in place of sleeping.

    While bytes arrive or a thread works, no time passes. So no timeout ends work, however slow the machine is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or (timeout > 0 and self.threads):
            return super().select()
        # The loop's own pair of sockets is always there.
        ready = super().select(QUIET if timeout > 0 and len(self.get_map()) > 1 else 0)
        if not ready:
            self.slept += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time: a sleep of hours takes no time, and ends when all other tasks wait.

    It knows nothing of other processes, nor of threads that it did not start: a test that waits for one is marked
    clock("real").
    """

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return 1000.0 + self._skipping.slept

    def block(self, seconds: float) -> None:
        """Let time pass in which no task runs, as in a process that is stopped or busy."""
        self._skipping.slept += seconds

    def run_in_executor(  # type: ignore[override] # the types of the arguments do not matter here
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = super().run_in_executor(executor, func, *args)
        self._skipping.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: asyncio.Future[Any]) -> None:
        self._skipping.threads -= 1

    def pass_by(self, seconds: float) -> None:
        """Run the loop for so many virtual seconds."""
        self.run_until_complete(asyncio.sleep(seconds))


def virtual_loop() -> VirtualLoop:
    """Return the loop of a test that is not marked clock("real")."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def settle() -> None:
    """Run every task until it waits for time, or for something that the test decides."""
    await asyncio.sleep(1e-6)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a VirtualLoop of its own: for one of many examples of a test."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
