"""Plots of a session: throughput, progress and latency.

Repetitions that went wrong are not drawn. The same session gives the same files.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Final

from bench.columns import number
from bench.comparison import OURS, cells, chosen, largest
from bench.figures import bind_rate, percentile, power, spread
from bench.growth_figures import grown
from bench.report import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bench.growth_figures import Grown
    from bench.results import Measured, Session


@dataclass(frozen=True, slots=True)
class _LineStyle:
    """How a contender is drawn: most by colour, and by dashes where colours are too similar."""

    colour: str
    dashes: str | tuple[int, tuple[float, ...]]
    label: str


# The palette of Okabe and Ito, for readers with colour blindness.
_STYLES: Final = {
    "L0": _LineStyle("#000000", ":", "limit, binds alone"),
    "L": _LineStyle("#666666", "--", "limit, binds and events"),
    "O": _LineStyle("#D55E00", "-", "gpu-scheduler"),
    "F": _LineStyle("#E69F00", (0, (5, 1)), "gpu-scheduler, decided before"),
    "K": _LineStyle("#0072B2", "-.", "kube-scheduler, unthrottled"),
    "KC": _LineStyle("#0072B2", (0, (3, 1, 1, 1)), "kube-scheduler, claims created meanwhile"),
    "K50": _LineStyle("#56B4E9", (0, (6, 2, 1, 2, 1, 2)), "kube-scheduler, default throttle"),
    "N": _LineStyle("#009E73", (0, (1, 3)), "naive scheduler"),
    "A": _LineStyle("#CC79A7", (0, (3, 2)), "limit while pods arrive"),
}
_WIDTH: Final = 7.5
"""Inches; the height depends on the content."""
_SHORTEST: Final = 0.1
"""Milliseconds at which the logarithmic axis begins: watches are not more precise."""
_STEPS: Final = 400
"""Points of a curve: the picture's pixels cannot show more."""
_FRAME: Final = 3.0
"""The time axis ends at this multiple of our own duration. The legend has the duration of a slower contender."""


def draw(session: Session, folder: Path) -> list[Path]:
    """Write all plots for which the session has data into the folder, and return their paths."""
    # Imported here, so that other commands start fast.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    with rc_context(
        {
            "font.size": 10.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11.0,
            "axes.titlelocation": "left",
            "figure.constrained_layout.use": True,
        }
    ):
        for name, height, paint in _pictures(session.measured):
            # Without pyplot: Agg draws the PNG, and no display is needed.
            figure = Figure(figsize=(_WIDTH, height))
            paint(figure, figure.add_subplot())
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=150, metadata={"Software": None})
            written.append(path)
    return written


def _pictures(measured: Sequence[Measured]) -> Iterator[tuple[str, float, Callable[[Figure, Axes], None]]]:
    """Yield for each picture its name, its height in inches and the function that paints it."""
    bound = _shown(measured, "W1", bind_rate)
    if bound:
        yield "throughput", 1.3 + 0.55 * len(bound), lambda _, axes: _throughput(axes, bound)
    for workload in sorted({each.cell.workload for each in measured}):
        progressed = _shown(measured, workload, lambda each: bind_rate(each) if each.each_tenth else None)
        if progressed:
            yield f"progress-{workload.lower()}", 3.6 + 0.2 * len(progressed), partial(_progress, workload, progressed)
        # Negative, because less is better.
        waited = _shown(measured, workload, lambda each: -percentile(each.latencies, 50) if each.latencies else None)
        if waited:
            yield f"latency-{workload.lower()}", 3.6 + 0.2 * len(waited), partial(_latency, workload, waited)

    costs = [each for each in grown(measured) if each.quantity.unit == "µs"]
    for along, others in (("nodes", "pods"), ("pods", "nodes")):
        lines = [(each, each.by_nodes() if along == "nodes" else each.by_pods()) for each in costs]
        if any(len(points) > 1 for _, points in lines):
            yield f"growth-{along}", 3.6 + 0.2 * len(lines), partial(_growth, along, others, lines)


def _shown(
    measured: Sequence[Measured], workload: str, better: Callable[[Measured], float | None]
) -> dict[str, list[Measured]]:
    """Return one cell of each contender, in the order of _STYLES: our worst one and the others' best one."""
    there = {each.cell.contender for each in measured}
    found = {}
    for name in (*(name for name in _STYLES if name in there), *sorted(there - _STYLES.keys())):
        repetitions = chosen(largest(cells(measured, workload, name)), better, most=name != OURS)
        if repetitions:
            found[name] = repetitions
    return found


def _style_of(contender: str) -> _LineStyle:
    return _STYLES.get(contender) or _LineStyle("#999999", "-", "contender")


