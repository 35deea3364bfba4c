"""A task that takes long is named while it works."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from tests.contracts.roles import ROOT

if TYPE_CHECKING:
    from pathlib import Path

PLAY = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Skip this
      ansible.builtin.command: sleep 3
      when: false
    - name: Work for a while
      ansible.builtin.command: sleep 4
      changed_when: false
"""


def test_long_task_is_named_before_it_ends(tmp_path: Path) -> None:
    """The heading of a long task stands there seconds before its result; a skipped task has none; none comes twice."""
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "PYTHONUNBUFFERED": "1"}
    command = ("ansible-playbook", "--inventory=inventory/kind", str(play))
    seen: list[tuple[float, str]] = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        seen = [(time.monotonic(), line) for line in process.stdout]
    headings = [(when, line) for when, line in seen if line.startswith("TASK [")]
    result = next(when for when, line in seen if line.startswith("ok: [localhost]"))

    assert [line.split("]")[0] for _, line in headings] == ["TASK [Work for a while"]
    assert result - headings[0][0] > 1.5
