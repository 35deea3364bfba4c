from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.figures import (
    Ratio,
    Spread,
    bind_rate,
    cpu_a_pod,
    event_rate,
    interval,
    percentile,
    power,
    ratio,
    slope,
    spread,
)
from bench.results import Cell, Cost, Measured
from tests.bench.measured import one

SEED = 1

SPREADS = {
    "one value is its own median and range": ([7.0], Spread(7, 7, 7)),
    "of an odd number it is the one in the middle, in whatever order they come": ([9.0, 1.0, 2.0], Spread(2, 1, 9)),
    "of an even number it is the mean of the two in the middle": ([4.0, 1.0, 2.0, 9.0], Spread(3, 1, 9)),
}


@pytest.mark.parametrize(("values", "told"), SPREADS.values(), ids=SPREADS)
def test_median_and_range(values: list[float], told: Spread) -> None:
    """The median is not moved by one slow repetition; the range shows it."""
    assert spread(values) == told


PERCENTILES = {
    "0 is the least": (0, [3.0, 1.0, 2.0], 1),
    "50 is the median": (50, [4.0, 1.0, 2.0, 9.0], 3),
    "100 is the greatest": (100, [3.0, 1.0, 2.0], 3),
    "one value is every percentile": (99, [5.0], 5),
    "between two ranks it is interpolated": (25, [0.0, 10.0, 20.0], 5),
    "99 of 101 values is the second greatest": (99, [float(each) for each in range(101)], 99),
}


@pytest.mark.parametrize(("percent", "values", "told"), PERCENTILES.values(), ids=PERCENTILES)
def test_percentiles(percent: float, values: list[float], told: float) -> None:
    """Linear between the two nearest ranks."""
    assert percentile(values, percent) == told


SLOPES = {
    "two points are no trend": ([(0.0, 60.0), (1.0, 61.0)], None),
    "a line": ([(0.0, 60.0), (1.0, 62.0), (3.0, 66.0)], 2.0),
    "what stays grows by nothing": ([(0.0, 60.0), (1.0, 60.0), (9.0, 60.0)], 0.0),
    "one outlier is weighed, not believed": ([(0.0, 0.0), (1.0, 4.0), (2.0, 0.0), (3.0, 0.0)], -0.4),
}


@pytest.mark.parametrize(("points", "told"), SLOPES.values(), ids=SLOPES)
def test_slopes(points: list[tuple[float, float]], told: float | None) -> None:
    """By least squares."""
    assert slope(points) == (None if told is None else pytest.approx(told))


RATIOS = {
    "no repetition in common": ({1: 8.0}, {2: 4.0}, None),
    "one pair has no interval": ({1: 8.0}, {1: 4.0}, Ratio(2, None, None, 1)),
    "nor have two": ({1: 8.0, 2: 4.0}, {1: 4.0, 2: 4.0}, Ratio(1.5, None, None, 2)),
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
    # In a resample of seven, four or more are the least in 1.0 % of all cases.
    "of seven pairs the interval leaves the ends out": (
        {each: float(each) for each in range(1, 8)},
        dict.fromkeys(range(1, 8), 1.0),
        Ratio(4, 2, 6, 7),
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "told"), RATIOS.values(), ids=RATIOS)
def test_ratios(ours: dict[int, float], theirs: dict[int, float], told: Ratio | None) -> None:
    """Repetitions are paired by number, since what disturbs one contender disturbs its neighbours in time."""
    assert ratio(ours, theirs, SEED) == told


def test_the_same_seed_gives_the_same_interval_in_whatever_order_the_values_come() -> None:
    """A report that is made twice is the same."""
    values = [1.31, 0.97, 1.12, 1.05, 1.44, 0.88, 1.21, 1.09, 1.17]
    told = interval(values, SEED)
    assert told is not None
    assert told == interval(sorted(values), SEED)
    assert min(values) < told[0] < told[1] < max(values)


def test_what_cannot_be_told_is_refused_with_an_example() -> None:
    """A sentence each, instead of a division by nought."""
    with pytest.raises(ValueError, match=r"cannot give the median of no values: .* such as \[812.5\]"):
        spread([])
    with pytest.raises(ValueError, match=r"cannot give a percentile of no values: .* such as \[0.004\]"):
        percentile([], 50)
    with pytest.raises(ValueError, match=r"cannot give the percentile 101: it lies between 0 and 100, such as 99"):
        percentile([1.0], 101)
    for rate in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"cannot compare a rate of .*: it is above 0, such as 812.5"):
            ratio({1: 1.0}, {1: rate}, SEED)


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
    """None is a rate that there is not; it is never 0 or infinite."""
    assert (bind_rate(measured), event_rate(measured)) == (binds, events)


