from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.comparison import CLIENT_LIMITED, Estimate
from tests.bench.expected_targets import expect
from tests.bench.sample_results import WRONG, one

if TYPE_CHECKING:
    from bench.results import Measured
    from tests.bench.expected_targets import Case

L0 = ("W1", "O/L0", "")
RATIOS: dict[str, Case] = {
    "no cell was measured": (L0, [], None),
    "they have no repetition in common": (L0, [one("O", number=1), one("L0", number=2)], None),
    "the ratio is of rates, so that more is better for us": (
        L0,
        [one("O", 90), one("L0", 100)],
        Estimate(0.9, repetitions=1),
    ),
    "three repetitions have an interval": (
        L0,
        [each for number, ours in enumerate((90, 80, 85)) for each in (one("O", ours, number), one("L0", 100, number))],
        Estimate(0.85, 0.8, 0.9, 3),
    ),
    "ours is compared with the fastest variant of the limit": (
        L0,
        [one("O", 90), one("L0", 100, variant="aiohttp/32"), one("L0", 120, variant="curl/32")],
        Estimate(0.75, repetitions=1, variant="curl/32"),
    ),
    "the fastest variant is the one with the greatest median": (
        L0,
        [one("O", 90, number) for number in (1, 2, 3)]
        + [one("L0", rate, number, variant="lucky") for number, rate in enumerate((900, 80, 80), 1)]
        + [one("L0", 100, number, variant="steady") for number in (1, 2, 3)],
        Estimate(0.9, 0.9, 0.9, 3, "steady"),
    ),
    "our slowest variant is compared": (
        L0,
        [one("O", 90, variant="a"), one("O", 80, variant="b"), one("L0", 100)],
        Estimate(0.8, repetitions=1),
    ),
    "a repetition that went wrong is ignored": (
        L0,
        [one("O", 10, **WRONG), one("O", 90, 2), one("L0", 100, 1), one("L0", 100, 2)],
        Estimate(0.9, repetitions=1),
    ),
    "a variant of the limit that went wrong is ignored": (
        L0,
        [one("O", 90), one("L0", 500, variant="a", **WRONG), one("L0", 100, variant="b")],
        Estimate(0.9, repetitions=1, variant="b"),
    ),
    "a client that uses its whole core gives no ratio": (
        L0,
        [one("O", 90), one("L0", 100, cpu=9.1, variant="a", to_last_event=None)],
        Estimate(None, repetitions=1, variant="a", instead=CLIENT_LIMITED),
    ),
    "a slower variant of the limit may use its whole core": (
        L0,
        [one("O", 90), one("L0", 50, cpu=20, variant="a", to_last_event=None), one("L0", 100, cpu=5, variant="b")],
        Estimate(0.9, repetitions=1, variant="b"),
    ),
    "the lower end of an interval may have a bound of its own": (
        ("W1", "O/K", "least"),
        [one(name, rate, number) for number in (1, 2, 3) for name, rate in (("O", 90 + 10 * number), ("K", 50))],
        Estimate(2, 2, 2.4, repetitions=3),
    ),
    "the upper end of an interval may have one": (
        ("W2-sustained", "O/A", "most"),
        [
            one(name, rate, number, workload="W2-sustained")
            for number in (1, 2, 3)
            for name, rate in (("O", 60 + 10 * number), ("A", 100))
        ],
        Estimate(0.9, 0.7, 0.9, repetitions=3),
    ),
    "the largest size that both have is compared": (
        L0,
        [one("O", 90), one("O", 80, pods=9000), one("L0", 100), one("L0", 400, pods=200), one("O", 400, pods=200)],
        Estimate(0.9, repetitions=1),
    ),
    "a contender without events has no rate to the last event": (
        ("W1", "O/L", ""),
        [one("O", 90), one("L", 100, to_last_event=None)],
        None,
    ),
    "each fill of W3 is compared by itself": (
        ("W3", "O/L", "70 %"),
        [
            one(name, rate, workload="W3", variant=fill, pods=pods, to_last_event=pods / rate)
            for name, rate, fill, pods in (
                *(("O", 80, "70%", 1000), ("L", 100, "70%", 1000)),
                *(("O", 30, "95%", 2000), ("L", 100, "95%", 2000)),
            )
        ],
        Estimate(0.8, repetitions=1, variant="70%"),
    ),
    "W4 is compared with W2": (
        ("W4", "O/O", ""),
        [one("O", 95, workload="W4", pods=2000), one("O", 100, workload="W2")],
        Estimate(0.95, repetitions=1),
    ),
    "what a webhook adds to a creation is a difference": (
        ("W8", "O-P", "p50"),
        [
            one(name, workload="W8", variant="creations", creations=[took, took, 9.0])
            for name, took in (("O", 0.007), ("P", 0.004))
        ],
        Estimate(3, repetitions=1),
    ),
    "a creation without the other contender has no difference": (
        ("W8", "O-P", "p50"),
        [one("O", workload="W8", variant="creations", creations=[0.007]), one("P", workload="W8", variant="creations")],
        None,
    ),
}


@pytest.mark.parametrize(("which", "measured", "found"), RATIOS.values(), ids=RATIOS)
def test_what_a_ratio_is_made_of(which: tuple[str, str, str], measured: list[Measured], found: Estimate | None) -> None:
    """The best variant of the limit and of others is compared with our worst one."""
    expect(which, measured, found)
