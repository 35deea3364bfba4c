"""Statistics of samples with bootstrap intervals. Pure: the same samples and seed give the same figures."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from math import log
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bench.results import Measured

    Figure = Callable[[Measured], float | None]

RESAMPLES: Final = 10_000
FEWEST: Final = 3
"""With fewer values an interval would be more precise than the data allow."""
_LOW, _HIGH = 2.5, 97.5
_READS: Final = frozenset({"GET", "LIST"})
_WATCHES: Final = frozenset({"WATCH"})
_MB: Final = 2**20 / 1e6
"""MB in a MiB."""
_POD: Final = 0.0025
"""MB of memory that a bound pod may use."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of a sample and its range."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of paired ratios with its 95 % interval, which is None below three pairs."""

    value: float
    low: float | None
    high: float | None
    pairs: int


def spread(values: Iterable[float]) -> Spread:
    """Return median and range. The median of an even number of values is the mean of the two in the middle."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("cannot give the median of no values: at least one is needed, such as [812.5]")
    return Spread(median(ordered), ordered[0], ordered[-1])


def percentile(values: Iterable[float], percent: float) -> float:
    """Interpolate linearly between the two nearest ranks: 0 is the least value, 50 the median, 100 the greatest."""
    if not 0 <= percent <= 100:  # noqa: PLR2004 - what a percentage is
        raise ValueError(f"cannot give the percentile {percent:g}: it lies between 0 and 100, such as 99")
    ordered = sorted(values)
    if not ordered:
        raise ValueError("cannot give a percentile of no values: at least one is needed, such as [0.004]")
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    between = ordered[below] + (ordered[above] - ordered[below]) * (place - below)
    # Rounding may make it greater than the value above.
    return min(between, ordered[above])


def interval(values: Sequence[float], seed: int) -> tuple[float, float] | None:
    """Return the bootstrap 95 % interval of the median, by the percentile method; None below three values."""
    if len(values) < FEWEST:
        return None
    ordered = sorted(values)
    medians = [(ordered[one] + ordered[other]) / 2 for one, other in _middles(len(ordered), seed)]
    return percentile(medians, _LOW), percentile(medians, _HIGH)


def ratio(ours: Mapping[int, float], theirs: Mapping[int, float], seed: int) -> Ratio | None:
    """Return the median ratio of two rates, paired by repetition; None when they have no repetition in common.

    ValueError when a rate is not above 0.
    """
    for rate in (*ours.values(), *theirs.values()):
        if not rate > 0:
            raise ValueError(f"cannot compare a rate of {rate:g}: it is above 0, such as 812.5 pods a second")
    paired = [ours[number] / theirs[number] for number in sorted(ours.keys() & theirs.keys())]
    if not paired:
        return None
    low, high = interval(paired, seed) or (None, None)
    return Ratio(median(paired), low, high, len(paired))


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the growth of the second value for 1 of the first, by least squares; None below FEWEST points."""
    if len(points) < FEWEST:
        return None
    return linear_regression(*zip(*points, strict=True)).slope


def power(values: Mapping[int, float]) -> float | None:
    """Return the power of its size by which something grows: 0 if constant, 1 if proportional; None below three sizes.

    It is the slope of the regression line through the logarithms; all values must be above 0.
    """
    return slope([(log(size), log(value)) for size, value in values.items()])


def bind_rate(measured: Measured) -> float | None:
    """Pods a second to the last bind; None if no pod was bound, or all at one moment."""
    return _rate(measured.bound, measured.to_last_bind)


def event_rate(measured: Measured) -> float | None:
    """Pods a second to the last event; None if no event was seen, or all at one moment."""
    return _rate(measured.events, measured.to_last_event)


def answer_rate(measured: Measured) -> float | None:
    """A client's requests a second to the last answer; None without a successful answer."""
    return _rate(measured.answered, measured.to_last_answer)


def cpu_a_pod(measured: Measured) -> float | None:
    """CPU of the contender for each pod that was bound, created or reviewed, in ms; None if it was not measured."""
    cost, pods = measured.costs.get(measured.cell.contender), measured.bound or measured.answered
    return None if cost is None or not pods else cost.cpu / pods * 1000


