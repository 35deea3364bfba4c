"""The heading of a long task is printed while the task runs."""

from __future__ import annotations

import os
import re
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
    """A long task's heading comes seconds before its result; a skipped task has none; no heading comes twice."""
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


ROLES = """\
- hosts: localhost
  gather_facts: false
  roles: [idle, first, second]
"""
TASK = """\
- name: Work in {role}
  ansible.builtin.debug:
    msg: done
  when: {does}
"""


def played(folder: Path, *options: str) -> str:
    """Run the folder's play. Return its output."""
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    command = ("ansible-playbook", "--inventory=inventory/kind", *options, str(folder / "play.yml"))
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_role_is_numbered_before_its_first_task(tmp_path: Path) -> None:
    """One that does nothing is counted and not named, and none is named twice."""
    (tmp_path / "play.yml").write_text(ROLES)
    for role in ("idle", "first", "second"):
        folder = tmp_path / "roles" / role / "tasks"
        folder.mkdir(parents=True)
        does = str(role != "idle").lower()
        (folder / "main.yml").write_text(TASK.format(role=role, does=does) + TASK.format(role=role, does=does))
    output = played(tmp_path)

    lines = [line.rstrip(" *") for line in output.splitlines() if line.startswith(("ROLE ", "TASK "))]
    assert re.fullmatch(r"ROLE 2 of 3 \[first\], after \d+ min \d+ s", lines[0])
    assert lines[1] == "TASK [first : Work in first]"
    (second,) = [line for line in lines if line.startswith("ROLE")][1:]
    assert re.fullmatch(r"ROLE 3 of 3 \[second\], after \d+ min \d+ s", second)


DIFFS = """\
- hosts: localhost
  gather_facts: false
  tasks:
    - name: Apply several
      several: {}
    - name: Apply Secrets
      several: {}
      no_log: true
"""
SEVERAL = """\
from ansible.module_utils.basic import AnsibleModule
def body(name, changed):
    metadata = {"name": name, "namespace": "system"}
    diff = {"before": {}, "after": {"data": name + "-data"}}
    return {"changed": changed, "result": {"kind": "ConfigMap", "metadata": metadata}, "diff": diff}
module = AnsibleModule(argument_spec={}, supports_check_mode=True)
module.exit_json(changed=True, result={"results": [body("first", True), body("second", True), body("same", False)]})
"""


def test_each_object_of_a_task_has_its_diff(tmp_path: Path) -> None:
    """Results of kubernetes.core.k8s for several objects are printed one by one; those of tasks with no_log are not."""
    (tmp_path / "play.yml").write_text(DIFFS)
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "several.py").write_text(SEVERAL)
    output = played(tmp_path, "--check", "--diff")

    headers = [line for line in output.splitlines() if line.startswith("+++ ")]
    assert headers == ["+++ after: ConfigMap system/first", "+++ after: ConfigMap system/second"]
    assert output.index("TASK [Apply several]") < output.index(headers[0])
    assert output.count("first-data") == 1
