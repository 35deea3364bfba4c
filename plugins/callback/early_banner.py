"""Ansible's usual output, which also says at once what takes long.

Where skipped tasks are hidden, Ansible keeps a task's heading back until its first result: a minute's work would be
named when it is over. Here the heading of a task that still works after a moment is printed then.
"""

from __future__ import annotations

from threading import Timer
from typing import Any, Final

from ansible.plugins.callback.default import (  # type: ignore[import-untyped]  # Ansible ships no types
    CallbackModule as Default,
)

DOCUMENTATION = """
name: early_banner
type: stdout
short_description: the default output, with the heading of a long task as soon as it is known to be long
description:
  - Shows what the default callback shows; a task that has no result yet after a second has its heading printed then.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout_callback
"""

# Long enough that a task which is about to be skipped has said so, short enough that nobody wonders.
SECONDS: Final = 1.0


class CallbackModule(Default):  # type: ignore[misc]  # its base is untyped
    """The default output with early headings."""

    CALLBACK_NAME = "early_banner"

    def __init__(self) -> None:
        super().__init__()
        self._timer: Timer | None = None

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        self._cancel()
        super()._task_start(task, prefix)
        self._timer = Timer(SECONDS, self._print_task_banner, [task])
        self._timer.daemon = True
        self._timer.start()

    def _print_task_banner(self, task: Any) -> None:
        self._cancel()
        if self._last_task_banner != task._uuid:  # noqa: SLF001 - as the base class does
            super()._print_task_banner(task)

    def _cancel(self) -> None:
        if self._timer:
            self._timer.cancel()

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Forget the heading of a task that turned out to be skipped."""
        self._cancel()
        super().v2_runner_on_skipped(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print no heading after the end."""
        self._cancel()
        super().v2_playbook_on_stats(stats)
