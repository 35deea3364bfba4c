"""What the benchmark is to reach, and what a session has found of it.

Where a contender has several variants, all others stand with their best and we with our worst: what is said of us is
never too good.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.figures import bind_rate, event_rate, interval, percentile, ratio
from bench.results import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.results import Growth, Measured

    Figure = Callable[[Measured], float | None]

OURS: Final = "O"
LIMITS: Final = ("L", "L0")
GROWTH: Final = "growth"
CHURNED: Final = (1000, 1000)
"""Nodes and pods of the cluster on which many more pods come and go before anything is measured."""
AFTER: Final = "after 50,000 pods"
CLIENT_LIMITED: Final = "the client was the limit"
BUSY: Final = 0.9
"""CPU seconds per second above which a client of the limit has no core left to be faster with."""
SEED: Final = 1
"""Any number does, as long as it stays: the same session then gives the same intervals."""
_READS: Final = frozenset({"GET", "LIST"})
_WATCHES: Final = frozenset({"WATCH"})
_ELECTION: Final = 0.005
"""Who is elected lists everything once more; spread over a workload's pods that is less than one read in 200 pods."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of a target; where no value can be given, `instead` says why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    repetitions: int = 0
    variant: str = ""
    """The variant of the contender that we are compared with."""
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure of a workload; `find` gives None when its cells are not there."""

    workload: str
    what: str
    contenders: str
    bound: float
    at_least: bool
    find: Callable[[Sequence[Measured]], Found | None]
    unit: str = ""

    def met(self, found: Found | None) -> bool | None:
        """Whether the value keeps the bound; None without a value."""
        if found is None or found.value is None:
            return None
        return found.value >= self.bound if self.at_least else found.value <= self.bound


def cells(measured: Iterable[Measured], workload: str, contender: str) -> dict[Cell, list[Measured]]:
    """Give the repetitions of a contender in a workload, by cell."""
    found: dict[Cell, list[Measured]] = defaultdict(list)
    for each in measured:
        if (each.cell.workload, each.cell.contender) == (workload, contender):
            found[each.cell].append(each)
    return found


def largest(found: dict[Cell, list[Measured]], sizes: Iterable[tuple[int, int]] = ()) -> dict[Cell, list[Measured]]:
    """Keep the cells with the most pods, and of these with the most nodes; of certain `sizes` alone where some are."""
    size = max(sizes, default=None) or max(map(_size, found), default=None)
    return {cell: repetitions for cell, repetitions in found.items() if _size(cell) == size}


def chosen(found: dict[Cell, list[Measured]], figure: Figure, *, most: bool) -> list[Measured]:
    """Give the right repetitions of the cell with the greatest or the least median figure; none where no cell has one.

    A repetition with anything wrong takes no part, nor does one without the figure.
    """
    right = [[each for each in every if not each.wrong and figure(each) is not None] for every in found.values()]
    ordered = sorted((every for every in right if every), key=lambda every: median(_values(every, figure)))
    return ordered[-1 if most else 0] if ordered else []


def client_limited(repetitions: Sequence[Measured]) -> bool:
    """Whether the limit's client was at the end of its own CPU, by the median of its repetitions."""
    shares = [
        cost.cpu / (each.to_last_event or each.to_last_bind)
        for each in repetitions
        if each.to_last_bind > 0 and (cost := each.costs.get(each.cell.contender)) is not None
    ]
    return bool(shares) and median(shares) > BUSY


def cpu_a_pod(measured: Measured) -> float | None:
    """CPU of the contender for each pod that was bound, in ms; None where it was not measured."""
    cost = measured.costs.get(measured.cell.contender)
    return None if cost is None or not measured.bound else cost.cpu / measured.bound * 1000


def writes_a_pod(measured: Measured) -> float | None:
    """Writes to the API server for each pod that was bound; None where they were not counted."""
    return _calls_a_pod(measured, lambda verb: verb not in _READS | _WATCHES)


def reads_a_pod(measured: Measured) -> float | None:
    """Likewise for what is read; a watch is no read, it is what saves them."""
    return _calls_a_pod(measured, _READS.__contains__)


def _calls_a_pod(measured: Measured, counts: Callable[[str], bool]) -> float | None:
    times = sum(times for call, times in measured.calls.items() if counts(call.partition(" ")[0]))
    return times / measured.bound if measured.calls and measured.bound else None


def _size(cell: Cell) -> tuple[int, int]:
    return cell.pods, cell.nodes


def _values(repetitions: Iterable[Measured], figure: Figure) -> list[float]:
    return [value for each in repetitions if (value := figure(each)) is not None]


def _by_number(repetitions: Iterable[Measured], figure: Figure) -> dict[int, float]:
    return {each.repetition: value for each in repetitions if (value := figure(each)) is not None}


