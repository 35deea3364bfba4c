"""Makes mutants of single lines and looks for a test that fails: of changed lines, or for promises chosen at random.

Usage: mutation.py --since COMMIT [--sample N --seed N], for the lines of the package that differ from that commit, each
against the unit tests that reach it; mutation.py --sample N --seed N [PROMISE…], for N of all promises (or those of
them that are named), each against the tests that name it and then the tests of the changed module. Everything happens
in a copy of the checkout. The exit status is 0 for any score: people read the survivors (docs/testing.md).
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import secrets
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from textwrap import shorten
from typing import TYPE_CHECKING, Final

import pytest

from tests.mutants.patches import read_mutants
from tests.mutants.python_changes import Change, python_changes
from tests.mutants.reached import IMPORTED, PROGRAM, Reached, reached
from tests.mutants.run import HANGING, Tree
from tests.mutants.text_changes import text_changes
from tests.promises import BEYOND_THE_GATE, CONTRACT, Named, collected, promises_of
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGE: Final = "scheduler/gpu_scheduler"
UNIT: Final = "scheduler/unit_tests"
KINDS: Final = (UNIT, "check/", "simulator/", "tests/contracts", "tests/integration", "tests/attacks")
"""Where tests are, the fastest first. Tests that need a cluster are not run."""
SLOW: Final = ("tests/integration", "tests/attacks")
HUNK: Final = re.compile(r"^@@ -\S+ \+(?P<first>\d+)(?:,(?P<count>\d+))? @@", re.MULTILINE)
FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (?P<test>[^\s\[]+)", re.MULTILINE)
TEXTS: Final = (".yaml", ".yml", ".j2", ".json")
MANIFESTS: Final = tuple(f"tests/contracts/test_{name}.py" for name in ("manifests", "roles", "crds", "charts"))
"""They read what the roles apply."""
PRIORITY: Final = 10
LONGEST: Final = 240
"""Characters of a mutant in its row."""
UNIT_HANGING: Final = 15
"""Seconds that one unit test may take on an idle machine."""
SUMMARY: Final = "short test summary info"
GATE: Final = ("-m", "not long and not plays")
UNTIMED: Final = ("-k", "not cost and not linear")
"""Leaves out the tests that measure time: a busy machine fails them."""
ALIVE: Final = "ALIVE"
KILLED: Final = "killed: "


@dataclass(frozen=True, slots=True)
class Row:
    """A mutant, why it was made, and the test that fails for it, or ALIVE."""

    reason: str
    change: Change | None
    verdict: str


def changed_lines(commit: str) -> dict[str, set[int]]:
    """Return the lines of each file of the package that differ from the commit in the working tree."""
    diff = _git("diff", "--unified=0", "--no-prefix", "--diff-filter=d", commit, "--", f"{PACKAGE}/*.py")
    lines: dict[str, set[int]] = {}
    for part in diff.split("diff --git ")[1:]:
        file = part.partition("\n+++ ")[2].partition("\n")[0]
        for found in HUNK.finditer(part):
            first = int(found["first"])
            lines.setdefault(file, set()).update(range(first, first + int(found["count"] or 1)))
    for file in _git("ls-files", "--others", "--exclude-standard", "--", f"{PACKAGE}/*.py").split():
        lines[file] = set(range(1, len((ROOT / file).read_text().splitlines()) + 1))
    return {file: found for file, found in lines.items() if found}


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True).stdout


def unit_folder(file: str) -> str:
    """Return the folder of the unit tests of this module: the nearest that there is."""
    folder = Path(UNIT) / Path(file).relative_to(PACKAGE).parent
    while not any((ROOT / folder).glob("test_*.py")):
        folder = folder.parent
    return str(folder)


def judge(tree: Tree, change: Change, stages: Iterable[Sequence[str]]) -> str:
    """Write the mutant, run one group of tests after the other until a test fails, and write the file back."""
    path = tree.folder / change.file
    path.write_text(change.after, encoding="utf-8")
    try:
        return _first_failure(tree, stages)
    finally:
        path.write_text(change.before, encoding="utf-8")


def _timeout(tests: Sequence[str]) -> str:
    """A mutant may make a test hang. Unit tests take a few seconds at most."""
    return f"--timeout={limit(UNIT_HANGING if all(test.startswith(UNIT) for test in tests) else HANGING):.0f}"


def _first_failure(tree: Tree, stages: Iterable[Sequence[str]]) -> str:
    for tests in stages:
        if tests:
            whole_files = any("::" not in test for test in tests)
            code, output = tree.test(tuple(tests), "-x", *GATE, *(UNTIMED if whole_files else ()), _timeout(tests))
            failed = FAILED.search(output.rpartition(SUMMARY)[2])
            if failed:
                return f"{KILLED}{failed['test']}"
            if code not in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
                return f"cannot say: {' '.join(tests)} {'did not end' if code is None else output[-300:]}"
    return ALIVE


def mutants_since(tree: Tree, commit: str, most: int, chance: Random) -> list[Row]:
    """Judge the mutants of the lines that differ from the commit, at most so many of them."""
    lines = changed_lines(commit)
    changes = [
        change
        for file, found in sorted(lines.items())
        for change in python_changes(file, (ROOT / file).read_text(encoding="utf-8"), found)
    ]
    if most and most < len(changes):
        changes = sorted(chance.sample(changes, most), key=lambda change: (change.file, change.line))
    if not changes:
        return []
    folders = sorted({unit_folder(change.file) for change in changes})
    by_line = reached(tree.folder, folders)
    rows = []
    for change in changes:
        tests = by_line.get(change.file, {}).get(change.line, set())
        # What runs at import may matter to every test.
        stages = [
            sorted(tests - {IMPORTED, PROGRAM}),
            [unit_folder(change.file)] if tests & {IMPORTED, PROGRAM} else [],
        ]
        row = Row(
            "changed", change, judge(tree, change, stages) if tests else f"{ALIVE}: no unit test reaches the line"
        )
        rows.append(_shown(row))
    return rows


def mutants_of_promises(tree: Tree, ids: Sequence[str], named: set[Named], seed: int) -> list[Row]:
    """Judge one mutant for each of these promises."""
    by_id = {one: sorted(each.test for each in named if one in each.ids and _runs_here(each.test)) for one in ids}
    chosen = {one: _chance(seed, one).choice(_fastest(tests)) for one, tests in by_id.items()}
    inside = {test for one, test in chosen.items() if not test.startswith(SLOW) and not _texts(one, test)}
    known = reached(tree.folder, sorted(inside)) if inside else {}
    rows = []
    for one in ids:
        chance = _chance(seed, one)
        change, others = _change_for(tree, one, chosen[one], known, chance)
        fast = _fastest(by_id[one])
        slow = [test for test in by_id[one] if test not in fast]
        row = Row(one, change, judge(tree, change, (fast, *others, slow)) if change else "no line to change")
        rows.append(_shown(row))
    return rows


def _chance(seed: int, one: str = "") -> Random:
    return Random(f"{seed} {one}")  # noqa: S311 - no secret


def _runs_here(test: str) -> bool:
    return test.startswith(KINDS) and not test.startswith(BEYOND_THE_GATE)


def _fastest(tests: Sequence[str]) -> list[str]:
    """Return the tests of the first kind that there is."""
    return next(found for kind in KINDS if (found := [test for test in tests if test.startswith(kind)]))


def _change_for(
    tree: Tree, one: str, test: str, known: Reached, chance: Random
) -> tuple[Change | None, list[list[str]]]:
    """Return a change of a line that this test reaches, and the tests of the changed file.

    Roles have no coverage: where no unit test names the promise, the line is one of a file that a kept mutant of the
    promise changes.
    """
    if texts := _texts(one, test):
        file = chance.choice(texts)
        change = chance.choice(text_changes(file, (ROOT / file).read_text(encoding="utf-8")))
        tests = {each for mutant in read_mutants() if mutant.file == file for each in mutant.tests}
        return change, [sorted({*tests, *MANIFESTS}, key=lambda each: not each.startswith("tests/contracts"))]
    if test.startswith(SLOW):
        known = reached(tree.folder, [test])
    lines = {
        file: {line for line, tests in found.items() if tests & {test, PROGRAM}} & _in_functions(file)
        for file, found in known.items()
    }
    for files in _preferred([file for file, found in lines.items() if found], test):
        chance.shuffle(files)
        for file in files:
            text = (ROOT / file).read_text(encoding="utf-8")
            change_or_none = next(python_changes(file, text, lines[file], chance), None)
            if change_or_none:
                return change_or_none, _tests_of(file)
    return None, []


def _in_functions(file: str) -> set[int]:
    """Return the lines of the bodies of functions: every test that imports the file runs the others."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = [each for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {line for each in functions for line in range(each.body[0].lineno, (each.end_lineno or 0) + 1)}


