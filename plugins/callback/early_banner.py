"""Ansible's default output, with the heading of a long task while the task runs, and the diff of each applied object.

Before the first task of a role it says which of the play's roles that is, so that a user sees how much is left.

If skipped tasks are hidden, Ansible prints a task's heading with its first result. No callback of ansible.builtin or
community.general prints it earlier and still hides skipped tasks.
"""

from __future__ import annotations

import time
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
  - Says of each role that does something which of the play's roles it is, and how long the play has taken.
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
        self._roles: list[str] = []
        self._role = ""
        self._began = 0.0

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """Note the roles of the play."""
        super().v2_playbook_on_play_start(play)
        # A play may import a part of a role before the role.
        self._roles = list(dict.fromkeys(role.get_name() for role in play.get_roles()))
        self._role, self._began = "", time.monotonic()

    def _task_start(self, task: Any, prefix: str | None = None) -> None:
        self._cancel()
        super()._task_start(task, prefix)
        self._timer = Timer(SECONDS, self._print_task_banner, [task])
        self._timer.daemon = True
        self._timer.start()

    def _print_task_banner(self, task: Any) -> None:
        self._cancel()
        if self._last_task_banner != task._uuid:  # noqa: SLF001 - as the base class does
            self._print_role(task)
            super()._print_task_banner(task)

    def _print_role(self, task: Any) -> None:
        """Say which of the play's roles begins. A role that another one includes is a part of that one."""
        role = task._role.get_name() if task._role else ""  # noqa: SLF001 - there is no other way to a task's role
        if role == self._role or role not in self._roles:
            return
        self._role = role
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        number = self._roles.index(role) + 1
        self._display.banner(f"ROLE {number} of {len(self._roles)} [{role}], after {minutes} min {seconds} s")

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
        for key in ("deleted", "left"):
            for told in result.result.get(key) or []:
                self._display.display(f"{key}: {told}")
        super().v2_runner_on_ok(result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Print no heading of a skipped task."""
        self._cancel()
        super().v2_runner_on_skipped(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        """Print no heading after the end."""
        self._cancel()
        super().v2_playbook_on_stats(stats)