def plane_cpu_a_pod(measured: Measured) -> float | None:
    """CPU of API server and etcd for each bound pod, in ms; None if it was not measured."""
    costs = [measured.costs[name].cpu for name in ("kube-apiserver", "etcd") if name in measured.costs]
    return sum(costs) / measured.bound * 1000 if costs and measured.bound else None


def writes_a_pod(measured: Measured) -> float | None:
    """Writes to the API server for each bound pod; None if they were not counted."""
    return _calls_a_pod(measured, lambda verb: verb not in _READS | _WATCHES)


def reads_a_pod(measured: Measured) -> float | None:
    """Reads (GET, LIST) from the API server for each bound pod; None if not counted. A watch is not a read."""
    return _calls_a_pod(measured, _READS.__contains__)


def latency(percent: float) -> Figure:
    """Return the figure for this percentile of the times from creation to bind, in ms."""
    return lambda measured: percentile(measured.latencies, percent) * 1000 if measured.latencies else None


def creation(percent: float) -> Figure:
    """Return the figure for this percentile of the times from a request to create a pod to its answer, in ms."""
    return lambda measured: percentile(measured.creations, percent) * 1000 if measured.creations else None


def event_delay(measured: Measured) -> float | None:
    """The time from bind to event at p99, in seconds; None if it was not measured."""
    return percentile(measured.event_delays, 99) if measured.event_delays else None


def memory_growth(measured: Measured) -> float | None:
    """By how much the contender's memory grows in a minute, in MB; None if it was not measured."""
    found = slope(measured.resident)
    return None if found is None else found * 60 * _MB


def first_bind(measured: Measured) -> float | None:
    """The time from the start to the first bind, in seconds; None except for a cold start."""
    return measured.first_bind


def memory_beside_pods(measured: Measured) -> float | None:
    """The contender's memory after a cold start, without the allowance for bound pods, in MB; None for other cells."""
    cost = measured.costs.get(measured.cell.contender)
    return None if cost is None or measured.first_bind is None else cost.rss * _MB - measured.cell.pods * _POD


def gap(measured: Measured) -> float | None:
    """The longest time between two binds, in seconds; None except for a failover."""
    return measured.gap


def appearance(percent: float) -> Figure:
    """Return the figure for this percentile of the times from creation to the observer's first watch event, in ms."""
    return lambda measured: percentile(measured.appeared, percent) * 1000 if measured.appeared else None


def queued(measured: Measured) -> float | None:
    """The mean time from the scheduler's first sight of a pod to its attempt, in ms; None except beside a tenant."""
    return None if measured.queued is None else measured.queued * 1000


def memory_share(measured: Measured) -> float | None:
    """The contender's most memory, in percent of its memory limit; None except beside a tenant."""
    return measured.memory_share


def idle_share(measured: Measured) -> float | None:
    """CPU of an idle contender, in percent of a core; None for other cells."""
    cost = measured.costs.get(measured.cell.contender)
    return cost.cpu / measured.window * 100 if cost is not None and measured.window else None


def pod_memory(measured: Measured) -> float | None:
    """Memory of our own code for each pod, in kB; None if there are too few pods to measure it."""
    growth = measured.growth
    return None if growth is None or growth.pod_memory is None else growth.pod_memory / 1000


def claim_memory(measured: Measured) -> float | None:
    """Memory of our own code for each allocated ResourceClaim, in kB; None if it was not measured."""
    growth = measured.growth
    return None if growth is None or growth.claim_memory is None else growth.claim_memory / 1000


def _rate(pods: int, seconds: float | None) -> float | None:
    return pods / seconds if seconds and seconds > 0 and pods else None


def _calls_a_pod(measured: Measured, counts: Callable[[str], bool]) -> float | None:
    times = sum(times for call, times in measured.calls.items() if counts(call.partition(" ")[0]))
    return times / measured.bound if measured.calls and measured.bound else None


@lru_cache(maxsize=32)
def _middles(size: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Return for each resample of `size` values the ranks of the two middle ones (equal if the size is odd).

    Ranks are the same for every sample of that size, so they are drawn once.
    """
    chance = random.Random(seed)  # noqa: S311 - an interval is no secret
    drawn = (sorted(chance.choices(range(size), k=size)) for _ in range(RESAMPLES))
    return tuple((each[(size - 1) // 2], each[size // 2]) for each in drawn)