def _texts(one: str, test: str) -> list[str]:
    """Return the YAML and Jinja of which the promise is made, or nothing where a unit test names it."""
    if test.startswith(UNIT):
        return []
    return sorted({each.file for each in read_mutants() if one in each.promises and each.file.endswith(TEXTS)})


def _preferred(files: list[str], test: str) -> list[list[str]]:
    """Return the module that the test's file is named after, the modules of its folder, and all that it reaches."""
    path = Path(test.partition("::")[0])
    name, folder = path.stem.removeprefix("test_"), str(path.parent).replace(UNIT, PACKAGE)
    files = sorted(files)
    return [
        [file for file in files if name in {Path(file).stem, Path(file).parent.name}],
        [file for file in files if file.startswith(f"{folder}/")],
        files,
    ]


def _tests_of(file: str) -> list[list[str]]:
    """Return groups of the module's tests, the nearest first."""
    if file.startswith(PACKAGE):
        folder = unit_folder(file)
        own = f"{folder}/test_{Path(file).stem}.py"
        return [[own] if (ROOT / own).is_file() else [], [folder]]
    word = re.compile(rf"\b{re.escape(Path(file).stem)}\b")
    contracts = sorted(ROOT.glob("tests/contracts/test_*.py"))
    return [[str(each.relative_to(ROOT)) for each in contracts if word.search(each.read_text(encoding="utf-8"))]]


