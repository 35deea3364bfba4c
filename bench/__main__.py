"""`python -m bench PLAN [--only PART,PART]`: measure, then write medians, tables and plots. See PLANS for the plans."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from bench import medians, plans, plots, results, session
from bench.columns import remarks
from bench.gated_process import ROOT
from bench.report import markdown

if TYPE_CHECKING:
    from pathlib import Path

PLANS: Final = {
    "quick": plans.quick,
    "standard": plans.standard,
    "claims": plans.claims,
    "neighbours": plans.neighbours,
    "full": plans.full,
}


def main() -> int:
    """Measure all cells of a plan. Write the results after each cell, so that an interrupted run is not lost."""
    try:
        name, only = _asked(sys.argv[1:])
        plan = plans.chosen_parts(PLANS[name](), only) if only else PLANS[name]()
        path = results.RAW / f"{name}.json"
        here = session.begun(name)
        found = session.resumed(path, here, [part.name for part in plan]) if only else here
    except ValueError as error:
        print(error)
        return 2
    for part in plan:
        _measure(part, here, found, path)
    written = publish(found)
    print(markdown(found))
    print(f"Written: {', '.join(str(each.relative_to(ROOT)) for each in (path, *written))}")
    return 1 if any(each.wrong for each in found.measured) else 0


def publish(found: results.Session) -> list[Path]:
    """Write the committed files of a run (medians, tables, plots) and return their paths."""
    path = results.FOLDER / f"{found.name}.json"
    medians.write(medians.medians(found), path)
    report = path.with_suffix(".md")
    report.write_text(markdown(found), encoding="utf-8")
    return [path, report, *plots.draw(found, path.with_suffix(""))]


def _asked(words: list[str]) -> tuple[str, str]:
    """Return the name of the plan, and the parts after `--only` (empty: all). ValueError for other arguments."""
    match words:
        case [name] if name in PLANS:
            return name, ""
        case [name, "--only", only] if name in PLANS:
            return name, only
    raise ValueError(
        f"cannot measure {' '.join(words)!r}: must be one of {', '.join(PLANS)}, maybe with --only and names of parts "
        "(example: full --only W1,growth)"
    )


def _measure(part: plans.Part, here: results.Session, found: results.Session, path: Path) -> None:
    """Measure all cells of a part. The part's old results are removed only when the first new result exists."""
    order = part.order(found.measured)
    began = time.monotonic()
    for number, (job, repetition) in enumerate(order, 1):
        cell = job.cell
        what = f"[{part.name} {number}/{len(order)}] {cell.workload} {cell.contender} {cell.variant}".rstrip()
        _say(f"{what}, {repetition} of {part.repetitions}{_left(began, number - 1, len(order))}")
        measured = job.measure(repetition, lambda text: _say(f"    {text}", passing=True))
        measured.part = part.name
        if number == 1:
            session.renew(found, part.name, here)
        found.measured.append(measured)
        results.write(found, path)
        _say(f"    {_reported(measured)}")


def _reported(measured: results.Measured) -> str:
    rate = measured.bound / measured.to_last_bind if measured.to_last_bind else 0
    if measured.wrong:
        return f"wrong: {'; '.join(measured.wrong)}"
    if measured.growth:
        return f"{measured.growth.pinned:,.0f} µs for a decision by map, {measured.growth.strategy:,.0f} by strategy"
    pace = [f"{measured.bound} bound"] if measured.bound else []
    return ", ".join([*pace, *([f"{rate:,.0f} pods/s"] if rate else []), *remarks(measured)])


def _left(began: float, done: int, cells: int) -> str:
    """Return the estimated remaining time as text, from the average time of the finished cells."""
    if not done:
        return ""
    minutes = (time.monotonic() - began) / done * (cells - done) / 60
    return f" (about {minutes:.0f} min left)" if minutes >= 1 else " (less than a minute left)"


def _say(text: str, *, passing: bool = False) -> None:
    """Print progress. A `passing` text is shown on a terminal only, and the next text overwrites it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}" if passing else f"\r\033[K{text}\n")
        sys.stderr.flush()
    elif not passing:
        sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
