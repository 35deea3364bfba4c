"""What a process has at one moment, and whether it has become more."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.command import Command

GAUGING: Final = "tests.integration.faults.gauging"
"""The module that a gauged process runs."""
MORE: Final = (10, 2, 20)
"""Tasks, threads and files that it may have more: where a watch is just being opened anew, say."""


@dataclass(frozen=True, slots=True)
class Gauged:
    """What a process has at one moment."""

    memory: float
    tasks: int
    threads: int
    files: int


class Gauge:
    """Looks at one process."""

    def __init__(self, command: Command) -> None:
        """It runs GAUGING."""
        self._command = command
        self._asked = 0

    def read(self) -> Gauged:
        """Ask it for its tasks, and /proc for the rest."""
        self._asked += 1
        self._command.process.send(signal.SIGUSR1)
        eventually("it was gauged", lambda: len(self._told()) == self._asked)
        proc = Path(f"/proc/{self._command.process.pid}")
        return Gauged(
            self._command.resident(),
            self._told()[-1],
            len(list((proc / "task").iterdir())),
            len(list((proc / "fd").iterdir())),
        )

    def calms_down(self, before: Gauged) -> None:
        """Wait until it has what it had before; AssertionError when it has more for good.

        Many binds at once, as on a busy machine, leave connections that are kept for 15 s: only what stays counts.
        """
        grown: tuple[int, int, int] = MORE

        def calm() -> bool:
            nonlocal grown
            now = self.read()
            grown = (now.tasks - before.tasks, now.threads - before.threads, now.files - before.files)
            return all(more <= most for more, most in zip(grown, MORE, strict=True))

        try:
            eventually("tasks, threads and files are what they were", calm, seconds=40, pause=1)
        except AssertionError as error:
            tasks, threads, files = grown
            raise AssertionError(f"{error}: {tasks} tasks, {threads} threads and {files} files more") from error

    def _told(self) -> list[int]:
        return [int(line["tasks"]) for line in self._command.lines() if line.get("event") == "Gauged"]
