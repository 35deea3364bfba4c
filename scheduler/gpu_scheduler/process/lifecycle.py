"""Common parts of every long-running command: version, settings, clocks, first log line, signals, exit codes."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.elapsed import read_elapsed
from gpu_scheduler.names import SCHEDULER_NAME
from gpu_scheduler.settings import CommonSettings, SettingsError, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable

SettingsKind = TypeVar("SettingsKind", bound=CommonSettings)

FAILED = 1
USAGE = 2
# Seconds that cancelled tasks have to end. When the loop ends, it cancels the remaining tasks once more.
CANCEL_TIMEOUT = 2.0
# New objects that start a garbage collection, and the number of collections of each generation that start one of the
# next. The cached objects have no cycles. With Python's default of 700 objects, the search for cycles took a tenth of
# all CPU under load. Many collections of few objects keep each step of the event loop short: the second generation has
# 15,000 objects at most. Only a full collection takes longer, so it is rarer than with the defaults for 10 and 10.
GC_THRESHOLDS = (5_000, 2, 200)
UNKNOWN_VERSION = "0+unknown"
# Recursion limit. The API server accepts JSON that is nested 10,000 deep; such a pod must not break the watch.
RECURSION_LIMIT = 25_000


class UsageError(Exception):
    """The process cannot start with its settings and arguments; the text says what to change."""


class FatalError(Exception):
    """The process must end now, and its successor should start from scratch; the text says why."""


def own_version() -> str:
    """Return the package's version, from its metadata; UNKNOWN_VERSION if it was never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(SCHEDULER_NAME)
    except PackageNotFoundError:
        return UNKNOWN_VERSION


def own_name(settings: CommonSettings) -> str:
    """Return name, version and commit, as `--version` and the first log line show them."""
    return f"{SCHEDULER_NAME} {own_version()} (commit {settings.gpu_scheduler_commit})"


def main_loop(kind: type[SettingsKind], command: Callable[[SettingsKind], Coroutine[Any, Any, None]]) -> None:
    """Read the settings, run the command, and exit: 0 when it was stopped, 2 for bad input, 1 for the rest."""
    try:
        settings = read_settings(kind)
    except SettingsError as error:
        _refuse(error)
    from gpu_scheduler.process.logs import set_up_logging

    set_up_logging(settings.log_level)
    log = logging.getLogger(__name__)
    log.info(own_name(settings), extra={"version": own_version(), "commit": settings.gpu_scheduler_commit})
    sys.setrecursionlimit(RECURSION_LIMIT)
    try:
        _freeze_heap()
        asyncio.run(command(settings))
    except UsageError as error:
        _refuse(error)
    except FatalError as error:
        log.critical("Ending", extra={"why": str(error)})
        sys.exit(FAILED)
    log.info("Stopped")


def _refuse(error: Exception) -> NoReturn:
    """Print the error to standard error and exit with status 2. In a log line, users would overlook the sentence."""
    print(error, file=sys.stderr)  # noqa: T201 - see above
    sys.exit(USAGE)


def _freeze_heap() -> None:
    """Exempt all objects of the start-up from garbage collection: they live as long as the process."""
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()


async def until_stopped(stop: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Return when `stop` is set. Raise FatalError if a task ends earlier, however it ends: all must run for ever."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in done - {stopping}:
        error = task.exception()
        raise FatalError(f"{task.get_name()} ended: {error or 'without an error'}") from error


async def cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel these tasks and wait for LISTENING seconds: a task may ignore it. How the tasks end does not matter."""
    for task in tasks:
        task.cancel()
    ended, pending = await asyncio.wait(tasks, timeout=CANCEL_TIMEOUT)
    for task in ended:
        task.cancelled() or task.exception()
    if pending:
        log = logging.getLogger(__name__)
        log.error("Ending although tasks did not stop", extra={"tasks": sorted(task.get_name() for task in pending)})


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set. The signal is logged."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(number: signal.Signals) -> None:
        logging.getLogger(__name__).info("Stopping on a signal", extra={"signal": number.name})
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)
    return stop


def _now() -> datetime:
    return datetime.now(UTC)


@immutable
class Clocks:
    """The clock of elapsed time, the wall clock, which people can set, and the processor time of this thread."""

    elapsed: Callable[[], float] = read_elapsed
    wall: Callable[[], datetime] = _now
    processor: Callable[[], float] = time.thread_time
