"""One command for several items: one result for each, in their order, and no failure is hidden."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import limit

MODULE = Path(__file__).resolve().parents[2] / "plugins" / "modules" / "parallel_command.py"
UPPER_CASE = ["sh", "-c", 'echo "$0" | tr a-z A-Z; echo oops >&2; exit {rc}', "{word}"]


def run(**arguments: object) -> dict[str, Any]:
    """Run the module as Ansible does and return its result."""
    done = subprocess.run(
        (sys.executable, MODULE),
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        timeout=limit(30),
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_answers_keep_the_order_and_change_nothing() -> None:
    """The results have the order of the items, whichever command ends first."""
    answer = run(argv=UPPER_CASE, items=[{"word": "first", "rc": 0}, {"word": "second", "rc": 0}])

    assert answer["changed"] is False
    assert [(each["item"]["word"], each["stdout"]) for each in answer["results"]] == [
        ("first", "FIRST"),
        ("second", "SECOND"),
    ]


def test_failure_names_the_command_and_its_output() -> None:
    """A failed command fails the task, unless `tolerant` is set."""
    items = [{"word": "good", "rc": 0}, {"word": "bad", "rc": 3}]
    failed = run(argv=UPPER_CASE, items=items)
    tolerated = run(argv=UPPER_CASE, items=items, tolerant=True)

    assert failed["failed"] is True
    assert failed["msg"].endswith("bad: exit status 3: oops")
    assert [each["rc"] for each in tolerated["results"]] == [0, 3]


def test_missing_program_and_slow_command_are_reported() -> None:
    """A missing program fails with a sentence; a command that takes too long counts as failed."""
    missing = run(argv=["no-such-program"], items=[1])
    slow = run(argv=["sleep", "60"], items=[1], timeout=1, tolerant=True)

    assert missing["msg"].startswith("cannot run no-such-program: ")
    assert slow["results"][0]["rc"] == 124
    assert slow["results"][0]["stderr"] == "no answer in 1 s"
