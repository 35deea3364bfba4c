"""The kept mutants apply to the current code, and `make mutation` makes those that its operators say.

`make mutants` shows that tests fail for the kept ones.
"""

from __future__ import annotations

import subprocess

import pytest

from tests import mutation
from tests.mutants.patches import LENIENT, ROOT, Mutant, missing_tests, read_mutants

MUTANTS = read_mutants()


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


def test_mutants_are_made_of_a_commit_or_of_a_number_of_promises(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither, and an unknown promise, is an error that says what there is."""
    assert mutation.main(["--sample", "2", "nonsense-1"]) == 2
    assert mutation.main([]) == 2

    assert "cannot make mutants of --sample 2 nonsense-1: name a commit" in capsys.readouterr().out
