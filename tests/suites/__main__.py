"""Runs test suites in the given order and prints the seconds of each.

A suite is a list of steps. Some are linters or molecule, so pytest alone cannot run a suite. It passes if every step
exits with 0. All suites run even after one has failed, so that one run shows all failures. The failures are printed
again at the end, because a run prints thousands of lines. Ctrl-C, SIGTERM and SIGHUP end the steps and clean up.

Usage: python -m tests.suites SUITE[+SUITE…]…
Suites after a plus run beside the first, at a lower priority unless their programs have Leases: a suite with a cluster
waits half of its time. `beyond` stands for every suite that `make test` does not run, and `in-turn` for one of those,
chosen by the commit.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never

from tests.suites.bare import BARE
from tests.suites.beyond import BEYOND
from tests.suites.gate import GATE
from tests.suites.results import new_run, results_of, write_steps
from tests.suites.rotation import choose_in_turn
from tests.suites.steps import (
    GIVE_WAY,
    GRACE,
    SHORT,
    TEST_CLUSTER_LOCK,
    ClusterTakenError,
    Suite,
    locked,
    print_output,
    run_suite,
    started,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SUITES: Final = {**BARE, **GATE, **BEYOND}
MOST_PRINTED: Final = 12
"""Failures printed at the end. If more tests fail, the first ones usually show the cause."""
INNER: Final = os.environ.get("SUITES_FAILURES")
"""The file of failures of the process that runs these suites beside others. That process prints them."""
Result = tuple[str, bool, float]  # a suite, whether it passed, and its seconds


@contextmanager
def _recorded() -> Iterator[Path]:
    """Make the folder of this run's results, which the environment names, and yield the file of failures.

    It has a line for each failed step, and one for each failed test, which the pytest processes write.
    """
    if INNER:
        yield Path(INNER)
        return
    os.environ["SUITES_RESULTS"] = str(new_run())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "failures"
        file.touch()
        os.environ["SUITES_FAILURES"] = str(file)
        yield file


@contextmanager
def _run_beside(names: list[str], priority: tuple[str, ...], results: list[Result]) -> Iterator[None]:
    """Run these suites in a process of their own during the block; print its output afterwards."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        # Python finds the package `tests` because the process runs in the checkout. Its grace: a step's, and a cleanup.
        command = (*priority, sys.executable, "-m", "tests.suites", *names)
        with started(command, output, grace=GRACE + SHORT) as beside:
            yield
            passed = beside.wait() == 0
        print_output(output)
    results.append((" ".join(names), passed, time.monotonic() - began))


def _chosen(asked: list[str]) -> list[str]:
    """Replace `beyond` and `in-turn` by names of suites."""
    if "in-turn" not in asked:
        return [name for word in asked for name in (BEYOND if word == "beyond" else (word,))]
    name, why = choose_in_turn(list(BEYOND))
    print(f"suite {name}: {why} (SUITE=NAME .ci/run chooses another)", flush=True)
    return [name if word == "in-turn" else word for word in asked]


def main(words: list[str]) -> int:
    """Run the given suites; return 0 if all passed, 1 if one failed, 2 if a name is unknown."""
    asked = _chosen(words)
    together = [names.split("+") for names in asked]
    unknown = [name for names in together for name in names if name not in SUITES]
    if unknown or not asked:
        print(f"cannot run suite {' '.join(unknown) or '(none)'}: known suites are {' '.join(SUITES)}")
        return 2
    suites = {name: SUITES[name]() for names in together for name in names}
    # First of all: an hour of tests would be in vain if the cluster were taken then. INNER's parent has it.
    alone = not INNER and any(suite.cluster for suite in suites.values())
    try:
        with locked(TEST_CLUSTER_LOCK) if alone else nullcontext():
            return _run(together, suites)
    except ClusterTakenError as error:
        print(error)
        return 1


def _run(together: list[list[str]], suites: dict[str, Suite]) -> int:
    results: list[Result] = []
    with _recorded() as report:
        for name, *others in together:
            print(f"\n=== suite {name}", flush=True)
            priority = () if any(suites[other].leases for other in others) else GIVE_WAY
            with _run_beside(others, priority, results) if others else nullcontext():
                began = time.monotonic()
                folder = results_of(name)
                outcomes = run_suite(suites[name], {"SUITES_RESULTS": str(folder)})
                write_steps(folder, name, outcomes)
                failed = [each for each in outcomes if each.failure]
                results.append((name, not failed, time.monotonic() - began))
                with report.open("a", encoding="utf-8") as file:
                    file.writelines(f"{name}, step {each.name}: {each.failure}\n" for each in failed)
        failures = report.read_text(encoding="utf-8").splitlines()
    if failures and not INNER:
        print("\nwhat failed:", *failures[:MOST_PRINTED], sep="\n  ")
    return _report(results)


def _report(results: list[Result]) -> int:
    print("\nsuite          result   seconds")
    for name, passed, seconds in results:
        print(f"{name:<14} {'passed' if passed else 'FAILED':<8} {seconds:7.1f}")
    good = sum(passed for _, passed, _ in results)
    print(f"suites: {good} passed, {len(results) - good} failed")
    return 0 if good == len(results) else 1


def _end(number: int, _frame: FrameType | None) -> Never:
    """End the steps and clean up, by an exception."""
    # make passes SIGTERM on to processes that have it already: the second must not end the cleanup. A function in
    # place of SIG_IGN, which the steps of the cleanup would inherit.
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda *_: None)
    print(f"\nended by {signal.Signals(number).name}: the steps are ended, and the cleanup runs", flush=True)
    sys.exit(128 + number)


if __name__ == "__main__":
    # Also where SIGINT is ignored, as in a script's background: steps would inherit that, and ignore SIGINT, too.
    signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGTERM, _end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # which is what nohup asks for
        signal.signal(signal.SIGHUP, _end)
    sys.exit(main(sys.argv[1:]))
