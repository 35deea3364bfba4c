"""The table of a workload: which columns it has, and what a cell says in each."""

from __future__ import annotations

from collections import defaultdict
from math import floor, log10
from typing import TYPE_CHECKING, Final

from bench.figures import (
    answer_rate,
    bind_rate,
    cpu_a_pod,
    creation,
    event_rate,
    first_bind,
    gap,
    idle_share,
    latency,
    memory_growth,
    percentile,
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
    """Write it for people: so many digits that count, thousands apart, no digit after the point that says nothing."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def head_and_rows(rows: Sequence[tuple[Cell, Sequence[Measured]]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Give its head, and a row for each cell; figures that nobody has are left out."""
    shown = [(head, tell) for head, tell in _SOME if any(tell(repetitions) != NONE for _, repetitions in rows)]
    tellers = [tell for _, tell in shown]
    return (*_EVERY, *(head for head, _ in shown), *_COSTS), [_row(*row, tellers) for row in rows]


def remarks(measured: Measured) -> list[str]:
    """What was found beside the pace, as the columns say it that are not for every workload."""
    return [f"{text} {head}" for head, tell in _SOME if (text := tell([measured])) != NONE]


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
        *(tell(right) for tell in some),
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
    told = spread(rates)
    around = f" ({number(told.low)} to {number(told.high)})" if len(rates) > 1 else ""
    return number(told.middle) + around


def _percentiles(figure: Callable[[float], Figure]) -> Callable[[Sequence[Measured]], str]:
    """Half of all and the slowest hundredth."""

    def tell(right: Sequence[Measured]) -> str:
        told = [_medians(figure(percent))(right) for percent in (50, 99)]
        return NONE if NONE in told else " / ".join(told)

    return tell


def _delay(right: Iterable[Measured]) -> str:
    return _middle([percentile(each.event_delays, 99) * 1000 for each in right if each.event_delays])


def _calls(right: Iterable[Measured]) -> str:
    """By verb, the most frequent first; a repetition without a verb counts as none of it."""
    counted = [each for each in right if each.calls and each.bound]
    verbs: list[dict[str, float]] = []
    for each in counted:
        times: dict[str, float] = defaultdict(float)
        for call, count in each.calls.items():
            times[call.partition(" ")[0]] += count / each.bound
        verbs.append(times)
    middle = {verb: spread(times.get(verb, 0.0) for times in verbs).middle for verb in sorted(set().union(*verbs))}
    told = sorted(middle.items(), key=lambda each: -each[1])
    return ", ".join(f"{verb} {number(round(times, 4))}" for verb, times in told) or NONE


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
)
"""Columns that are shown where something was measured for them."""
