"""Runs the project's playbooks as a user would, and counts the changes of each role."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.contracts.roles import ROOT
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Mapping

# The playbook on the test cluster. The path of the variables' file is absolute, for runs in a copy of the checkout.
SITE: Final = ("ansible-playbook", "site.yml", "-e", f"@{ROOT}/tests/cluster/vars.yml")
# Seconds. The slowest run of a test creates a cluster on a busy machine; a play that takes longer hangs.
LONGEST: Final = 900
_ROLE: Final = re.compile(r"/roles/(\w+)/")


@dataclass(frozen=True, slots=True)
class Run:
    """The result of a play: exit status, all output, and for each role the number of tasks that changed something."""

    code: int
    output: str
    changed: Mapping[str, int]

    def succeeded(self) -> Run:
        """Return this run; raise with its output when it failed."""
        assert self.code == 0, self.story()
        return self

    def story(self) -> str:
        """Return the failed tasks with their messages, and all output that is no event."""
        reported = [line for line in self.output.splitlines() if line and not line.startswith("{")]
        for event in events(self.output):
            if event["_event"] == "v2_runner_on_failed":
                for result in event["hosts"].values():
                    output = [result.get(key) for key in ("msg", "stdout", "stderr") if result.get(key)]
                    reported += [event["task"]["name"], *(str(text) for text in output)]
        return "\n".join(reported)


def events(output: str) -> list[dict[str, Any]]:
    """Return the events of the jsonl callback, one a line; other output is ignored."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _changes(reported: list[dict[str, Any]]) -> Counter[str]:
    """Count the tasks that changed something, by role; a play's own tasks are counted as `play`."""
    changed: Counter[str] = Counter()
    for event in reported:
        if event["_event"] == "v2_runner_on_ok" and any(host.get("changed") for host in event["hosts"].values()):
            role = _ROLE.search(event["task"]["path"])
            changed[role[1] if role else "play"] += 1
    return changed


def run(*command: str, cwd: os.PathLike[str] = ROOT, environment: Mapping[str, str] | None = None) -> Run:
    """Run ansible-playbook, or make, and count its changes by role; the output is one JSON event a line."""
    reported = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
        **(environment or {}),
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=reported,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit(LONGEST),
        check=False,
    )
    return Run(done.returncode, done.stdout, _changes(events(done.stdout)))
