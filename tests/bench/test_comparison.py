from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.comparison import CLIENT_LIMITED, Estimate
from bench.results import Cost
from tests.bench.expected_targets import expect
from tests.bench.sample_results import WRONG, one

if TYPE_CHECKING:
    from bench.results import Measured
    from tests.bench.expected_targets import Case

L0 = ("W1", "O/L0", "")
RATIOS: dict[str, Case] = {
    "no cell was measured": (L0, [], None),
    "only one of the two was measured": (L0, [one("O")], None),
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
    "a client with idle CPU gives a ratio": (
        L0,
        [one("O", 90), one("L0", 100, cpu=8.9, to_last_event=None)],
        Estimate(0.9, repetitions=1),
    ),
    "a slower variant of the limit may use its whole core": (
        L0,
        [one("O", 90), one("L0", 50, cpu=20, variant="a", to_last_event=None), one("L0", 100, cpu=5, variant="b")],
        Estimate(0.9, repetitions=1, variant="b"),
    ),
    "another scheduler may use its whole core": (
        ("W1", "O/K", "rate"),
        [one("O", 90), one("K", 45, cpu=100)],
        Estimate(2, repetitions=1),
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
    "a naive scheduler on fewer pods is compared by its rate": (
        ("W1", "O/N", ""),
        [one("O", 90), one("N", 15, pods=200)],
        Estimate(6, repetitions=1),
    ),
    "rates to the last event are compared": (
        ("W1", "O/L", ""),
        [one("O", 90, to_last_event=10.0), one("L", 100, to_last_event=10.0)],
        Estimate(1, repetitions=1),
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
    "pods with claims are compared with those of kube-scheduler": (
        ("claims", "O/K", ""),
        [one(name, rate, workload="claims") for name, rate in (("O", 90), ("K", 60), ("KC", 30))],
        Estimate(1.5, repetitions=1),
    ),
    "kube-scheduler while its claims are created is another contender": (
        ("claims", "O/KC", ""),
        [one(name, rate, workload="claims") for name, rate in (("O", 90), ("K", 60), ("KC", 30))],
        Estimate(3, repetitions=1),
    ),
    "pods with claims are compared with ours without": (
        ("claims", "O/O", ""),
        [one("O", 90, workload="claims"), one("O", 100, workload="claims-env"), one("K", 60, workload="claims")],
        Estimate(0.9, repetitions=1),
    ),
    "what a webhook adds to a creation is a difference": (
        ("W8", "O-P", "p50"),
        [
            one(name, workload="W8", variant="creations", creations=[took, took, 9.0])
            for name, took in (("O", 0.007), ("P", 0.004))
        ],
        Estimate(3, repetitions=1),
    ),
    "a difference is between values of one repetition": (
        ("W8", "O-P", "p99"),
        [
            one(name, number=number, workload="W8", variant="creations", creations=[took])
            for number in (1, 2, 3)
            for name, took in (("O", 0.002 * number), ("P", 0.001 * number))
        ],
        Estimate(2, 1, 3, 3),
    ),
    "a creation without the other contender has no difference": (
        ("W8", "O-P", "p50"),
        [one("O", workload="W8", variant="creations", creations=[0.007]), one("P", workload="W8", variant="creations")],
        None,
    ),
    "creations are not compared with reviews": (
        ("W8", "O/P", ""),
        [
            one(name, workload="W8", variant=variant, answered=answered, to_last_answer=10.0)
            for name, variant, answered in (
                ("O", "creations", 450),
                ("P", "creations", 500),
                ("O", "reviews", 5000),
                ("H", "reviews", 10000),
            )
        ],
        Estimate(0.9, repetitions=1, variant="creations"),
    ),
    "our creations are compared with those of the bare handler": (
        ("W8", "O/H", ""),
        [
            one(name, workload="W8", variant="creations", answered=answered, to_last_answer=10.0)
            for name, answered in (("O", 5000), ("H", 10000))
        ],
        Estimate(0.5, repetitions=1, variant="creations"),
    ),
    "a review costs more than one of the bare handler": (
        ("W8", "O-H", "CPU"),
        [
            one(name, workload="W8", variant="reviews", pods=0, answered=10_000, costs={name: Cost(cpu, 0, 0)})
            for name, cpu in (("O", 1.2), ("H", 0.5))
        ],
        Estimate(0.07, repetitions=1),
    ),
    "a client that uses its whole core gives no ratio with the bare handler": (
        ("W8", "O/H", ""),
        [
            one(
                name,
                workload="W8",
                variant="creations",
                answered=1,
                to_last_answer=10.0,
                costs={"client": Cost(cpu, 0, 0)},
            )
            for name, cpu in (("O", 1), ("H", 9.1))
        ],
        Estimate(None, repetitions=1, variant="creations", instead=CLIENT_LIMITED),
    ),
}


@pytest.mark.parametrize(("which", "measured", "found"), RATIOS.values(), ids=RATIOS)
def test_what_a_ratio_is_made_of(which: tuple[str, str, str], measured: list[Measured], found: Estimate | None) -> None:
    """The best variant of the limit and of others is compared with our worst one."""
    expect(which, measured, found)