RATES = st.floats(min_value=0.01, max_value=1e6)
PAIRS = st.lists(st.tuples(RATES, RATES), min_size=1, max_size=9)
QUICK = settings(max_examples=30, deadline=None)


def both(pairs: list[tuple[float, float]]) -> tuple[dict[int, float], dict[int, float]]:
    """Two samples, by repetition."""
    return {number: one for number, (one, _) in enumerate(pairs)}, {
        number: two for number, (_, two) in enumerate(pairs)
    }


@QUICK
@given(PAIRS)
def test_the_value_lies_within_its_interval(pairs: list[tuple[float, float]]) -> None:
    """And there is an interval from three pairs on."""
    told = ratio(*both(pairs), SEED)
    assert told is not None
    assert told.pairs == len(pairs)
    if len(pairs) < 3:
        assert told.low is None
        assert told.high is None
    else:
        assert told.low is not None
        assert told.high is not None
        assert told.low <= told.value <= told.high


@QUICK
@given(PAIRS.filter(lambda pairs: len(pairs) % 2 == 1))
def test_swapped_samples_give_the_reciprocal(pairs: list[tuple[float, float]]) -> None:
    """Of an odd number of pairs; of an even number the mean of two ratios stands in the way."""
    ours, theirs = both(pairs)
    there, back = ratio(ours, theirs, SEED), ratio(theirs, ours, SEED)
    assert there is not None
    assert back is not None
    assert there.value * back.value == pytest.approx(1)


@QUICK
@given(PAIRS, st.floats(min_value=0.01, max_value=100))
def test_a_machine_that_is_faster_for_both_changes_nothing(pairs: list[tuple[float, float]], factor: float) -> None:
    """Ratios are the result because machines differ."""
    ours, theirs = both(pairs)
    before = ratio(ours, theirs, SEED)
    faster = [{number: rate * factor for number, rate in each.items()} for each in (ours, theirs)]
    after = ratio(faster[0], faster[1], SEED)
    assert before is not None
    assert after is not None
    assert after.value == pytest.approx(before.value)
    assert after.low == (None if before.low is None else pytest.approx(before.low))
    assert after.high == (None if before.high is None else pytest.approx(before.high))


@QUICK
@given(st.lists(RATES, min_size=1, max_size=30), st.floats(0, 100), st.floats(0, 100))
def test_percentiles_rise_and_stay_within_the_range(values: list[float], one: float, other: float) -> None:
    """Whatever the values."""
    low, high = percentile(values, min(one, other)), percentile(values, max(one, other))
    assert min(values) <= low <= max(values)
    assert low <= high or low == pytest.approx(high)


POWERS = {
    "two points say nothing": ({10: 1.0, 100: 1.0}, None),
    "what stays has none": ({10: 3.0, 100: 3.0, 5000: 3.0}, 0.0),
    "what doubles with the size has one": ({10: 5.0, 100: 50.0, 5000: 2500.0}, 1.0),
    "what goes with its square has two": ({1: 1.0, 2: 4.0, 8: 64.0}, 2.0),
    "what becomes less has one below none": ({1: 8.0, 2: 4.0, 8: 1.0}, -1.0),
}


@pytest.mark.parametrize(("values", "told"), POWERS.values(), ids=POWERS)
def test_by_which_power_something_grows(values: dict[int, float], told: float | None) -> None:
    """The slope through the logarithms."""
    assert power(values) == (None if told is None else pytest.approx(told, abs=1e-9))


def test_cpu_of_who_answers_is_told_by_answers() -> None:
    """As that of who binds is by pods."""
    answering = Measured(
        cell=Cell("W8", "O"),
        repetition=1,
        began="",
        to_last_bind=0,
        bound=0,
        answered=1000,
        costs={"O": Cost(0.3, 0, 0)},
    )
    assert cpu_a_pod(answering) == pytest.approx(0.3)
    assert cpu_a_pod(one("O", cpu=0.3)) == pytest.approx(0.3)
