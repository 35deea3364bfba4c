from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.comparison import CLIENT_LIMITED, Estimate
from bench.results import Cost, Measured
from gpu_scheduler.settings import LeaderSettings
from tests.bench.expected_targets import expect, target
from tests.bench.sample_results import WRONG, one, size

if TYPE_CHECKING:
    from tests.bench.expected_targets import Case

FIGURES: dict[str, Case] = {
    "CPU a pod": (("W1", "O", "CPU"), [one("O", cpu=0.3)], Estimate(0.3, repetitions=1)),
    "every write counts, a read does not": (
        ("W1", "O", "writes"),
        [one("O", calls={"POST pods/binding": 1000, "POST events": 1000, "PATCH pods/status": 100, "LIST pods": 2})],
        Estimate(2.1, repetitions=1),
    ),
    "a list and a get are counted as reads": (
        ("W1", "O", "reads"),
        [one("O", calls={"LIST pods": 3, "GET leases": 2})],
        Estimate(0.005, repetitions=1),
    ),
    "the 99th percentile of the latencies, beside that of the limit": (
        ("W2", "O-A", "p99"),
        [
            one("O", workload="W2", latencies=[each / 1000 for each in range(101)]),
            one("A", workload="W2", latencies=[each / 2000 for each in range(101)]),
        ],
        Estimate(49.5, repetitions=1),
    ),
    "a decision in a large cluster beside one in a small one": (
        ("growth", "O/O", "by map"),
        [size(10, 100, 50), size(5000, 100, 60), size(5000, 50_000, 900), size(100, 100, 1)],
        Estimate(1.2, repetitions=1),
    ),
    "a decision after many pods were placed and removed": (
        ("growth", "O/O", "free line"),
        [size(1000, 1000, 50), size(1000, 1000, 55, variant="after 50,000 pods")],
        Estimate(1.1, repetitions=1),
    ),
    "a size that went wrong is ignored": (
        ("growth", "O/O", "by map"),
        [size(10, 100), Measured(cell=size(5000, 100).cell, repetition=1, began="", to_last_bind=0, bound=0, **WRONG)],
        None,
    ),
    "memory in the largest cluster": (
        ("growth", "O", "memory a pod"),
        [size(5000, 50_000, memory=2600), size(5000, 1000, memory=9000), size(10, 100, memory=None)],
        Estimate(2.6, repetitions=1),
    ),
    "memory grows by the minute, in MB": (
        ("W5", "O", ""),
        [one("O", workload="W5", resident=[(second, 60 + second / 600) for second in range(0, 600, 3)])],
        Estimate(0.1048576, repetitions=1),
    ),
    "memory, less what the bound pods may have": (
        ("W6", "O", "memory"),
        [one("O", workload="W6", pods=10_000, first_bind=1.5, costs={"O": Cost(1.0, 100.0, 90.0)})],
        Estimate(100 * 1.048576 - 25, repetitions=1),
    ),
    "a leader that is killed": (
        ("W7", "O", "killed"),
        [one("O", workload="W7", variant="SIGKILL", gap=14), one("O", workload="W7", variant="SIGTERM", gap=20)],
        Estimate(14, repetitions=1),
    ),
    "a tenant's pods beside another's replicas": (
        ("neighbour", "O", "replicas"),
        [
            one("O", workload="neighbour", variant="replicas", latencies=[each / 1000 for each in range(101)]),
            one("O", workload="neighbour", variant="alone", latencies=[0.001]),
        ],
        Estimate(99, repetitions=1),
    ),
    "the most memory beside any load of a tenant": (
        ("neighbour", "O", "memory"),
        [
            one("O", workload="neighbour", variant="replicas", memory_share=30.0),
            one("O", workload="neighbour", variant="patches", memory_share=60.0),
        ],
        Estimate(60, repetitions=1),
    ),
    "an idle process, in percent of a core": (
        ("idle", "O", "alone"),
        [one("O", workload="idle", variant="alone", cpu=0.3, window=60)],
        Estimate(0.5, repetitions=1),
    ),
}


@pytest.mark.parametrize(("which", "measured", "found"), FIGURES.values(), ids=FIGURES)
def test_what_is_found_of_a_target(
    which: tuple[str, str, str], measured: list[Measured], found: Estimate | None
) -> None:
    """The value is the median of the target's figure."""
    expect(which, measured, found)


MET = {
    "a value above a lower bound": (("W1", "O/L0", ""), Estimate(0.81), True),
    "a value equal to a lower bound": (("W1", "O/L0", ""), Estimate(0.8), True),
    "a value below a lower bound": (("W1", "O/L0", ""), Estimate(0.79), False),
    "a value equal to an upper bound": (("W1", "O", "writes"), Estimate(2.0), True),
    "a value above an upper bound": (("W1", "O", "writes"), Estimate(2.001), False),
    "no value": (("W1", "O/L0", ""), Estimate(None, instead=CLIENT_LIMITED), None),
    "not measured": (("W1", "O/L0", ""), None, None),
}


@pytest.mark.parametrize(("which", "found", "met"), MET.values(), ids=MET)
def test_whether_a_target_is_met(which: tuple[str, str, str], found: Estimate | None, met: bool | None) -> None:  # noqa: FBT001 - what is expected
    """Only the value decides, not its interval."""
    assert target(*which).met(found) is met


def test_a_gap_may_last_as_long_as_the_lease_that_is_shipped_and_two_seconds() -> None:
    """The role keeps the scheduler's default duration of the Lease."""
    assert target("W7", "O", "killed").bound == LeaderSettings.lease_duration + 2
