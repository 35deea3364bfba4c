"""Applies each kept mutant to a copy of the checkout, and checks that its tests fail.

It never changes the checkout. Usage: python -m tests.mutants.run [WORD…]; a word chooses the patches with this word in
their name, and the id of a promise chooses those that break it. The exit status is 1 if a mutant survives, a patch no
longer applies, or a test fails without a patch.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.patches import LENIENT, ROOT, Mutant, read_mutants
from tests.waiting import limit

GROUPS: Final = 2
TIMEOUT: Final = 300
"""Seconds that one mutant's tests may take on an idle machine. A mutant may make them hang."""
HANGING: Final = 60
"""Seconds that one test may take on an idle machine."""

CAUGHT: Final = "caught"


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a mutant (`caught`, or the failure), and the seconds that it took."""

    mutant: Mutant
    verdict: str
    seconds: float


class Tree:
    """A copy of the checkout's files, untracked ones included, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Copy the files. Ignored files are not copied; `.venv` is linked."""
        self.folder = folder
        command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            # A tracked file may be deleted in the checkout. A link is copied as a link.
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        (folder / ".venv").symlink_to(ROOT / ".venv")

    def apply(self, mutant: Mutant, *options: str) -> bool:
        """Apply the patch to the copy; return False if it does not apply."""
        command = ("git", "apply", *LENIENT, *options, str(mutant.path))
        # The copy is not a repository, and git must not use one in a parent folder.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        done = subprocess.run(command, cwd=self.folder, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr.strip(), flush=True)
        return done.returncode == 0

    def test(self, tests: tuple[str, ...], *options: str) -> tuple[int | None, str]:
        """Run these tests; return pytest's exit code (None if they took too long) and its output."""
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long", *options, *tests)
        # No compiled files: two patches within a second can leave a file of the same age and size, and Python would use
        # the old one. No SUITES_FAILURES: a test that fails here is not a failure of the suite. The copy's own roles.
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": "",
            "SUITES_FAILURES": "",
            "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"),
        }
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=limit(TIMEOUT),
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr


def judge(tree: Tree, mutant: Mutant) -> str:
    """Apply the patch, run its tests and revert it. Return `caught`, or what went wrong."""
    if not tree.apply(mutant):
        return "the patch does not apply"
    try:
        code, output = tree.test(mutant.tests, "-x", f"--timeout={limit(HANGING):.0f}")
    finally:
        tree.apply(mutant, "--reverse")
    if code is None:
        return f"no answer in {limit(TIMEOUT):.0f} s"
    if code == 0:
        return "LIVES"
    # An error in collection or in a fixture does not show that a test catches the mutant.
    return (
        CAUGHT if code == 1 and re.search(r"^\d+ failed|, \d+ failed|^FAILED ", output, re.MULTILINE) else _last(output)
    )


def _last(output: str) -> str:
    return f"no test failed, but: {(output.strip().splitlines() or ['nothing was said'])[-1][:80]}"


def run_group(tree: Tree, end: int, waiting: list[Mutant], lock: threading.Lock, results: list[Result]) -> None:
    """Test mutants from one end of the list until none is left. Only one at a time may use an API server."""
    while waiting:
        mutant = waiting.pop(end)
        if mutant.needs_api_server:
            lock.acquire()
        began = time.monotonic()
        try:
            verdict = judge(tree, mutant)
        finally:
            if mutant.needs_api_server:
                lock.release()
        results.append(Result(mutant, verdict, time.monotonic() - began))
        print(f"{len(results):>3}  {mutant.name:<60} {verdict}", flush=True)


def unbroken(tree: Tree, mutants: list[Mutant]) -> bool:
    """Run the tests of all mutants once without a patch; return whether they passed."""
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    began = time.monotonic()
    # The folder of the package's tests and that of the checkout are both named `tests`: each needs its own process.
    for payload in (True, False):
        side = tuple(test for test in tests if test.startswith("scheduler/") is payload)
        code, output = tree.test(side, f"--timeout={limit(HANGING):.0f}") if side else (0, "")
        if code != 0:
            print(f"{output[-4000:]}\nthe mapped tests must pass before anything is broken")
            return False
    print(f"{len(tests)} tests without a patch: {time.monotonic() - began:.0f} s", flush=True)
    return True


def _is_named(mutant: Mutant, word: str) -> bool:
    return word in mutant.name or word in mutant.promises


def main(words: list[str]) -> int:
    """Test the chosen mutants in two threads, each with a copy of the checkout; return the exit status."""
    chosen = [mutant for mutant in read_mutants() if not words or any(_is_named(mutant, word) for word in words)]
    if not chosen:
        print(f"cannot find a patch with {' or '.join(words)} in its name, or a promise of that id (example: lease)")
        return 2
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="gpu-scheduler-mutants-") as folder:
        trees = [Tree(Path(folder) / f"lane-{number}") for number in range(GROUPS)]
        if not unbroken(trees[0], chosen):
            return 1
        lock = threading.Lock()
        # One thread begins with the mutants that need an API server, one at a time, the other thread with the rest.
        waiting = sorted(chosen, key=lambda mutant: not mutant.needs_api_server)
        with ThreadPoolExecutor(GROUPS) as pool:
            ends = zip(trees, (0, -1), strict=True)
            for done in [pool.submit(run_group, tree, end, waiting, lock, results) for tree, end in ends]:
                done.result()
    return report(results)


def report(results: list[Result]) -> int:
    """Print the table of results; return 0 if every mutant was caught."""
    print(f"\n{'mutant':<60} seconds")
    for result in sorted(results, key=lambda result: result.mutant.name):
        print(f"{result.mutant.name:<60} {result.seconds:7.1f}  {result.verdict}")
    bad = [result for result in results if result.verdict != CAUGHT]
    for result in bad:
        print(f"\n{result.mutant.name}: {result.verdict}\n  {result.mutant.what}\n  {' '.join(result.mutant.tests)}")
    print(f"\nmutants: {len(results) - len(bad)} caught, {len(bad)} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
