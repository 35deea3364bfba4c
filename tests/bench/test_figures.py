from __future__ import annotations

import pytest

from bench.figures import (
    Ratio,
    Spread,
    bind_rate,
    event_rate,
    percentile,
    power,
    ratio,
    slope,
    spread,
)
from bench.results import Cell, Measured

SEED = 1

SPREADS = {
    "one value is its own median and range": ([7.0], Spread(7, 7, 7)),
    "of an odd number it is the one in the middle, in whatever order they come": ([9.0, 1.0, 2.0], Spread(2, 1, 9)),
    "of an even number it is the mean of the two in the middle": ([4.0, 1.0, 2.0, 9.0], Spread(3, 1, 9)),
}


@pytest.mark.parametrize(("values", "reported"), SPREADS.values(), ids=SPREADS)
def test_median_and_range(values: list[float], reported: Spread) -> None:
    """The median is not moved by one slow repetition; the range shows it."""
    assert spread(values) == reported


PERCENTILES = {
    "0 is the least": (0, [3.0, 1.0, 2.0], 1),
    "50 is the median": (50, [4.0, 1.0, 2.0, 9.0], 3),
    "100 is the greatest": (100, [3.0, 1.0, 2.0], 3),
    "one value is every percentile": (99, [5.0], 5),
    "between two ranks it is interpolated": (25, [0.0, 10.0, 20.0], 5),
    "99 of 101 values is the second greatest": (99, [float(each) for each in range(101)], 99),
}


@pytest.mark.parametrize(("percent", "values", "reported"), PERCENTILES.values(), ids=PERCENTILES)
def test_percentiles(percent: float, values: list[float], reported: float) -> None:
    """Linear between the two nearest ranks."""
    assert percentile(values, percent) == reported


SLOPES = {
    "two points are no trend": ([(0.0, 60.0), (1.0, 61.0)], None),
    "a line": ([(0.0, 60.0), (1.0, 62.0), (3.0, 66.0)], 2.0),
    "a constant has slope 0": ([(0.0, 60.0), (1.0, 60.0), (9.0, 60.0)], 0.0),
    "one outlier changes the slope a little": ([(0.0, 0.0), (1.0, 4.0), (2.0, 0.0), (3.0, 0.0)], -0.4),
}


@pytest.mark.parametrize(("points", "reported"), SLOPES.values(), ids=SLOPES)
def test_slopes(points: list[tuple[float, float]], reported: float | None) -> None:
    """By least squares."""
    assert slope(points) == (None if reported is None else pytest.approx(reported))


RATIOS = {
    "no repetition in common": ({1: 8.0}, {2: 4.0}, None),
    "one pair has no interval": ({1: 8.0}, {1: 4.0}, Ratio(2, None, None, 1)),
    "pairs are made by number, not by order": ({2: 6.0, 1: 8.0}, {1: 4.0, 2: 3.0}, Ratio(2, None, None, 2)),
    "a repetition that one of them lacks is left out": ({1: 8.0, 2: 1.0}, {1: 4.0, 3: 1.0}, Ratio(2, None, None, 1)),
    "the median is of the ratios, not the ratio of the medians": (
        {1: 10.0, 2: 20.0, 3: 90.0},
        {1: 1.0, 2: 10.0, 3: 30.0},
        Ratio(3, 2, 10, 3),
    ),
    # In a resample of five, three or more are the least in 5.8 % of all cases.
    "of five pairs the interval is the range": (
        {each: float(each) for each in range(1, 6)},
        dict.fromkeys(range(1, 6), 1.0),
        Ratio(3, 1, 5, 5),
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "reported"), RATIOS.values(), ids=RATIOS)
def test_ratios(ours: dict[int, float], theirs: dict[int, float], reported: Ratio | None) -> None:
    """Repetitions are paired by number, since what disturbs one contender disturbs its neighbours in time."""
    assert ratio(ours, theirs, SEED) == reported


RECORDS = {
    "pods over seconds": (Measured(cell=Cell("W1", "O"), repetition=1, began="", to_last_bind=2, bound=9), 4.5, None),
    "events have their own time": (
        Measured(cell=Cell("W1", "O"), repetition=1, began="", to_last_bind=2, to_last_event=3, bound=9, events=6),
        4.5,
        2.0,
    ),
    "nothing was bound": (Measured(cell=Cell("W1", "O"), repetition=1, began="", to_last_bind=2, bound=0), None, None),
    "one bind takes no time": (
        Measured(cell=Cell("W1", "O"), repetition=1, began="", to_last_bind=0, to_last_event=0, bound=1, events=1),
        None,
        None,
    ),
}


@pytest.mark.parametrize(("measured", "binds", "events"), RECORDS.values(), ids=RECORDS)
def test_rates_of_a_record(measured: Measured, binds: float | None, events: float | None) -> None:
    """A missing rate is None; it is never 0 or infinite."""
    assert (bind_rate(measured), event_rate(measured)) == (binds, events)


POWERS = {
    "two sizes have no power": ({10: 1.0, 100: 1.0}, None),
    "a constant has power 0": ({10: 3.0, 100: 3.0, 5000: 3.0}, 0.0),
    "a proportional cost has power 1": ({10: 5.0, 100: 50.0, 5000: 2500.0}, 1.0),
}


@pytest.mark.parametrize(("values", "reported"), POWERS.values(), ids=POWERS)
def test_by_which_power_something_grows(values: dict[int, float], reported: float | None) -> None:
    """The slope of the line through the logarithms."""
    assert power(values) == (None if reported is None else pytest.approx(reported, abs=1e-9))
