"""Questions to several things at once: one answer each, in their order, and nothing hidden."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.contracts.loading import load
from tests.waiting import limit

MODULE = Path(__file__).resolve().parents[2] / "plugins" / "modules" / "ask_all.py"
SHOUT = ["sh", "-c", 'echo "$0" | tr a-z A-Z; echo oops >&2; exit {rc}', "{word}"]


def run(**arguments: object) -> dict[str, Any]:
    """Run the module as Ansible does and return what it answers."""
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


def test_each_item_fills_the_command() -> None:
    """A dictionary's keys are put in by name, anything else as `item`; other braces stay."""
    filled = load("plugins", "modules", "ask_all.py").filled

    assert filled(["get", "{name}", "{}{{other}}"], {"name": "a-0"}) == ["get", "a-0", "{}{{other}}"]
    assert filled(["exec", "{item}"], "node1") == ["exec", "node1"]


def test_answers_keep_the_order_and_change_nothing() -> None:
    """Whichever command ends first, the answers stand as the items were given."""
    answer = run(argv=SHOUT, items=[{"word": "first", "rc": 0}, {"word": "second", "rc": 0}])

    assert answer["changed"] is False
    assert [(each["item"]["word"], each["stdout"]) for each in answer["results"]] == [
        ("first", "FIRST"),
        ("second", "SECOND"),
    ]


def test_failure_names_the_command_and_what_it_said() -> None:
    """A command that fails fails the task, unless failing is an answer too."""
    items = [{"word": "good", "rc": 0}, {"word": "bad", "rc": 3}]
    failed = run(argv=SHOUT, items=items)
    tolerated = run(argv=SHOUT, items=items, tolerant=True)

    assert failed["failed"] is True
    assert failed["msg"].endswith("bad: exit status 3: oops")
    assert [each["rc"] for each in tolerated["results"]] == [0, 3]


def test_missing_program_and_slow_command_are_told() -> None:
    """A program that is not there fails in a sentence; a command that takes too long is an answer like a failure."""
    missing = run(argv=["no-such-program"], items=[1])
    slow = run(argv=["sleep", "60"], items=[1], timeout=1, tolerant=True)

    assert missing["msg"].startswith("cannot run no-such-program: ")
    assert slow["results"][0]["rc"] == 124
    assert slow["results"][0]["stderr"] == "no answer in 1 s"


def test_no_items_no_answers() -> None:
    """Asking about nothing is no error."""
    assert run(argv=["true"], items=[])["results"] == []
