"""`python -m bench.profiles [W1,W2,W3,W6,W8,claims,neighbour]`: where our CPU time is used, as a table and as stacks.

Stacks are in the folded format, which tools for flame graphs read: a line for each stack, with its count.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from bench import results, session
from bench.comparison import OURS
from bench.contenders import sampler
from bench.contenders.ours import ColdStart, Sampled
from bench.gated_process import ROOT
from bench.jobs import FILLS, STREAM, arriving, claiming, filling, neighbouring, placing, reviewing, starting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from bench.jobs import Job
    from bench.results import Measured, Session

FOLDER: Final = results.FOLDER / "profiles"
_SHOWN: Final = 40
"""Lines of a table: later lines are noise."""
_HIDDEN: Final = 1.0
"""A function is omitted if it is in all stacks but this percentage: the main loop is no result."""


WORKLOADS: Final[Mapping[str, Callable[[Path], Job]]] = {
    "W1": lambda path: placing(lambda: Sampled(path)),
    "W2": lambda path: arriving("W2", STREAM, make=lambda: Sampled(path)),
    "W3": lambda path: filling(max(FILLS), lambda: Sampled(path)),
    "W6": lambda path: starting(lambda: ColdStart(sampler.MODULE, **{sampler.PATH: str(path)})),
    "W8": lambda path: reviewing(OURS, path),
    "claims": lambda path: claiming(lambda: Sampled(path, ISOLATION="dra")),
    "neighbour": lambda path: neighbouring("patches", lambda: Sampled(path)),
}
"""What is sampled: W1, W3 and claims while pending pods are placed, W2 while pods arrive, W6 from the start of the
process on, W8 under reviews, neighbour beside a tenant that patches its pods."""


def main() -> int:
    """Sample each workload once, and write the results."""
    asked = sys.argv[1].split(",") if len(sys.argv) > 1 else list(WORKLOADS)
    for name in asked:
        if name not in WORKLOADS:
            print(
                f"cannot sample {name!r}: it must be one of {', '.join(WORKLOADS)} (example: {next(iter(WORKLOADS))})"
            )
            return 2
    for name in asked:
        print(f"{name}:", end=" ", flush=True)
        measured, stacks = _sampled(name)
        if measured.wrong:
            print(f"wrong: {'; '.join(measured.wrong)}")
            return 1
        FOLDER.mkdir(parents=True, exist_ok=True)
        report = FOLDER / f"{name.lower()}.md"
        report.write_text("\n".join(markdown(measured, stacks, session.begun("profile"))) + "\n", encoding="utf-8")
        results.RAW.mkdir(parents=True, exist_ok=True)
        folded = results.RAW / f"{name.lower()}.folded"
        folded.write_text("".join(f"{stack} {times}\n" for stack, times in sorted(stacks.items())), encoding="utf-8")
        print(f"{sum(stacks.values())} samples in {report.relative_to(ROOT)} and {folded.relative_to(ROOT)}")
    return 0


def _sampled(name: str) -> tuple[Measured, dict[str, int]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "samples.json"
        measured = WORKLOADS[name](path).measure(1, lambda _: None)
        return measured, msgspec.json.decode(path.read_bytes(), type=dict[str, int])


def markdown(measured: Measured, stacks: Mapping[str, int], here: Session) -> Iterator[str]:
    """Yield the lines of the report: the most expensive functions, by themselves and with all that they call."""
    own, whole = shares(stacks)
    cell, cost = measured.cell, measured.costs["O"]
    yield f"# Where processor time goes in {cell.workload}"
    yield ""
    yield f"- began: {measured.began}, commit `{here.commit}`, {here.machine.processor}, {here.machine.cores} cores"
    yield f"- {cell.pods:,} pods on {cell.nodes:,} nodes {cell.variant}".rstrip()
    yield f"- {cost.cpu:.2f} s of processor time, sampled {sum(stacks.values()):,} times"
    for head, shown in (("By itself", own), ("With all that it calls", whole)):
        yield from ("", f"## {head}", "", "| % | function |", "|---|---|")
        yield from (f"| {share:.1f} | `{function}` |" for function, share in shown[:_SHOWN])


def shares(stacks: Mapping[str, int]) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """Return the percentages of functions by themselves, and with all that they call, the greatest first."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for stack, times in stacks.items():
        functions = stack.split(";")
        own[functions[-1]] += times
        whole.update(dict.fromkeys(functions, times))
    total = own.total()
    return _percent(own.items(), total), _percent(whole.items(), total)


def _percent(counted: Iterable[tuple[str, int]], total: int) -> list[tuple[str, float]]:
    found = ((function, 100 * times / total) for function, times in counted)
    return sorted((each for each in found if each[1] < 100 - _HIDDEN), key=lambda each: (-each[1], each[0]))


if __name__ == "__main__":
    sys.exit(main())
