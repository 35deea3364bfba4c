"""Breaks a copy of the checkout by one kept patch after the other, and shows that the mapped tests notice.

LAW: the checkout itself is never touched. Usage: python -m tests.mutants.run [WORD…]; a word chooses the patches that
have it in their name. Exit 1 where a mutant lives, a patch no longer applies, or a test fails without any.
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

LANES: Final = 2
PATIENCE: Final = 300
"""Seconds that one mutant's tests may take on an idle machine; a mutant may well hang what it breaks."""
HANGING: Final = 60
"""Seconds, likewise, after which one test ends."""

CAUGHT: Final = "caught"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant, and in how many seconds."""

    mutant: Mutant
    verdict: str
    seconds: float


class Tree:
    """A copy of the checkout's files, new ones included, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Copy; what git ignores stays behind, but for the tools."""
        self.folder = folder
        command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            # A tracked file may be deleted, and a link stays one.
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
        (folder / ".venv").symlink_to(ROOT / ".venv")

    def apply(self, mutant: Mutant, *options: str) -> bool:
        """Change the copy; False where the patch does not fit."""
        command = ("git", "apply", *LENIENT, *options, str(mutant.path))
        # The copy is no repository, and must not find one above it.
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        done = subprocess.run(command, cwd=self.folder, env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr.strip(), flush=True)
        return done.returncode == 0

    def test(self, tests: tuple[str, ...], *options: str) -> tuple[int | None, str]:
        """Run these tests: exit code (None when they took too long), and what they said."""
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests)
        # Two patches within a second can leave a file of the same age and size, which compiled code would not notice.
        # And a test that fails here is no failure of the suite that runs this.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "", "SUITES_FAILURES": ""}
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=limit(PATIENCE),
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout + done.stderr


def judge(tree: Tree, mutant: Mutant) -> str:
    """Break, test, mend: `caught`, or what went wrong instead."""
    if not tree.apply(mutant):
        return "the patch does not apply"
    try:
        code, said = tree.test(mutant.tests, "-x", f"--timeout={limit(HANGING):.0f}")
    finally:
        tree.apply(mutant, "--reverse")
    if code is None:
        return f"no answer in {limit(PATIENCE):.0f} s"
    if code == 0:
        return "LIVES"
    # A file that cannot be read, or a fixture that fails, proves nothing.
    return CAUGHT if code == 1 and re.search(r"^\d+ failed|, \d+ failed|^FAILED ", said, re.MULTILINE) else _last(said)


def _last(said: str) -> str:
    return f"no test failed, but: {(said.strip().splitlines() or ['nothing was said'])[-1][:80]}"


def run_lane(tree: Tree, end: int, waiting: list[Mutant], lock: threading.Lock, results: list[Result]) -> None:
    """Judge mutants from one end until none is left; one that needs an API server waits for the other's."""
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
    """Run every mapped test once without any patch."""
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    began = time.monotonic()
    # The payload's tests and the checkout's both call their root `tests`: one process reads only one of them.
    for payload in (True, False):
        side = tuple(test for test in tests if test.startswith("scheduler/") is payload)
        code, said = tree.test(side, f"--timeout={limit(HANGING):.0f}") if side else (0, "")
        if code != 0:
            print(f"{said[-4000:]}\nthe mapped tests must pass before anything is broken")
            return False
    print(f"{len(tests)} tests without a patch: {time.monotonic() - began:.0f} s", flush=True)
    return True


def main(words: list[str]) -> int:
    """Judge the chosen mutants, in two lanes."""
    chosen = [mutant for mutant in read_mutants() if not words or any(word in mutant.name for word in words)]
    if not chosen:
        print(f"cannot find a patch whose name has {' or '.join(words)} (example: make mutants ARGS=lease)")
        return 2
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="gpu-scheduler-mutants-") as folder:
        trees = [Tree(Path(folder) / f"lane-{number}") for number in range(LANES)]
        if not unbroken(trees[0], chosen):
            return 1
        lock = threading.Lock()
        # One lane begins with those that need an API server, which cannot share their turn, the other with the rest.
        waiting = sorted(chosen, key=lambda mutant: not mutant.needs_api_server)
        with ThreadPoolExecutor(LANES) as pool:
            ends = zip(trees, (0, -1), strict=True)
            for done in [pool.submit(run_lane, tree, end, waiting, lock, results) for tree, end in ends]:
                done.result()
    return report(results)


def report(results: list[Result]) -> int:
    """Print the table; return 0 when every mutant was caught."""
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
