"""The kept mutants apply to the current code, and `make mutation` makes those that its operators say.

`make mutants` shows that tests fail for the kept ones.
"""

from __future__ import annotations

import subprocess

import pytest

from tests import mutation
from tests.mutants.patches import LENIENT, ROOT, Mutant, missing_tests, read_mutants
from tests.mutants.python_changes import python_changes
from tests.mutants.text_changes import text_changes

MUTANTS = read_mutants()
PYTHON = """\
from __future__ import annotations

@final
def first(values: list[int | None], end: int = 3) -> int | None:
    if values:
        return values[0]
    log(end)
    raise ValueError
"""
MADE = {
    4: ["end: int = 3 → end: int = 4"],
    5: ["if values: → if not (values):"],
    6: ["return values[0] → return None", "return values[0] → return values[1]"],
    7: ["log(end) → log(None)", "log(end) → pass"],
    8: ["raise ValueError → pass"],
}
TEXT = """\
# true
- expression: "size(a) >= 2 && !b"  # of {{ one }}
  verbs: [get, list]
"""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_applies_and_names_existing_tests(mutant: Mutant) -> None:
    """It changes one line, a sentence says what it breaks, it applies, and the tests that it names exist."""
    applies = ("git", "apply", "--check", *LENIENT, str(mutant.path))
    done = subprocess.run(applies, cwd=ROOT, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert len([line for line in mutant.changed if line.startswith("-")]) <= 1
    assert len([line for line in mutant.changed if line.startswith("+")]) <= 1
    assert mutant.what.endswith(".")
    assert mutant.tests
    assert missing_tests(mutant) == []


def test_no_patch_changes_python() -> None:
    """`make mutation` makes mutants of Python on the lines that changed."""
    assert [mutant.name for mutant in MUTANTS if mutant.file.endswith(".py")] == []


@pytest.mark.parametrize("line", range(1, 9))
def test_operators_change_the_lines_that_were_named_and_no_annotation(line: int) -> None:
    """Numbers, conditions, returned values, calls, arguments and `raise`; imports and decorators stay."""
    made = sorted(change.words for change in python_changes("a.py", PYTHON, {line}))

    assert [
        words.replace("def first(values: list[int | None], ", "").replace(") -> int | None:", "") for words in made
    ] == MADE.get(line, [])


def test_operators_of_text_change_one_number_boolean_operator_or_word() -> None:
    """A remark stays, and what a template inserts."""
    made = {change.words.partition(" → ")[2] for change in text_changes("a.yaml", TEXT)}

    assert made == {
        '- expression: "size(a) > 2 && !b"  # of {{ one }}',
        '- expression: "size(a) >= 3 && !b"  # of {{ one }}',
        '- expression: "size(a) >= 2 || !b"  # of {{ one }}',
        '- expression: "size(a) >= 2 && b"  # of {{ one }}',
        "verbs: [getx, list]",
        "verbs: [get, listx]",
    }


def test_mutants_are_made_of_a_commit_or_of_a_number_of_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither, and an unknown promise, is an error that says what there is."""
    assert mutation.main(["--sample", "2", "nonsense-1"]) == 2
    assert mutation.main([]) == 2

    assert "cannot make mutants of --sample 2 nonsense-1: name a commit" in capsys.readouterr().out
