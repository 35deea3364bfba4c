"""Compares tests and kept mutants with docs/contract.md: tests name each promise, and each name is a promise's id.

A test of any suite may name a promise, but at least one test of `make test` must name it. Where a kept mutant breaks a
promise, one of the mutant's tests names that promise. The tests are collected and never run, nor are the mutants.
Usage: python -m tests.promises [--table]
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.mutants.patches import read_mutants

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutants.patches import Mutant

ROOT: Final = Path(__file__).resolve().parent.parent
CONTRACT: Final = ROOT / "docs" / "contract.md"
FOLDERS: Final = ("scheduler/unit_tests", "check/check_tests", "simulator/tests", "tests")
BEYOND_THE_GATE: Final = tuple(
    f"tests/cluster/{folder}/" for folder in ("bare", "usage", "redeploy", "healing", "existing", "charts", "isolation")
)
"""Tests that only `make test-all` runs. Tests marked long or plays are not collected either."""
LINE: Final = re.compile(r"- \*\*(?P<id>[^*]*)\*\* +(?P<text>.*)")
ID: Final = re.compile(r"[a-z]+-[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Named:
    """One test and the promises that it names; all rows of a parametrized test are one test."""

    test: str
    ids: tuple[str, ...]


@dataclass(slots=True)
class Collector:
    """A pytest plugin that keeps the collected tests and their promises."""

    named: set[Named] = field(default_factory=set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Store the promises of each test."""
        for item in session.items:
            ids = tuple(str(one) for mark in item.iter_markers("promise") for one in mark.args or ("(nothing)",))
            self.named.add(Named(item.nodeid.partition("[")[0], ids))


def promises_of(text: str) -> list[str]:
    """Return the ids of the contract's lines, in their order."""
    return [found["id"] for line in text.splitlines() if (found := LINE.match(line))]


def collected() -> set[Named]:
    """Return the tests of all suites. If pytest cannot collect a file, exit with its output."""
    collector, output = Collector(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main(["--collect-only", "-q", "--cluster", *FOLDERS], plugins=[collector])
    if code != pytest.ExitCode.OK:
        sys.exit(f"cannot collect {' '.join(FOLDERS)}:\n{output.getvalue()}")
    return collector.named


def faults(ids: list[str], named: set[Named]) -> list[str]:
    """Return the differences between the ids of the contract and the ids that tests name, one sentence each."""
    kept = {one for each in named if not each.test.startswith(BEYOND_THE_GATE) for one in each.ids}
    twice = [one for one, times in Counter(ids).items() if times > 1]
    return [
        *(f"{one}: is no id; write it like map-1" for one in ids if not ID.fullmatch(one)),
        *(f"{one}: stands twice in docs/contract.md" for one in twice),
        *(f"{one}: no test that `make test` runs names it" for one in dict.fromkeys(ids) if one not in kept),
        *(
            f"{one}: is named by {each.test}, but docs/contract.md has no such id"
            for each in sorted(named, key=lambda each: each.test)
            for one in each.ids
            if one not in ids
        ),
    ]


def mutant_faults(ids: list[str], named: set[Named], mutants: Iterable[Mutant]) -> list[str]:
    """Return the mutants whose tests do not name what they break, one sentence each."""
    # The rows of a parametrized test may name different promises.
    by_test: dict[str, set[str]] = {}
    for each in named:
        by_test.setdefault(each.test, set()).update(each.ids)
    broken = [
        (mutant, one, {known for test in mutant.tests for known in by_test.get(test.partition("[")[0], ())})
        for mutant in mutants
        for one in mutant.promises
    ]
    return [
        *(
            f"{mutant.name}: breaks {one}, but docs/contract.md has no such id"
            for mutant, one, _ in broken
            if one not in ids
        ),
        *(
            f"{mutant.name}: none of its tests names {one}"
            for mutant, one, held in broken
            if one in ids and one not in held
        ),
    ]


def table(ids: list[str], named: set[Named]) -> str:
    """Return a line for each id and each test that names it."""
    rows = ((one, sorted(each.test for each in named if one in each.ids)) for one in ids)
    return "\n".join(f"{one:<10} {test}" for one, tests in rows for test in tests or ["(no test)"])


def main(arguments: list[str]) -> int:
    """Compare contract and tests, or print the table; return 0 if they agree."""
    ids, named = promises_of(CONTRACT.read_text()), collected()
    if arguments == ["--table"]:
        print(table(ids, named))
        return 0
    wrong = faults(ids, named) + mutant_faults(ids, named, read_mutants())
    print("\n".join(wrong) if wrong else f"{len(ids)} promises, each named by a test")
    if wrong:
        print(f"\n{len(ids)} promises, {len(wrong)} faults; docs/testing.md says how tests name promises")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
