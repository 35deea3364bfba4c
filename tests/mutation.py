"""Runs mutmut on the pure modules and counts the mutants that their own tests catch.

It works on a copy, in the layout that mutmut expects, with one process of the lowest priority. Usage:
mutation.py [MODULE… | --since COMMIT], for example `mutation.py ledger.indices`, or `mutation.py --since main` for the
modules that differ from that commit. Without arguments, it takes all pure modules (PURE in tests/suites/gate.py). The
exit status is 0 for any score: people read the survivors (docs/testing.md).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from tests.suites.gate import PURE

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = ROOT / ".mutation_cache"
PACKAGE: Final = ROOT / "scheduler/gpu_scheduler"
TESTS: Final = ROOT / "scheduler/unit_tests"
PURE_TESTS: Final = (
    "core/*.py",
    "webhook/test_review*.py",
    "webhook/test_job_review.py",
    "webhook/test_template_review.py",
    "controller/test_work_queue.py",
    "controller/test_workload_status.py",
    "controller/test_create_failures.py",
    "controller/test_gpu_workload.py",
    "controller/test_gpu_node_status.py",
    "monitor/test_readings.py",
    "cli/doctor/test_examine.py",
    "cli/doctor/healthy.py",
    "cli/test_verification.py",
)
HELPERS: Final = (ROOT / "tests/waiting.py", ROOT / "tests/placements.py", TESTS / "steps.py")
"""The files that those tests import."""
RESULT: Final = re.compile(r"^\s*(?P<name>\S+__mutmut_\d+): (?P<verdict>.+)$", re.MULTILINE)
CAUGHT: Final = frozenset({"killed", "timeout", "caught by type check"})
CONFIG: Final = """\
[tool.mutmut]
source_paths = ["src"]
only_mutate = [{modules}]
pytest_add_cli_args_test_selection = ["tests"]
use_git_change_detection = false

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib", "-p", "no:cacheprovider"]
asyncio_mode = "auto"
asyncio_default_fixture_loop_scope = "function"
timeout = 600
pythonpath = ["src", "."]
"""

# A property runs 20 fixed examples. Tests that measure time are left out, because the machine is busy.
FEWER: Final = """\
import pytest
from hypothesis import settings

FEW = {"max_examples": 20, "derandomize": True, "database": None, "deadline": None}
settings.register_profile("few", **FEW)
settings.load_profile("few")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if "cost" not in item.name and "linear" not in item.name]
    for item in items:
        for one in (getattr(item, "cls", None), getattr(item, "obj", None)):
            for name in ("settings", "_hypothesis_internal_use_settings"):
                if isinstance(getattr(one, name, None), settings):
                    setattr(one, name, settings(getattr(one, name), **FEW))
"""


def changed(known: list[str], since: str) -> list[str]:
    """Return the known modules that differ from the commit in the working tree."""
    command = ("git", "diff", "--name-only", "--relative", since, "--", ".")
    listed = subprocess.run(command, cwd=PACKAGE, check=True, capture_output=True, text=True).stdout
    paths = set(listed.splitlines())
    return [name for name in known if f"{name.replace('.', '/')}.py" in paths]


def lay_out(modules: list[str]) -> None:
    """Copy the package and the tests of the pure modules to where mutmut expects them."""
    shutil.rmtree(WORK, ignore_errors=True)
    leave = shutil.ignore_patterns("__pycache__", ".hypothesis")
    shutil.copytree(PACKAGE, WORK / "src" / "gpu_scheduler", ignore=leave)
    for path in (found for pattern in PURE_TESTS for found in TESTS.glob(pattern)):
        copy = WORK / "tests" / path.relative_to(TESTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    for path in HELPERS:
        shutil.copy2(path, WORK / "tests")
    (WORK / "tests" / "conftest.py").write_text(FEWER)
    chosen = ", ".join(f'"src/gpu_scheduler/{name.replace(".", "/")}.py"' for name in modules)
    (WORK / "pyproject.toml").write_text(CONFIG.format(modules=chosen))


def mutmut(*arguments: str) -> str:
    """Run a command of mutmut and return its output; exit with the output if it fails."""
    command = ("nice", "-n", "19", sys.executable, "-m", "mutmut", *arguments)
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(command, cwd=WORK, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"mutmut {' '.join(arguments)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def main(names: list[str]) -> int:
    """Mutate the modules, show the survivors, and print the score of each module."""
    files = (path for pattern in PURE for path in PACKAGE.glob(pattern.replace("core/*", "core/**/[a-z]*.py")))
    known = sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in files)
    if names[:1] == ["--since"] and len(names) == len(("--since", "COMMIT")):
        names = changed(known, names[1])
        if not names:
            print("no pure module has changed")
            return 0
    unknown = [name for name in names if not any(f".{each}".endswith(f".{name}") for each in known)]
    if unknown:
        print(f"cannot mutate {' '.join(unknown)}: the pure modules are {' '.join(known)}")
        return 2
    chosen = [each for each in known if not names or any(f".{each}".endswith(f".{name}") for name in names)]
    began = time.monotonic()
    lay_out(chosen)
    mutmut("run", "--max-children", "1")
    verdicts = {found["name"]: found["verdict"] for found in RESULT.finditer(mutmut("results", "--all", "true"))}
    survivors = [name for name, verdict in verdicts.items() if verdict not in CAUGHT]
    for name in survivors:
        print(f"\n{name}: {verdicts[name]}\n{mutmut('show', name)}")
    total, lost = (Counter(name.split(".", 1)[1].rpartition(".")[0] for name in each) for each in (verdicts, survivors))
    print(f"\n{'module':<28} mutants  caught  score")
    for module in sorted(total):
        print(_row(module, total[module], lost[module]))
    print(_row("all", len(verdicts), len(survivors)))
    print(f"{time.monotonic() - began:.0f} s")
    return 0


def _row(name: str, mutants: int, lost: int) -> str:
    return f"{name:<28} {mutants:>7} {mutants - lost:>7} {100 * (mutants - lost) / max(mutants, 1):>5.1f}%"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
