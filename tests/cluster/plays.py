"""Runs the project's playbooks as a user would, and tells which role changed how much."""

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

# The playbook on the test cluster. The variables' file has a whole path, for runs in a copy of the checkout.
SITE: Final = ("ansible-playbook", "site.yml", "-e", f"@{ROOT}/tests/cluster/vars.yml")
# The slowest run of a test makes a cluster anew on a busy machine; a play that takes longer hangs.
LONGEST: Final = 900
_ROLE: Final = re.compile(r"/roles/(\w+)/")


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a play: exit status, everything it printed, and role → tasks that reported a change."""

    code: int
    output: str
    changed: Mapping[str, int]

    def succeeded(self) -> Run:
        """Return this run; raise with its output when it failed."""
        assert self.code == 0, self.story()
        return self

    def story(self) -> str:
        """Return what failed, task by task, and whatever was printed that is no event."""
        told = [line for line in self.output.splitlines() if line and not line.startswith("{")]
        for event in events(self.output):
            if event["_event"] == "v2_runner_on_failed":
                for result in event["hosts"].values():
                    said = [result.get(key) for key in ("msg", "stdout", "stderr") if result.get(key)]
                    told += [event["task"]["name"], *(str(text) for text in said)]
        return "\n".join(told)


def events(output: str) -> list[dict[str, Any]]:
    """Return what the jsonl callback told, one event a line; whatever else was printed is left out."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _changes(told: list[dict[str, Any]]) -> Counter[str]:
    """Count the tasks that changed something, by role; those of a play's own are counted as `play`."""
    changed: Counter[str] = Counter()
    for event in told:
        if event["_event"] == "v2_runner_on_ok" and any(host.get("changed") for host in event["hosts"].values()):
            role = _ROLE.search(event["task"]["path"])
            changed[role[1] if role else "play"] += 1
    return changed


def run(*command: str, cwd: os.PathLike[str] = ROOT, environment: Mapping[str, str] | None = None) -> Run:
    """Run ansible-playbook, or make, and count its changes by role; the output is one JSON event a line."""
    told = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl",
        **(environment or {}),
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=told,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit(LONGEST),
        check=False,
    )
    return Run(done.returncode, done.stdout, _changes(events(done.stdout)))
