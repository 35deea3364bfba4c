"""Reads the memory, tasks, threads and files of a process, and checks that they do not grow."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command

WITH_TASK_COUNT: Final = "tests.integration.faults.program_with_task_count"
"""The module that a measured process runs."""
MORE: Final = (10, 2, 20)
"""Tasks, threads and files by which the process may grow, for example while it opens a watch again."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Memory (MB), asyncio tasks, threads and open files of a process at one moment."""

    memory: float
    tasks: int
    threads: int
    files: int


class UsageReader:
    """Measures one process."""

    def __init__(self, command: Command) -> None:
        """`command` runs the module WITH_TASK_COUNT."""
        self._command = command
        self._asked = 0

    def read(self) -> Usage:
        """Read the number of tasks from the log of the process, and the rest from /proc."""
        self._asked += 1
        self._command.process.send(signal.SIGUSR1)
        eventually("the process has logged its tasks", lambda: len(self._reported()) == self._asked)
        proc = Path(f"/proc/{self._command.process.pid}")
        return Usage(
            self._command.resident(),
            self._reported()[-1],
            len(list((proc / "task").iterdir())),
            len(list((proc / "fd").iterdir())),
        )

    def wait_not_grown(self, before: Usage) -> None:
        """Wait until tasks, threads and files are at most MORE above `before`; AssertionError if they stay higher.

        Many binds at once, as on a busy machine, leave connections that are kept for 15 s: they do not count.
        """
        grown: tuple[int, int, int] = MORE

        def quiet() -> bool:
            nonlocal grown
            now = self.read()
            grown = (now.tasks - before.tasks, now.threads - before.threads, now.files - before.files)
            return all(more <= most for more, most in zip(grown, MORE, strict=True))

        try:
            eventually("tasks, threads and files are what they were", quiet, seconds=40, pause=1)
        except AssertionError as error:
            tasks, threads, files = grown
            raise AssertionError(f"{error}: {tasks} tasks, {threads} threads and {files} files more") from error

    def _reported(self) -> list[int]:
        return [int(line["tasks"]) for line in self._command.lines() if line.get("event") == "Gauged"]
