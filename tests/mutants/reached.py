"""Finds the lines of Python that tests reach, also in the programs that they start."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from coverage import CoverageData

from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Reached = dict[str, dict[int, set[str]]]
"""For each file and line the tests that reach it. IMPORTED is a test of its own."""

IMPORTED: Final = ""
PROGRAM: Final = "(a program)"
"""Stands for the test whose program reached the line."""
SOURCES: Final = ("scheduler/gpu_scheduler", "check", "roles", "plugins")
TIMEOUT: Final = 900
# Programs that tests start have scheduler/ on their path, and Python imports this at their start.
STARTS: Final = "import coverage\n\ncoverage.process_startup()\n"


def reached(folder: Path, tests: Sequence[str]) -> Reached:
    """Run the tests in this copy of the checkout, which must pass, and return what they reach."""
    data = folder / ".coverage_cache"
    data.mkdir(exist_ok=True)
    for old in data.iterdir():
        old.unlink()
    config = folder / ".coverage_reached"
    sources = ",".join(str(folder / source) for source in SOURCES)
    config.write_text(f"[run]\nsource={sources}\nparallel=true\ndata_file={data}/data\nomit=*_tests/*\n")
    starts = folder / "scheduler/sitecustomize.py"
    starts.write_text(f"import os\n\nos.environ['COVERAGE_PROCESS_START'] = {str(config)!r}\n{STARTS}")
    measure = (sys.executable, "-m", "coverage", "run", f"--rcfile={config}")
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.contexts", "-m", "not long")
    environment = {
        **os.environ,
        "PYTHONPATH": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SUITES_FAILURES": "",
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
    }
    command = (*measure, *pytest, f"--timeout={limit(TIMEOUT):.0f}", *tests)
    done = subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    starts.unlink()
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\ncannot make mutants: these tests fail without any: {' '.join(tests)}")
    return _read(folder, data)


def _read(folder: Path, data: Path) -> Reached:
    found: Reached = {}
    for path in data.iterdir():
        measured = CoverageData(basename=str(path))
        measured.read()
        program = measured.measured_contexts() <= {""}
        for file in measured.measured_files():
            lines = found.setdefault(os.path.relpath(file, folder), {})
            for line, tests in measured.contexts_by_lineno(file).items():
                lines.setdefault(line, set()).update({PROGRAM} if program else tests)
    return found
