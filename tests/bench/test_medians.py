"""The committed medians come from the right repetitions, and pages quote them correctly."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from bench import medians, results
from bench.gated_process import ROOT
from bench.report import target_row
from bench.targets import TARGETS
from tests.bench.sample_results import WRONG, one, session

if TYPE_CHECKING:
    from pathlib import Path

NAMES: Final = ("quick", "standard", "claims", "neighbours", "full")
FACTORS: Final = {("s", "ms"): 1000.0}
"""By the page's unit and the target's, if they differ."""


def test_medians_leave_out_what_went_wrong(tmp_path: Path) -> None:
    """Three valid repetitions have an interval; the written file is read again without a change."""
    made = medians.medians(
        session(
            *(one("O", rate, number) for number, rate in enumerate((90, 80, 85))),
            one("O", 1, 4, **WRONG),
            one("K", 50),
        )
    )
    kube, ours = made.cells

    assert (ours.repetitions, ours.wrong) == (3, 1)
    assert ours.figures["pods/s to the last bind"] == medians.Median(85, 80, 90)
    assert kube.figures["pods/s to the last bind"] == medians.Median(50)
    medians.write(made, tmp_path / "quick.json")
    assert medians.read(tmp_path / "quick.json") == made


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_tables_say_what_the_committed_medians_say(name: str) -> None:
    """Both are written together, from the same session."""
    reported = medians.read(results.FOLDER / f"{name}.json")
    page = (results.FOLDER / f"{name}.md").read_text(encoding="utf-8")

    assert len(reported.targets) == len(TARGETS)
    for target, each in zip(TARGETS, reported.targets, strict=True):
        assert (target.workload, target.what, target.met(each.found)) == (each.workload, each.what, each.met)
        assert f"| {' | '.join(target_row(target, each.found))} |" in page


def test_the_page_quotes_the_medians() -> None:
    """docs/performance.md has each target that `full` has measured once, with the value to the page's digits.

    `make fmt` writes there what `claims` has measured.
    """
    page = (ROOT / "docs/performance.md").read_text(encoding="utf-8").partition("## Figures so far")[2]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if " | " in line]
    quoted = [(row[0], row[1], row[3]) for row in rows if len(row) == 4 and row[1][0] in "≥≤"]
    left = [each for each in medians.read(results.FOLDER / "full.json").targets if each.found is not None]

    for what, aim, now in quoted:
        workload = re.split(r"[ ,]", what)[0]
        target = next(
            each for each in left if (each.workload, output(each)) == (workload, aim.removesuffix(" of a core"))
        )
        left.remove(target)
        assert target.found is not None
        numbers = re.findall(r"\d[\d.]*", now)
        unit = re.search(r"\d ([a-zA-Z]+)", now.replace("*", "").partition(" (")[0])
        factor = FACTORS.get((unit.group(1) if unit else "", target.unit), 1.0)
        found = (target.found.value, target.found.low, target.found.high)
        for number, value in zip(numbers, found[: 3 if "(" in now else 1], strict=False):
            digits = len(number.partition(".")[2])
            assert value is not None
            # Half of the last digit, and a little more: the page rounds values that the tables have rounded.
            assert value / factor == pytest.approx(float(number), abs=0.55 * 10**-digits), what
        assert now.startswith("**") is not target.met, what
    assert left == []


def output(target: medians.TargetMedian) -> str:
    """Return the target as the page writes it."""
    return f"{'≥' if target.at_least else '≤'} {target.bound:g} {target.unit}".strip()
