"""The committed figures of a session: medians with their 95 % intervals.

The raw results stay on the machine that measured them.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench.comparison import SEED, Estimate
from bench.figures import (
    answer_rate,
    appearance,
    bind_rate,
    cpu_a_pod,
    creation,
    event_delay,
    event_rate,
    first_bind,
    gap,
    idle_share,
    interval,
    latency,
    memory_growth,
    memory_share,
    plane_cpu_a_pod,
    queued,
    reads_a_pod,
    writes_a_pod,
)
from bench.growth_figures import QUANTITIES
from bench.results import Again, Cell, Machine, replace_file
from bench.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.figures import Figure
    from bench.results import Measured, Session

FIGURES: Final[Mapping[str, Figure]] = {
    "pods/s to the last bind": bind_rate,
    "pods/s to the last event": event_rate,
    "answers/s": answer_rate,
    "ms from creation to bind, p50": latency(50),
    "ms from creation to bind, p99": latency(99),
    "s from bind to event, p99": event_delay,
    "ms to create a pod, p50": creation(50),
    "ms to create a pod, p99": creation(99),
    "MB/min of growth": memory_growth,
    "s from start to first bind": first_bind,
    "s of the longest gap": gap,
    "% of a core": idle_share,
    "ms from creation to watch event, p50": appearance(50),
    "ms from creation to watch event, p99": appearance(99),
    "ms in the queue, mean": queued,
    "% of the memory limit": memory_share,
    "CPU ms a pod": cpu_a_pod,
    "CPU ms of API server and etcd a pod": plane_cpu_a_pod,
    "writes a pod": writes_a_pod,
    "reads a pod": reads_a_pod,
}


class Median(msgspec.Struct, frozen=True, omit_defaults=True):
    """The median of a cell's repetitions; with fewer than three repetitions it has no interval."""

    median: float
    low: float | None = None
    high: float | None = None


class TargetMedian(msgspec.Struct, frozen=True):
    """A target and the value that was measured for it; `found` is None if it was not measured."""

    workload: str
    what: str
    contenders: str
    bound: float
    at_least: bool
    unit: str
    found: Estimate | None
    met: bool | None


class CellMedians(msgspec.Struct, frozen=True):
    """Each measured figure of a cell, over its valid repetitions."""

    cell: Cell
    repetitions: int
    wrong: int
    """Repetitions that went wrong, and are ignored."""
    figures: dict[str, Median]


class Medians(msgspec.Struct, frozen=True):
    """The medians of one session."""

    name: str
    began: str
    commit: str
    versions: dict[str, str]
    machine: Machine
    again: list[Again]
    targets: list[TargetMedian]
    cells: list[CellMedians]


def medians(session: Session) -> Medians:
    """Return the medians of a session."""
    return Medians(
        name=session.name,
        began=session.began,
        commit=session.commit,
        versions=session.versions,
        machine=session.machine,
        again=session.again,
        targets=list(_targets(session.measured)),
        cells=list(_cells(session.measured)),
    )


def _targets(measured: Sequence[Measured]) -> Iterator[TargetMedian]:
    for each in TARGETS:
        found = each.find(measured)
        about = each.workload, each.what, each.contenders, each.bound, each.at_least, each.unit
        yield TargetMedian(*about, found, each.met(found))


def _cells(measured: Iterable[Measured]) -> Iterator[CellMedians]:
    by_cell: dict[Cell, list[Measured]] = defaultdict(list)
    for each in measured:
        by_cell[each.cell].append(each)
    for cell, every in sorted(by_cell.items()):
        right = [each for each in every if not each.wrong]
        values = {
            name: [value for each in right if (value := figure(each)) is not None] for name, figure in FIGURES.items()
        }
        costs = [cost for each in right if (cost := each.costs.get(cell.contender)) is not None]
        values |= {"RSS MiB": [cost.rss for cost in costs], "PSS MiB": [cost.pss for cost in costs]}
        grown = [each.growth for each in right if each.growth is not None]
        for quantity in QUANTITIES:
            found = map(quantity.of, grown)
            values[f"{quantity.what}, {quantity.unit}"] = [value for value in found if value is not None]
        figures = {name: _median(numbers) for name, numbers in values.items() if numbers}
        yield CellMedians(cell, len(right), len(every) - len(right), figures)


def _median(values: Sequence[float]) -> Median:
    return Median(median(values), *(interval(values, SEED) or ()))


def write(found: Medians, path: Path) -> None:
    """Write the file atomically, with one line for each target and each cell."""
    lines = [f"{_text(name)}: {_lines(getattr(found, name))}" for name in found.__struct_fields__]
    replace_file(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def _lines(value: object) -> str:
    return "[\n  " + ",\n  ".join(map(_text, value)) + "\n]" if value and isinstance(value, list) else _text(value)


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def read(path: Path) -> Medians:
    """Read a file of medians; ValidationError when it is not one."""
    return msgspec.json.decode(path.read_bytes(), type=Medians)
