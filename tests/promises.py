"""Holds the tests against docs/contract.md: each promise has a test that names it, and each name is a promise.

A test of any suite may name one, but one test at least is run by `make test`.
LAW: the tests are collected, never run. Usage: promises.py [--table]
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
CONTRACT: Final = ROOT / "docs" / "contract.md"
FOLDERS: Final = ("scheduler/tests", "check/tests", "simulator/tests", "tests")
BEYOND_THE_GATE: Final = ("tests/cluster/redeploy/", "tests/cluster/healing/")
"""Tests that `make test-all` runs and `make test` does not; those that are marked long are not collected either."""
LINE: Final = re.compile(r"- \*\*(?P<id>[^*]*)\*\* +(?P<text>.*)")
ID: Final = re.compile(r"[a-z]+-[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Named:
    """One test and the promises that it names; a table's rows are one test."""

    test: str
    ids: tuple[str, ...]


@dataclass(slots=True)
class Collector:
    """A plugin of pytest that keeps what was collected."""

    named: set[Named] = field(default_factory=set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep each test's promises."""
        for item in session.items:
            ids = tuple(str(one) for mark in item.iter_markers("promise") for one in mark.args or ("(nothing)",))
            self.named.add(Named(item.nodeid.partition("[")[0], ids))


def promised(text: str) -> list[str]:
    """Give the ids of the contract's lines, in their order."""
    return [found["id"] for line in text.splitlines() if (found := LINE.match(line))]


def collected() -> set[Named]:
    """Collect the suites' tests; a test file that cannot be read ends the program with pytest's own words."""
    collector, output = Collector(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = pytest.main(["--collect-only", "-q", "--cluster", *FOLDERS], plugins=[collector])
    if code != pytest.ExitCode.OK:
        sys.exit(f"cannot collect {' '.join(FOLDERS)}:\n{output.getvalue()}")
    return collector.named


def faults(ids: list[str], named: set[Named]) -> list[str]:
    """Say what is wrong between the contract's ids and the tests' names, a sentence each."""
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


def table(ids: list[str], named: set[Named]) -> str:
    """Give each id with the tests that name it."""
    rows = ((one, sorted(each.test for each in named if one in each.ids)) for one in ids)
    return "\n".join(f"{one:<10} {test}" for one, tests in rows for test in tests or ["(no test)"])


def main(arguments: list[str]) -> int:
    """Compare; return 0 when contract and tests agree."""
    ids, named = promised(CONTRACT.read_text()), collected()
    if arguments == ["--table"]:
        print(table(ids, named))
        return 0
    wrong = faults(ids, named)
    print("\n".join(wrong) if wrong else f"{len(ids)} promises, each named by a test")
    if wrong:
        print(f"\n{len(ids)} promises, {len(wrong)} faults; docs/testing.md says how tests name promises")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
