"""Ansible's default output, with the heading of a long task while the task runs, and the diff of each applied object.

If skipped tasks are hidden, Ansible prints a task's heading with its first result. No callback of ansible.builtin or
community.general prints it earlier and still hides skipped tasks.
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
short_description: the default output, with the heading of a long task while it runs
description:
  - Shows what the default callback shows; a task that has no result yet after a second has its heading printed then.
  - With --diff it shows the diff of each object, where one task of kubernetes.core.k8s applies several.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - set as stdout_callback
"""

# A skipped task ends within this time.
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

    def v2_runner_on_ok(self, result: Any) -> None:
        """With --diff print the diff of each object of a task that applies several; Ansible knows one for a task."""
        found = result.result.get("result")
        for part in found.get("results", []) if isinstance(found, dict) else []:
            if not (isinstance(part, dict) and part.get("changed") and part.get("diff")):
                continue
            metadata = part["result"]["metadata"]
            where = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            header = f"{part['result']['kind']} {where}"
            diff = self._get_diff({**part["diff"], "before_header": header, "after_header": header})
            if diff:
                if self._last_task_banner != result.task._uuid:  # noqa: SLF001 - as the base class does
                    self._print_task_banner(result.task)
                self._display.display(diff)
        super().v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print no heading of a skipped task."""
        self._cancel()
        super().v2_runner_on_skipped(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print no heading after the end."""
        self._cancel()
        super().v2_playbook_on_stats(stats)
