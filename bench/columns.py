"""The columns of a workload's table in the report."""

from __future__ import annotations

from collections import defaultdict
from math import floor, log10
from typing import TYPE_CHECKING, Final

from bench.figures import (
    answer_rate,
    appearance,
    bind_rate,
    cpu_a_pod,
    creation,
    event_rate,
    first_bind,
    gap,
    idle_share,
    latency,
    memory_growth,
    memory_share,
    percentile,
    queued,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.figures import Figure
    from bench.results import Cell, Measured

NONE: Final = "—"
_EVERY: Final = ("contender", "variant", "pods on nodes", "repetitions", "pods/s to the last bind", "to the last event")
_COSTS: Final = ("CPU ms a pod", "RSS / PSS MiB", "requests a pod")


def number(value: float, digits: int = 3) -> str:
    """Format a value with `digits` significant digits, separated thousands and no trailing zeros."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def head_and_rows(rows: Sequence[tuple[Cell, Sequence[Measured]]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table's head, and a row for each cell. A figure that no cell has is omitted."""
    shown = [(head, text_of) for head, text_of in _SOME if any(text_of(repetitions) != NONE for _, repetitions in rows)]
    cells = [text_of for _, text_of in shown]
    return (*_EVERY, *(head for head, _ in shown), *_COSTS), [_row(*row, cells) for row in rows]


def remarks(measured: Measured) -> list[str]:
    """Return the other figures of a repetition as text: those whose columns not every workload has."""
    return [f"{text} {head}" for head, text_of in _SOME if (text := text_of([measured])) != NONE]


def _row(
    cell: Cell, repetitions: Sequence[Measured], some: Iterable[Callable[[Sequence[Measured]], str]]
) -> tuple[str, ...]:
    right = [each for each in repetitions if not each.wrong]
    counted = str(len(right)) if len(right) == len(repetitions) else f"{len(right)} of {len(repetitions)}"
    costs = [cost for each in right if (cost := each.costs.get(cell.contender)) is not None]
    memory = " / ".join((_middle([cost.rss for cost in costs]), _middle([cost.pss for cost in costs])))
    return (
        cell.contender,
        cell.variant or NONE,
        f"{number(cell.pods)} on {number(cell.nodes)}" if cell.pods else NONE,
        counted,
        _rates(right, bind_rate),
        _rates(right, event_rate),
        *(text_of(right) for text_of in some),
        _medians(cpu_a_pod)(right),
        memory if costs else NONE,
        _calls(right),
    )


def _medians(figure: Figure) -> Callable[[Iterable[Measured]], str]:
    return lambda right: _middle([value for each in right if (value := figure(each)) is not None])


def _rates(right: Iterable[Measured], rate: Figure) -> str:
    rates = [value for each in right if (value := rate(each)) is not None]
    if not rates:
        return NONE
    reported = spread(rates)
    around = f" ({number(reported.low)} to {number(reported.high)})" if len(rates) > 1 else ""
    return number(reported.middle) + around


def _percentiles(figure: Callable[[float], Figure]) -> Callable[[Sequence[Measured]], str]:
    """Return a column's function: it gives p50 and p99 as text."""

    def text_of(right: Sequence[Measured]) -> str:
        reported = [_medians(figure(percent))(right) for percent in (50, 99)]
        return NONE if NONE in reported else " / ".join(reported)

    return text_of


def _delay(right: Iterable[Measured]) -> str:
    return _middle([percentile(each.event_delays, 99) * 1000 for each in right if each.event_delays])


def _calls(right: Iterable[Measured]) -> str:
    """Return requests for each bound pod by verb, the most frequent first. A missing verb counts as 0."""
    counted = [each for each in right if each.calls and each.bound]
    verbs: list[dict[str, float]] = []
    for each in counted:
        times: dict[str, float] = defaultdict(float)
        for call, count in each.calls.items():
            times[call.partition(" ")[0]] += count / each.bound
        verbs.append(times)
    middle = {verb: spread(times.get(verb, 0.0) for times in verbs).middle for verb in sorted(set().union(*verbs))}
    reported = sorted(middle.items(), key=lambda each: -each[1])
    return ", ".join(f"{verb} {number(round(times, 4))}" for verb, times in reported) or NONE


def _middle(values: Sequence[float]) -> str:
    return number(spread(values).middle) if values else NONE


_SOME: Final[tuple[tuple[str, Callable[[Sequence[Measured]], str]], ...]] = (
    ("ms from creation to bind, p50 / p99", _percentiles(latency)),
    ("ms from bind to event, p99", _delay),
    ("answers/s", lambda right: _rates(right, answer_rate)),
    ("ms to create a pod, p50 / p99", _percentiles(creation)),
    ("MB/min of growth", _medians(memory_growth)),
    ("s from start to first bind", _medians(first_bind)),
    ("s of the longest gap", _medians(gap)),
    ("% of a core", _medians(idle_share)),
    ("ms from creation to watch event, p50 / p99", _percentiles(appearance)),
    ("ms in the queue, mean", _medians(queued)),
    ("% of the memory limit", _medians(memory_share)),
)
"""Columns that are shown only if a cell of the table has a value for them."""