def _title(workload: str, text: str) -> str:
    reported = WORKLOADS.get(workload)
    return f"{text}\n{workload}: {reported}" if reported else f"{text}\n{workload}"


def _throughput(axes: Axes, shown: Mapping[str, Sequence[Measured]]) -> None:
    rates = [spread(value for each in every if (value := bind_rate(each))) for every in shown.values()]
    places = range(len(shown))
    # Ours is darker than the others, in a grey print too.
    colours = [_style_of(name).colour if name == OURS else "#C4C4C4" for name in shown]
    axes.barh(places, [rate.middle for rate in rates], color=colours, height=0.62)
    low, high = [rate.middle - rate.low for rate in rates], [rate.high - rate.middle for rate in rates]
    axes.errorbar([rate.middle for rate in rates], places, xerr=(low, high), fmt="none", ecolor="black", capsize=3)
    for place, rate in zip(places, rates, strict=True):
        axes.annotate(
            number(rate.middle), (rate.high, place), (6, 0), textcoords="offset points", va="center", fontsize="small"
        )
    axes.set_yticks(places, [_named(name, every[0]) for name, every in shown.items()])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda rate, _: number(rate))
    axes.set_xlabel("pods/s from the first bind to the last\n(the median; whiskers from the least to the greatest)")
    axes.set_title(_title("W1", "How many pods are bound in a second"))


def _named(contender: str, one: Measured) -> str:
    about = ", ".join(filter(None, (contender, one.cell.variant, f"{number(one.cell.pods)} pods")))
    return f"{_style_of(contender).label}\n({about})"


def _progress(workload: str, shown: Mapping[str, Sequence[Measured]], figure: Figure, axes: Axes) -> None:
    ours = inf
    longest = 0.0
    for name, every in shown.items():
        one = sorted(every, key=lambda each: each.to_last_bind)[len(every) // 2]
        seconds = [min(tenth / 10, one.to_last_bind) for tenth in range(len(one.each_tenth) + 1)]
        line_style = _style_of(name)
        label = f"{line_style.label} ({name}): {number(one.bound)} in {number(one.to_last_bind)} s"
        axes.plot(
            seconds, [0, *accumulate(one.each_tenth)], color=line_style.colour, linestyle=line_style.dashes, label=label
        )
        longest = max(longest, seconds[-1])
        ours = seconds[-1] if name == OURS else ours
    axes.set_xlim(0, min(longest, _FRAME * ours))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the first bind")
    axes.set_ylabel("pods bound")
    axes.yaxis.set_major_formatter(lambda pods, _: number(pods))
    axes.set_title(_title(workload, "How steadily pods are bound"))
    _legend(figure)


def _latency(workload: str, shown: Mapping[str, Sequence[Measured]], figure: Figure, axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415 - as in draw

    shares = [100 * step / _STEPS for step in range(_STEPS + 1)]
    for name, every in shown.items():
        waited = sorted(max(_SHORTEST, seconds * 1000) for each in every for seconds in each.latencies)
        line_style = _style_of(name)
        half, most = number(percentile(waited, 50)), number(percentile(waited, 99))
        label = f"{line_style.label} ({name}): p50 {half} ms, p99 {most} ms"
        times = [percentile(waited, share) for share in shares]
        axes.plot(times, shares, color=line_style.colour, linestyle=line_style.dashes, label=label, clip_on=False)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda time, _: number(time))
    axes.set_ylim(0, 100)
    axes.set_xlabel("ms from a pod's creation to its bind")
    axes.set_ylabel("% of pods bound within that time")
    axes.set_title(_title(workload, "How long pods wait"))
    _legend(figure)


def _growth(
    along: str, others: str, lines: Sequence[tuple[Grown, Mapping[int, float]]], figure: Figure, axes: Axes
) -> None:
    from matplotlib.ticker import LogLocator, NullLocator  # noqa: PLC0415 - as in draw

    for (each, points), line_style in zip(lines, _STYLES.values(), strict=False):
        grows = power(points)
        label = each.quantity.what if grows is None else f"{each.quantity.what}: power {grows:.2f}"
        axes.plot(
            [*points], [*points.values()], color=line_style.colour, linestyle=line_style.dashes, marker="o", label=label
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(y=0.3)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda value, _: number(value))
    axes.set_xlabel(along)
    axes.set_ylabel("µs of CPU")
    same = lines[0][0].fewest if others == "pods" else lines[0][0].most
    axes.set_title(f"How costs grow\nwith {along}, at {number(same)} {others}; a cost of power 0 does not grow")
    _legend(figure)


def _legend(figure: Figure) -> None:
    # The handle must be long enough to show the dashes.
    figure.legend(loc="outside lower left", frameon=False, fontsize="small", handlelength=4)
