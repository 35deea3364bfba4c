"""Keeps the times of the last runs as JUnit files: one of each pytest process, and one of the steps of each suite.

Usage: python -m tests.suites.results [WORD…]
Prints the seconds of each step and test file in the last runs, the longest first. Words select by a part of the name.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from tests.suites.steps import ROOT

if TYPE_CHECKING:
    from tests.suites.steps import Outcome

RESULTS: Final = ROOT / ".test_results_cache"
KEPT: Final = 20
"""Runs that are kept, of about 1 MB each."""
SHOWN: Final = 5
"""Runs that are printed, a column each."""
ROWS: Final = 40


def new_run() -> Path:
    """Make the folder of a new run, and delete the oldest."""
    folder = RESULTS / f"{time.strftime('%Y-%m-%d_%H.%M.%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    for old in _runs()[:-KEPT]:
        shutil.rmtree(old)
    return folder


def results_of(suite: str) -> Path:
    """Make the folder of a suite of this run."""
    folder = Path(os.environ["SUITES_RESULTS"]) / suite
    folder.mkdir(exist_ok=True)
    return folder


def write_steps(folder: Path, suite: str, outcomes: list[Outcome]) -> None:
    """Write the seconds of each step."""
    written = ET.Element("testsuite", name=suite)
    for each in outcomes:
        case = ET.SubElement(written, "testcase", classname="step", name=each.name, time=f"{each.seconds:.3f}")
        if each.failure:
            ET.SubElement(case, "failure", message=each.failure)
    ET.ElementTree(written).write(folder / "steps.xml", encoding="utf-8")


def _runs() -> list[Path]:
    return sorted(RESULTS.glob("*"))


def _seconds(run: Path) -> dict[str, float]:
    """Return the seconds of each step and each test file of a run."""
    found = defaultdict[str, float](float)
    for file in run.glob("*/*.xml"):
        for case in ET.parse(file).iter("testcase"):  # noqa: S314 - written by pytest
            name = case.get("name") if file.stem == "steps" else case.get("classname")
            found[f"{file.parent.name} {name}"] += float(case.get("time", 0))
    return found


def main(words: list[str]) -> None:
    """Print the table."""
    runs = {run.name: _seconds(run) for run in _runs()[-SHOWN:]}
    names = {name for run in runs.values() for name in run if all(word in name for word in words)}
    print(*(f"{run[5:16]:>12}" for run in runs), " seconds of")
    for name in sorted(names, key=lambda name: -max(run.get(name, 0.0) for run in runs.values()))[:ROWS]:
        print(*(f"{run[name]:12.1f}" if name in run else f"{'-':>12}" for run in runs.values()), "", name)


if __name__ == "__main__":
    main(sys.argv[1:])
