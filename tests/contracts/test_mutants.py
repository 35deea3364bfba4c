"""The kept mutants apply to the current code; `make mutants` shows that their tests fail for them."""

from __future__ import annotations

import subprocess

import pytest

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
