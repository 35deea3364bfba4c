"""Asks the same question of several things at once: a command that only reads, run in parallel, one answer each.

A loop over `command` costs a second an item, nearly all of it Ansible's own; a run on a healthy cluster is made of
such questions.
"""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from ansible.module_utils.basic import AnsibleModule  # type: ignore[import-untyped]  # Ansible ships no types

DOCUMENTATION = """
module: ask_all
short_description: run a command that only reads, for each item, in parallel
description:
  - Changes nothing, so it runs in check mode too and never reports a change; use it for nothing else.
  - Fails when a command fails, unless O(tolerant) is set.
options:
  argv:
    description: The command; C({key}) stands for that key of the item, C({item}) for an item that is no dictionary.
    required: true
    type: list
    elements: str
  items:
    description: What to ask about.
    required: true
    type: list
    elements: raw
  tolerant:
    description: Whether a command that fails is an answer too.
    type: bool
    default: false
  timeout:
    description: Seconds for each command; one that takes longer has failed.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
    description: Nothing is changed.
"""

EXAMPLES = """
- name: Ask each node for its images
  ask_all:
    argv: [docker, exec, "{item}", ctr, images, list, --quiet]
    items: [worker, worker2]
"""

RETURN = """
results:
  description: one answer an item, in their order
  type: list
  elements: dict
  contains:
    item: {description: what was asked about, type: raw}
    rc: {description: the exit status; 124 after a time-out, type: int}
    stdout: {description: what it said, type: str}
    stdout_lines: {description: the same in lines, type: list}
    stderr: {description: what it complained of, type: str}
"""

# Commands wait for others' answers most of their time; more at once would only make the machine's other work wait.
PARALLEL: Final = 8
TIMED_OUT: Final = 124


def filled(argv: list[str], item: object) -> list[str]:
    """Return the command for one item; braces around anything that is no key of it stay as they are."""
    values = item if isinstance(item, dict) else {"item": item}
    return [re.sub(r"\{(\w+)\}", lambda key: str(values.get(key[1], key[0])), word) for word in argv]


def answer(argv: list[str], item: object, timeout: int) -> dict[str, Any]:
    """Run the command for one item."""
    command = filled(argv, item)
    try:
        done = subprocess.run(  # noqa: S603 - running commands is what a caller asks of this module
            command, capture_output=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return {"item": item, "rc": TIMED_OUT, "stdout": "", "stdout_lines": [], "stderr": f"no answer in {timeout} s"}
    stdout = done.stdout.decode(errors="replace").rstrip("\n")
    stderr = done.stderr.decode(errors="replace").strip()
    return {
        "item": item,
        "rc": done.returncode,
        "stdout": stdout,
        "stdout_lines": stdout.splitlines(),
        "stderr": stderr,
    }


def main() -> None:
    """Ask, and answer Ansible."""
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "list", "elements": "str", "required": True},
            "items": {"type": "list", "elements": "raw", "required": True},
            "tolerant": {"type": "bool", "default": False},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    asked: dict[str, Any] = module.params
    try:
        with ThreadPoolExecutor(PARALLEL) as pool:
            results = list(pool.map(lambda item: answer(asked["argv"], item, asked["timeout"]), asked["items"]))
    except OSError as error:
        module.fail_json(msg=f"cannot run {asked['argv'][0]}: {error}")
    failed = [result for result in results if result["rc"]]
    if failed and not asked["tolerant"]:
        first = failed[0]
        message = f"{' '.join(filled(asked['argv'], first['item']))}: exit status {first['rc']}: {first['stderr']}"
        module.fail_json(msg=message, results=results)
    module.exit_json(changed=False, results=results)


if __name__ == "__main__":
    main()