def _compared(
    ours: str, theirs: tuple[str, str], rate: Figure = bind_rate
) -> Callable[[Sequence[Measured]], Found | None]:
    """Compare our rate in a workload with that of a workload and contender, at the largest size that both have."""

    def find(measured: Sequence[Measured]) -> Found | None:
        mine, others = cells(measured, ours, OURS), cells(measured, *theirs)
        sizes = set(map(_size, mine)) & set(map(_size, others))
        own = chosen(largest(mine, sizes), rate, most=False)
        other = chosen(largest(others, sizes), rate, most=True)
        if not own or not other:
            return None
        variant = other[0].cell.variant
        if theirs[1] in LIMITS and client_limited(other):
            return Found(None, repetitions=len(other), variant=variant, instead=CLIENT_LIMITED)
        found = ratio(_by_number(own, rate), _by_number(other, rate), SEED)
        return None if found is None else Found(found.value, found.low, found.high, found.pairs, variant)

    return find


def _ours(workload: str, figure: Figure) -> Callable[[Sequence[Measured]], Found | None]:
    """Take the median of a figure of ours of which less is better."""

    def find(measured: Sequence[Measured]) -> Found | None:
        repetitions = chosen(largest(cells(measured, workload, OURS)), figure, most=True)
        if not repetitions:
            return None
        values = _values(repetitions, figure)
        low, high = interval(values, SEED) or (None, None)
        return Found(median(values), low, high, len(values))

    return find


def _latency(percent: float) -> Figure:
    """In ms."""
    return lambda measured: percentile(measured.latencies, percent) * 1000 if measured.latencies else None


def _event_delay(measured: Measured) -> float | None:
    return percentile(measured.event_delays, 99) if measured.event_delays else None


def _grown(of: Callable[[Growth], float], large: Cell, small: Cell) -> Callable[[Sequence[Measured]], Found | None]:
    """Compare what something costs at two sizes of a cluster."""

    def costs(measured: Sequence[Measured], cell: Cell) -> dict[int, float]:
        right = [each for each in measured if each.cell == cell and not each.wrong]
        return {each.repetition: of(each.growth) for each in right if each.growth}

    def find(measured: Sequence[Measured]) -> Found | None:
        found = ratio(costs(measured, large), costs(measured, small), SEED)
        return None if found is None else Found(found.value, found.low, found.high, found.pairs)

    return find


def _size_of(nodes: int, pods: int, variant: str = "") -> Cell:
    return Cell(GROWTH, OURS, variant, nodes, pods)


def _pod_memory(measured: Measured) -> float | None:
    growth = measured.growth
    return None if growth is None or growth.pod_memory is None else growth.pod_memory / 1000


_CHURN: Final = _grown(lambda growth: growth.line, _size_of(*CHURNED, AFTER), _size_of(*CHURNED))
_BY_MAP: Final = _grown(lambda growth: growth.pinned, _size_of(5000, 100), _size_of(10, 100))
_BY_STRATEGY: Final = _grown(lambda growth: growth.strategy, _size_of(5000, 1000), _size_of(100, 1000))
TARGETS: Final = (
    Target("W1", "rate to the last bind", "O/L0", 0.8, True, _compared("W1", ("W1", "L0"))),
    Target("W1", "rate to the last event", "O/L", 0.95, True, _compared("W1", ("W1", "L"), event_rate)),
    Target("W1", "rate to the last bind", "O/K", 1.5, True, _compared("W1", ("W1", "K"))),
    Target("W1", "rate to the last bind", "O/N", 5.0, True, _compared("W1", ("W1", "N"))),
    Target("W1", "CPU a pod", "O", 0.4, False, _ours("W1", cpu_a_pod), "ms"),
    Target("W1", "writes a pod", "O", 2.0, False, _ours("W1", writes_a_pod)),
    Target("W1", "reads a pod, an election's lists included", "O", _ELECTION, False, _ours("W1", reads_a_pod)),
    Target("W2", "from creation to bind, p50", "O", 10.0, False, _ours("W2", _latency(50)), "ms"),
    Target("W2", "from creation to bind, p99", "O", 50.0, False, _ours("W2", _latency(99)), "ms"),
    Target("W2", "from bind to event, p99", "O", 1.0, False, _ours("W2", _event_delay), "s"),
    Target("W1-5000", "rate to the last bind", "O/N", 30.0, True, _compared("W1-5000", ("W1-5000", "N"))),
    Target("W4", "rate of the stream beside that of W2", "O/O", 0.9, True, _compared("W4", ("W2", OURS))),
    Target(GROWTH, "decision by map at 5,000 nodes beside 10", "O/O", 1.1, False, _BY_MAP),
    Target(GROWTH, "decision by strategy at 5,000 nodes beside 100", "O/O", 1.3, False, _BY_STRATEGY),
    Target(GROWTH, f"decision on a free line {AFTER}, beside none", "O/O", 1.1, False, _CHURN),
    Target(GROWTH, "memory a pod", "O", 2.5, False, _ours(GROWTH, _pod_memory), "kB"),
)
