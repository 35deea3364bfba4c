"""`python -m bench quick|standard|full`: measure, and write results, report and plots."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from bench import plots, results, session
from bench.prompted import ROOT
from bench.report import markdown

if TYPE_CHECKING:
    from pathlib import Path

PLANS: Final = {"quick": session.quick, "standard": session.standard}


def main() -> int:
    """Measure a plan's cells; what is done is written after each, so that an interrupted run is not lost."""
    if sys.argv[1:] not in [[name] for name in PLANS]:
        print(f"cannot measure {' '.join(sys.argv[1:])!r}: must be one of {', '.join(PLANS)} (example: quick)")
        return 2
    (name,) = sys.argv[1:]
    found = session.begun(name)
    path = results.FOLDER / f"{name}.json"
    plan: session.Plan | None = PLANS[name]()
    while plan is not None:
        _measure(plan, found, path)
        plan = plan.then and plan.then(found)
    report = path.with_suffix(".md")
    report.write_text(markdown(found), encoding="utf-8")
    drawn = plots.draw(found, results.FOLDER / name)
    print(report.read_text(encoding="utf-8"))
    print(f"Written: {', '.join(str(each.relative_to(ROOT)) for each in (path, report, *drawn))}")
    return 1 if any(each.wrong for each in found.measured) else 0


def _measure(plan: session.Plan, found: results.Session, path: Path) -> None:
    """Add what each cell of the plan comes to."""
    began = time.monotonic()
    for number, (job, repetition) in enumerate(plan, 1):
        cell = job.cell
        what = f"[{number}/{len(plan)}] {cell.workload} {cell.contender} {cell.variant}".rstrip()
        _say(f"{what}, {repetition} of {plan.repetitions}{_left(began, number - 1, len(plan))}")
        measured = job.measure(repetition, lambda text: _say(f"    {text}", passing=True))
        found.measured.append(measured)
        results.write(found, path)
        _say(f"    {_told(measured)}")


def _told(measured: results.Measured) -> str:
    rate = measured.bound / measured.to_last_bind if measured.to_last_bind else 0
    if measured.wrong:
        return f"wrong: {'; '.join(measured.wrong)}"
    return f"{measured.bound} bound, {rate:,.0f} pods/s"


def _left(began: float, done: int, cells: int) -> str:
    """What is still to come, by the pace so far."""
    if not done:
        return ""
    minutes = (time.monotonic() - began) / done * (cells - done) / 60
    return f" (about {minutes:.0f} min left)" if minutes >= 1 else " (less than a minute left)"


def _say(text: str, *, passing: bool = False) -> None:
    """Progress; what is `passing` is shown on a terminal only, and overwritten."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}" if passing else f"\r\033[K{text}\n")
        sys.stderr.flush()
    elif not passing:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
