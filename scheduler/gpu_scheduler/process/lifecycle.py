"""What every long-running command shares: version, settings, clocks, first log line, signals, exit codes."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, TypeVar

from gpu_scheduler.names import SCHEDULER_NAME
from gpu_scheduler.settings import CommonSettings, SettingsError, read_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

SettingsKind = TypeVar("SettingsKind", bound=CommonSettings)

FAILED = 1
USAGE = 2
# Seconds that tasks have to end when they are cancelled; the loop's own end cancels all that is left once more.
LISTENING = 2.0
# New objects that call for a collection. What is kept of the cluster has no cycles; with Python's own 700, a tenth of
# all CPU under load went into looking for some.
COLLECTED = 20_000
# The API server takes JSON that is nested 10,000 deep; a pod of that kind must cost nobody his watch.
DEPTH = 25_000


class UsageError(Exception):
    """The process cannot start as it was called; the text says what to change."""


class FatalError(Exception):
    """The process has to end now, and its successor should start from scratch; the text says why."""


def own_version() -> str:
    """The package's version, as its metadata tells; `0+unknown` when it was never installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(SCHEDULER_NAME)
    except PackageNotFoundError:
        return "0+unknown"


def own_name(settings: CommonSettings) -> str:
    """Name, version and commit, as `--version` and the first log line tell them."""
    return f"{SCHEDULER_NAME} {own_version()} (commit {settings.gpu_scheduler_commit})"


def main_loop(kind: type[SettingsKind], command: Callable[[SettingsKind], Awaitable[None]]) -> None:
    """Read the settings, run the command, and exit: 0 when it was stopped, 2 for bad input, 1 for the rest."""
    try:
        settings = read_settings(kind)
    except SettingsError as error:
        _refuse(error)
    from gpu_scheduler.process.logs import get_logger, set_up_logging

    set_up_logging(settings.log_level)
    log = get_logger(__name__)
    log.info(own_name(settings), version=own_version(), commit=settings.gpu_scheduler_commit)
    sys.setrecursionlimit(DEPTH)
    try:
        asyncio.run(_frozen(command(settings)))
    except UsageError as error:
        _refuse(error)
    except FatalError as error:
        log.critical("Ending", why=str(error))
        sys.exit(FAILED)
    log.info("Stopped")


def _refuse(error: Exception) -> NoReturn:
    """Whoever called this reads standard error; a log line would bury the sentence."""
    print(error, file=sys.stderr)  # noqa: T201 - see above
    sys.exit(USAGE)


async def _frozen(command: Awaitable[None]) -> None:
    """Run `command` with all that start-up built exempt from garbage collection: it lives as long as the process."""
    gc.set_threshold(COLLECTED)
    gc.collect()
    gc.freeze()
    await command


async def until_stopped(stop: asyncio.Event, tasks: Iterable[asyncio.Task[None]]) -> None:
    """Return when `stop` is set. A task that ends before is fatal, however it ended: all are to run for ever."""
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    for task in done - {stopping}:
        error = task.exception()
        raise FatalError(f"{task.get_name()} ended: {error or 'without an error'}") from error


async def cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """End these tasks and wait for it, but not for ever: one may be deaf. How they ended is nobody's business."""
    for task in tasks:
        task.cancel()
    ended, deaf = await asyncio.wait(tasks, timeout=LISTENING)
    for task in ended:
        task.cancelled() or task.exception()
    if deaf:
        log = logging.getLogger(__name__)
        log.error("Ending without tasks that do not end", extra={"tasks": sorted(task.get_name() for task in deaf)})


def stop_on_signals() -> asyncio.Event:
    """Make an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clock that never goes back, and the one that people set."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = _now
