"""Compares the cells of a session: chooses the cells of a figure and computes the ratios.

If a contender has several variants, its best one is compared with our worst one: no result favours us.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.figures import bind_rate, interval, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bench.figures import Figure
    from bench.results import Cell, Growth, Measured

    Find = Callable[[Sequence[Measured]], "Estimate | None"]

OURS: Final = "O"
LIMITS: Final = ("L", "L0", "A")
CLIENT: Final = "client"
"""The key of the costs of a client that sets the rate and is not a contender."""
CLIENT_LIMITED: Final = "the client was the limit"
BUSY: Final = 0.9
"""CPU seconds per second. Above this a client of the limit uses its whole core and cannot be faster."""
SEED: Final = 1
"""An arbitrary constant: the same session then gives the same intervals."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The value that was measured for a target; without a value, `instead` gives the reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    repetitions: int = 0
    variant: str = ""
    """The variant of the contender with which ours is compared."""
    instead: str = ""


def cells(measured: Iterable[Measured], workload: str, contender: str) -> dict[Cell, list[Measured]]:
    """Return the repetitions of a contender in a workload, by cell."""
    found: dict[Cell, list[Measured]] = defaultdict(list)
    for each in measured:
        if (each.cell.workload, each.cell.contender) == (workload, contender):
            found[each.cell].append(each)
    return found


def largest(found: dict[Cell, list[Measured]], sizes: Iterable[tuple[int, int]] = ()) -> dict[Cell, list[Measured]]:
    """Keep the cells with the most pods, and of these with the most nodes; with `sizes`, only cells of these sizes."""
    size = max(sizes, default=None) or max(map(_size, found), default=None)
    return {cell: repetitions for cell, repetitions in found.items() if _size(cell) == size}


def chosen(found: dict[Cell, list[Measured]], figure: Figure, *, most: bool) -> list[Measured]:
    """Return the valid repetitions of the cell with the greatest (`most`) or least median figure; empty without a cell.

    A repetition that went wrong, or that lacks the figure, is ignored.
    """
    right = [[each for each in every if not each.wrong and figure(each) is not None] for every in found.values()]
    ordered = sorted((every for every in right if every), key=lambda every: median(_values(every, figure)))
    return ordered[-1 if most else 0] if ordered else []


def client_limited(repetitions: Sequence[Measured]) -> bool:
    """Whether the client that set the rate used all of its CPU, by the median of its repetitions.

    The contenders of the limit are such clients; other schedulers have no such client.
    """
    shares = _values(repetitions, _client_share)
    return bool(shares) and median(shares) > BUSY


def _client_share(measured: Measured) -> float | None:
    """Return the client's CPU seconds per second; None without a client."""
    contender = measured.cell.contender
    cost = measured.costs.get(contender if contender in LIMITS else CLIENT)
    seconds = measured.to_last_answer or measured.to_last_event or measured.to_last_bind
    return cost.cpu / seconds if cost is not None and seconds > 0 else None


def _size(cell: Cell) -> tuple[int, int]:
    return cell.pods, cell.nodes


def _values(repetitions: Iterable[Measured], figure: Figure) -> list[float]:
    return [value for each in repetitions if (value := figure(each)) is not None]


def _by_number(repetitions: Iterable[Measured], figure: Figure) -> dict[int, float]:
    return {each.repetition: value for each in repetitions if (value := figure(each)) is not None}


def compared(ours: str, theirs: tuple[str, str], rate: Figure = bind_rate) -> Find:
    """Compare our rate in one workload with that of another workload and contender, at the largest common size."""

    def find(measured: Sequence[Measured]) -> Estimate | None:
        mine, others = cells(measured, ours, OURS), cells(measured, *theirs)
        sizes = set(map(_size, mine)) & set(map(_size, others))
        own = chosen(largest(mine, sizes), rate, most=False)
        other = chosen(largest(others, sizes), rate, most=True)
        if not own or not other:
            return None
        variant = other[0].cell.variant
        if client_limited(other):
            return Estimate(None, repetitions=len(other), variant=variant, instead=CLIENT_LIMITED)
        found = ratio(_by_number(own, rate), _by_number(other, rate), SEED)
        return None if found is None else Estimate(found.value, found.low, found.high, found.pairs, variant)

    return find


def at(variant: str, find: Find) -> Find:
    """Restrict a comparison to the cells of one variant."""
    return lambda measured: find([each for each in measured if each.cell.variant == variant])


def least(find: Find) -> Find:
    """Return the lower end of the interval in place of the median."""
    return _end(find, lambda found: found.low)


def most(find: Find) -> Find:
    """Return the upper end of the interval in place of the median."""
    return _end(find, lambda found: found.high)


def _end(find: Find, end: Callable[[Estimate], float | None]) -> Find:
    def found(measured: Sequence[Measured]) -> Estimate | None:
        estimate = find(measured)
        return None if estimate is None else replace(estimate, value=end(estimate))

    return found


def of_ours(workload: str, figure: Figure) -> Find:
    """Return the median of a figure of ours of which less is better."""

    def find(measured: Sequence[Measured]) -> Estimate | None:
        repetitions = chosen(largest(cells(measured, workload, OURS)), figure, most=True)
        if not repetitions:
            return None
        return _found(_values(repetitions, figure))

    return find


def added(workload: str, contender: str, figure: Figure) -> Find:
    """Return what a figure is larger with ours than with another contender, paired by repetition as in ratios."""

    def find(measured: Sequence[Measured]) -> Estimate | None:
        mine, others = (
            _by_number(chosen(largest(cells(measured, workload, name)), figure, most=most), figure)
            for name, most in ((OURS, True), (contender, False))
        )
        more = [mine[number] - others[number] for number in sorted(mine.keys() & others.keys())]
        return _found(more) if more else None

    return find


def _found(values: Sequence[float]) -> Estimate:
    low, high = interval(values, SEED) or (None, None)
    return Estimate(median(values), low, high, len(values))


def sizes_compared(of: Callable[[Growth], float], large: Cell, small: Cell) -> Find:
    """Compare the cost of something at two sizes of a cluster."""

    def costs(measured: Sequence[Measured], cell: Cell) -> dict[int, float]:
        right = [each for each in measured if each.cell == cell and not each.wrong]
        return {each.repetition: of(each.growth) for each in right if each.growth}

    def find(measured: Sequence[Measured]) -> Estimate | None:
        found = ratio(costs(measured, large), costs(measured, small), SEED)
        return None if found is None else Estimate(found.value, found.low, found.high, found.pairs)

    return find
