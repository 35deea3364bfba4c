"""The table of a workload: which columns it has, and what a cell says in each."""

from __future__ import annotations

from collections import defaultdict
from math import floor, log10
from typing import TYPE_CHECKING, Final

from bench.figures import bind_rate, cpu_a_pod, event_rate, percentile, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.results import Cell, Measured

NONE: Final = "—"
_EVERY: Final = ("contender", "variant", "pods on nodes", "repetitions", "pods/s to the last bind", "to the last event")
_COSTS: Final = ("CPU ms a pod", "RSS / PSS MiB", "requests a pod")
_WAITS: Final = ("creation to bind, p50 / p99 ms",)
_DELAYS: Final = ("bind to event, p99 ms",)


def number(value: float, digits: int = 3) -> str:
    """Write it for people: so many digits that count, thousands apart, no digit after the point that says nothing."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - floor(log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def head_and_rows(rows: Sequence[tuple[Cell, Sequence[Measured]]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Give its head, and a row for each cell; figures that nobody has are left out."""
    waits = any(each.latencies for _, repetitions in rows for each in repetitions)
    delays = any(each.event_delays for _, repetitions in rows for each in repetitions)
    head = (*_EVERY, *(_WAITS if waits else ()), *(_DELAYS if delays else ()), *_COSTS)
    return head, [_row(*row, waits=waits, delays=delays) for row in rows]


def _row(cell: Cell, repetitions: Sequence[Measured], *, waits: bool, delays: bool) -> tuple[str, ...]:
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
        *([_latency(right)] if waits else ()),
        *([_delay(right)] if delays else ()),
        _middle([cpu for each in right if (cpu := cpu_a_pod(each)) is not None]),
        memory if costs else NONE,
        _calls(right),
    )


def _rates(right: Iterable[Measured], rate: Callable[[Measured], float | None]) -> str:
    rates = [value for each in right if (value := rate(each)) is not None]
    if not rates:
        return NONE
    told = spread(rates)
    around = f" ({number(told.low)} to {number(told.high)})" if len(rates) > 1 else ""
    return number(told.middle) + around


def _latency(right: Iterable[Measured]) -> str:
    waited = [each.latencies for each in right if each.latencies]
    if not waited:
        return NONE
    return " / ".join(_middle([percentile(each, percent) * 1000 for each in waited]) for percent in (50, 99))


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