def _shown(row: Row) -> Row:
    place = f"{row.change.file}:{row.change.line}  {shorten(row.change.words, LONGEST)}" if row.change else ""
    print(f"{row.reason:<11} {place}\n{'':<11} {row.verdict}", flush=True)
    return row


def confirmed(tree: Tree, rows: Sequence[Row]) -> list[Row]:
    """Run the tests that failed once more, without a mutant: a busy machine also fails tests."""
    tests = sorted({row.verdict.removeprefix(KILLED) for row in rows if row.verdict.startswith(KILLED)})
    code, output = tree.test(tuple(tests), *GATE, _timeout(tests)) if tests else (0, "")
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
        print(f"cannot run the tests that failed once more without a mutant:\n{output[-2000:]}", flush=True)
    failing = {found["test"] for found in FAILED.finditer(output.rpartition(SUMMARY)[2])}
    return [
        replace(row, verdict=f"cannot say: without the mutant, too, fails {test}")
        if any(each.startswith(test) for each in failing)
        else row
        for row in rows
        for test in [row.verdict.removeprefix(KILLED)]
    ]


def report(rows: Sequence[Row], seconds: float) -> None:
    """Print the survivors as patches, and the score."""
    for row in rows:
        if row.change and not row.verdict.startswith(KILLED):
            print(f"\n{row.reason}: {row.verdict}\n{row.change.diff}")
    judged = [row for row in rows if row.change]
    caught = sum(row.verdict.startswith(KILLED) for row in judged)
    print(f"\n{len(judged)} mutants, {caught} caught, {len(judged) - caught} not; {seconds:.0f} s")


def main(words: list[str]) -> int:
    """Make and judge the mutants; return 2 if the words name nothing to do."""
    parser = argparse.ArgumentParser(prog="make mutation", description=__doc__)
    parser.add_argument("--since", metavar="COMMIT", help="mutants of the lines that differ from this commit")
    parser.add_argument(
        "--sample", metavar="N", type=int, default=0, help="how many promises, or changed lines' mutants"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="what is chosen at random; printed if it is not given")
    parser.add_argument("promises", metavar="PROMISE", nargs="*", help="only these of the sample")
    options = parser.parse_args(words)
    ids = promises_of(CONTRACT.read_text(encoding="utf-8"))
    unknown = [one for one in options.promises if one not in ids]
    if unknown or not (options.since or options.sample):
        print(
            f"cannot make mutants of {' '.join(words) or 'nothing'}: name a commit or a number of promises, and none "
            "that docs/contract.md does not have (examples: --since main; --sample 60 --seed 1)"
        )
        return 2
    os.setpriority(os.PRIO_PROCESS, 0, max(PRIORITY, os.getpriority(os.PRIO_PROCESS, 0)))
    seed = secrets.randbelow(10**6) if options.seed is None else options.seed
    chance = _chance(seed)
    began = time.monotonic()
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="gpu-scheduler-mutation-") as folder:
        tree = Tree(Path(folder))
        if options.since:
            rows = mutants_since(tree, options.since, options.sample, chance)
        else:
            drawn = chance.sample(ids, min(options.sample, len(ids)))
            drawn = [one for one in drawn if not options.promises or one in options.promises]
            rows = mutants_of_promises(tree, drawn, collected(), seed)
        rows = confirmed(tree, rows)
    report(rows, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
