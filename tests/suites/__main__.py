"""Runs suites of tests in the order given and prints each suite's seconds.

A suite is a list of steps, linters and molecule among them, so pytest alone cannot run it; it passes when every step
exits with 0. All suites run, even after one failed, so that one run tells everything; a suite that cannot run counts as
failed. What failed is told once more at the end, where it is found without a search through thousands of lines. Usage:
python -m tests.suites SUITE[+SUITE…]…, where those after a plus run beside the first: a cluster waits half of its time,
and what needs no cluster gives way to it. `beyond` stands for every suite that `make test` does not run, and `in-turn`
for the one of them whose turn it is by the commit.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.suites.beyond import BEYOND
from tests.suites.gate import GATE
from tests.suites.rotation import turn
from tests.suites.steps import GIVE_WAY, run_suite, started, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

SUITES: Final = {**GATE, **BEYOND}
MOST_TOLD: Final = 12
"""Failures told at the end: where more tests fail, the first ones name the cause."""
INNER: Final = os.environ.get("SUITES_FAILURES")
"""Where failures are written when these suites run beside others, which then tell of them."""
Result = tuple[str, bool, float]  # a suite, whether it passed, and its seconds


@contextmanager
def _failures() -> Iterator[Path]:
    """Yield the file to which every pytest that a suite starts, however indirectly, writes what failed in it."""
    if INNER:
        yield Path(INNER)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failures"
        file.touch()
        os.environ["SUITES_FAILURES"] = str(file)
        yield file


@contextmanager
def _run_beside(names: list[str], results: list[Result]) -> Iterator[None]:
    """Run these suites in a process that gives way, and tell all that it said when it has ended."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        # The package `tests` is found from the checkout.
        with started((*GIVE_WAY, sys.executable, "-m", "tests.suites", *names), output) as beside:
            yield
            passed = beside.wait() == 0
        tell(output)
    results.append((" ".join(names), passed, time.monotonic() - began))


def _chosen(asked: list[str]) -> list[str]:
    """Put names in the place of words."""
    if "in-turn" not in asked:
        return [name for word in asked for name in (BEYOND if word == "beyond" else (word,))]
    name, why = turn(list(BEYOND))
    print(f"suite {name}: {why} (SUITE=NAME .ci/run chooses another)", flush=True)
    return [name if word == "in-turn" else word for word in asked]


def main(words: list[str]) -> int:
    """Run the suites that are asked for; return 0 when all passed."""
    asked = _chosen(words)
    together = [names.split("+") for names in asked]
    unknown = [name for names in together for name in names if name not in SUITES]
    if unknown or not asked:
        print(f"cannot run suite {' '.join(unknown) or '(none)'}: known suites are {' '.join(SUITES)}")
        return 2
    results: list[Result] = []
    with _failures() as told:
        for name, *others in together:
            print(f"\n=== suite {name}", flush=True)
            with _run_beside(others, results) if others else nullcontext():
                began = time.monotonic()
                passed = run_suite(SUITES[name]())
                results.append((name, passed, time.monotonic() - began))
        failures = told.read_text(encoding="utf-8").splitlines()
    if failures and not INNER:
        print("\nwhat failed:", *failures[:MOST_TOLD], sep="\n  ")
    return _report(results)


def _report(results: list[Result]) -> int:
    print("\nsuite          result   seconds")
    for name, passed, seconds in results:
        print(f"{name:<14} {'passed' if passed else 'FAILED':<8} {seconds:7.1f}")
    good = sum(passed for _, passed, _ in results)
    print(f"suites: {good} passed, {len(results) - good} failed")
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
