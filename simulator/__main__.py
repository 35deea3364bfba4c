"""`python -m simulator`: runs real replicas against an API server in memory, in virtual time, with seeded faults."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click
import msgspec

from gpu_scheduler.cli.command_line import PATH, SETTINGS, command, run_command
from gpu_scheduler.cli.options import INTERRUPTED, FailedError, Options, Output, RefusedInputError
from gpu_scheduler.cli.output import Column, Listing, PrintedTable, render
from simulator.invariants.checker import BrokenError
from simulator.plan import EPISODE
from simulator.replica_process import quiet_starter
from simulator.soak import soak
from simulator.trace import record

if TYPE_CHECKING:
    from gpu_scheduler.cli.output import View
    from simulator.soak import Failure, Total

NAME: Final = "python -m simulator"
STEPS: Final = 10_000
MOST_RECORDED: Final = 1000
_EACH: Final = 10.0
"""Seconds between two lines of progress."""


@click.option("--seed", type=click.IntRange(min=0), metavar="SEED", help="Another number is another run.")
@click.option("--steps", type=click.IntRange(min=1), metavar="STEPS", help="How many things happen, faults included.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="STEPS",
    help="Go on after so many of them: what an interrupted run has done.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="JOBS",
    help="Processes at once; the result is the same, whatever their number.",
)
@click.option(
    "--trace",
    type=PATH,
    metavar="FILE",
    help="No faults, one change at a time: write each, and what is decided after it.",
)
@click.option(
    "--output", "-o", type=click.Choice(list(map(str, Output)), case_sensitive=False), help="What is printed."
)
def simulate(  # noqa: PLR0913 - each is an option
    *, seed: int = 1, steps: int = STEPS, after: int = 0, jobs: int = 1, trace: str | None, output: str = Output.TABLE
) -> int:
    """Run the scheduler against every fault we know, without a cluster and in virtual time."""
    return _soak(seed, steps, after, jobs, Output(output)) if trace is None else _record(seed, steps, trace)


def _soak(seed: int, steps: int, after: int, jobs: int, output: Output) -> int:
    if after and (after % EPISODE or after >= steps):
        raise RefusedInputError(
            f"cannot go on after {after} steps: must be a multiple of {EPISODE}, and less than --steps {steps} "
            f"(example: {NAME} --steps {10 * EPISODE} --after {4 * EPISODE})"
        )
    began = printed = time.monotonic()
    sofar: Total | None = None

    def progress(total: Total) -> None:
        nonlocal sofar, printed
        sofar, now = total, time.monotonic()
        if now - printed >= _EACH:
            printed = now
            pace = total.steps / (now - began)
            _say(f"{after + total.steps:,} of {steps:,} steps, {total.binds:,} binds, {pace:,.0f} steps/s")

    try:
        total = soak(seed, steps, quiet_starter, after=after, jobs=jobs, progress=progress)
    except KeyboardInterrupt:
        # The run may have taken hours, so its result so far is printed.
        if sofar is None:
            raise
        total = sofar
    sys.stdout.write(render(_listing(_facts(total, time.monotonic() - began)), Options(output=output)))
    if total.failure is None:
        done = after + total.steps
        if done == steps:
            return 0
        _say(f"go on with: make soak SEED={seed} STEPS={steps} AFTER={done}")
        return INTERRUPTED
    raise FailedError(_story(total.failure))


def _record(seed: int, steps: int, trace: str) -> int:
    if steps > MOST_RECORDED:
        raise RefusedInputError(
            f"cannot record {steps} steps: a trace has one cluster and at most {MOST_RECORDED} steps "
            f"(example: {NAME} --seed 1 --steps 60 --trace trace.jsonl)"
        )
    try:
        with Path(trace).open("xb") as file:
            file.writelines(msgspec.json.encode(line) + b"\n" for line in record(seed, steps, quiet_starter()))
    except OSError as error:
        remedy = "give another name or remove it" if isinstance(error, FileExistsError) else "choose another place"
        raise RefusedInputError(
            f"cannot write {trace}: {error.strerror}; {remedy} (example: {NAME} --trace new.jsonl)"
        ) from error
    except BrokenError as error:
        raise FailedError(f"cannot go on with seed {seed}: {error}") from error
    return 0


def _facts(total: Total, seconds: float) -> View:
    return {
        "seed": total.seed,
        "steps": total.steps,
        "binds": total.binds,
        "quietPoints": sum(times for what, times in total.done.items() if what == "quiet"),
        "invariantsChecked": total.checked,
        "slowestRecoverySeconds": total.slowest,
        "virtualSeconds": round(total.seconds),
        "seconds": round(seconds, 1),
        "stepsPerSecond": round(total.steps / seconds) if seconds else 0,
        "digest": total.digest,
        "violation": None if total.failure is None else total.failure.violation,
        "faults": {str(fault): times for fault, times in sorted(total.struck.items())},
    }


def _listing(view: View) -> Listing:
    """Give one item; its table has a row for each figure and each fault."""
    figures = {_title(key): value for key, value in view.items() if key not in {"faults", "violation", "digest"}}
    figures |= {f"fault {fault}": times for fault, times in view["faults"].items()}
    figures["digest"] = view["digest"][:16]
    figures["violation"] = view["violation"] or "none"
    rows = [
        {"what": what, "value": f"{value:,}" if isinstance(value, int) else value} for what, value in figures.items()
    ]
    columns = (Column("WHAT", lambda row: row["what"]), Column("FIGURE", lambda row: row["value"]))
    table = PrintedTable(columns, rows)
    return Listing("Simulation", [view], table, table)


def _title(key: str) -> str:
    """Return a key such as `stepsPerSecond` as words."""
    return "".join(f" {pending.lower()}" if pending.isupper() else pending for pending in key)


def _story(failure: Failure) -> str:
    """Give the violation and the steps that reproduce it."""
    lines = [f"  {step.number:>4} after {step.gap:g} s: {step.what} {step.a} {step.b}" for step in failure.fewest]
    again = f"make soak SEED={failure.seed} STEPS={failure.steps}"
    shown = "\n".join(lines)
    return f"{failure.violation}\n{len(lines)} of {failure.steps} steps show it:\n{shown}\nsee it again: {again}"


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201 - progress is for who waits, not for who reads the result


def main() -> NoReturn:
    """Run the command."""
    app = command(simulate)
    app.context_settings.update(SETTINGS)
    run_command(app, NAME)


if __name__ == "__main__":
    main()
