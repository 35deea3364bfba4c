from __future__ import annotations

import pytest

from bench.finding import CLIENT_LIMITED, Found
from bench.results import Cost, Measured
from bench.targets import TARGETS, Target
from gpu_scheduler.settings import LeaderSettings
from tests.bench.measured import WRONG, one, size


def target(workload: str, contenders: str, what: str = "") -> Target:
    """The one target of these."""
    (found,) = (
        each for each in TARGETS if (each.workload, each.contenders) == (workload, contenders) and what in each.what
    )
    return found


L0 = ("W1", "O/L0", "")
RATIOS: dict[str, tuple[tuple[str, str, str], list[Measured], Found | None]] = {
    "nothing is there": (L0, [], None),
    "one of the two is not there": (L0, [one("O")], None),
    "they have no repetition in common": (L0, [one("O", number=1), one("L0", number=2)], None),
    "the ratio is of rates, so that more is better for us": (
        L0,
        [one("O", 90), one("L0", 100)],
        Found(0.9, repetitions=1),
    ),
    "three repetitions have an interval": (
        L0,
        [each for number, ours in enumerate((90, 80, 85)) for each in (one("O", ours, number), one("L0", 100, number))],
        Found(0.85, 0.8, 0.9, 3),
    ),
    "the fastest variant is the limit": (
        L0,
        [one("O", 90), one("L0", 100, variant="aiohttp/32"), one("L0", 120, variant="curl/32")],
        Found(0.75, repetitions=1, variant="curl/32"),
    ),
    "the fastest variant is so by its median": (
        L0,
        [one("O", 90, number) for number in (1, 2, 3)]
        + [one("L0", rate, number, variant="lucky") for number, rate in enumerate((900, 80, 80), 1)]
        + [one("L0", 100, number, variant="steady") for number in (1, 2, 3)],
        Found(0.9, 0.9, 0.9, 3, "steady"),
    ),
    "our slowest variant is what counts": (
        L0,
        [one("O", 90, variant="a"), one("O", 80, variant="b"), one("L0", 100)],
        Found(0.8, repetitions=1),
    ),
    "what is wrong takes no part": (
        L0,
        [one("O", 10, **WRONG), one("O", 90, 2), one("L0", 100, 1), one("L0", 100, 2)],
        Found(0.9, repetitions=1),
    ),
    "a variant that is wrong is no limit": (
        L0,
        [one("O", 90), one("L0", 500, variant="a", **WRONG), one("L0", 100, variant="b")],
        Found(0.9, repetitions=1, variant="b"),
    ),
    "a client with a busy core was the limit itself": (
        L0,
        [one("O", 90), one("L0", 100, cpu=9.1, variant="a", to_last_event=None)],
        Found(None, repetitions=1, variant="a", instead=CLIENT_LIMITED),
    ),
    "a client with room left was not": (
        L0,
        [one("O", 90), one("L0", 100, cpu=8.9, to_last_event=None)],
        Found(0.9, repetitions=1),
    ),
    "a slower variant may be as busy as it likes": (
        L0,
        [one("O", 90), one("L0", 50, cpu=20, variant="a", to_last_event=None), one("L0", 100, cpu=5, variant="b")],
        Found(0.9, repetitions=1, variant="b"),
    ),
    "another scheduler may be as busy as it likes": (
        ("W1", "O/K", ""),
        [one("O", 90), one("K", 45, cpu=100)],
        Found(2, repetitions=1),
    ),
    "sizes that both have are compared, the largest of them": (
        L0,
        [one("O", 90), one("O", 80, pods=9000), one("L0", 100), one("L0", 400, pods=200), one("O", 400, pods=200)],
        Found(0.9, repetitions=1),
    ),
    "a naive scheduler on fewer pods is compared by its rate": (
        ("W1", "O/N", ""),
        [one("O", 90), one("N", 15, pods=200)],
        Found(6, repetitions=1),
    ),
    "to the last event": (
        ("W1", "O/L", ""),
        [one("O", 90, to_last_event=10.0), one("L", 100, to_last_event=10.0)],
        Found(1, repetitions=1),
    ),
    "a contender without events has no time to the last": (
        ("W1", "O/L", ""),
        [one("O", 90), one("L", 100, to_last_event=None)],
        None,
    ),
    "each fill by itself": (
        ("W3", "O/L", "70 %"),
        [
            one(name, rate, workload="W3", variant=fill, pods=pods, to_last_event=pods / rate)
            for name, rate, fill, pods in (
                *(("O", 80, "70%", 1000), ("L", 100, "70%", 1000)),
                *(("O", 30, "95%", 2000), ("L", 100, "95%", 2000)),
            )
        ],
        Found(0.8, repetitions=1, variant="70%"),
    ),
    "the stream beside those that fit nowhere": (
        ("W4", "O/O", ""),
        [one("O", 95, workload="W4", pods=2000), one("O", 100, workload="W2")],
        Found(0.95, repetitions=1),
    ),
    "CPU a pod": (("W1", "O", "CPU"), [one("O", cpu=0.3)], Found(0.3, repetitions=1)),
    "CPU of others is not ours": (("W1", "O", "CPU"), [one("O", costs={"etcd": Cost(9.0, 1.0, 1.0)})], None),
    "every write counts, and a read is none": (
        ("W1", "O", "writes"),
        [one("O", calls={"POST pods/binding": 1000, "POST events": 1000, "PATCH pods/status": 100, "LIST pods": 2})],
        Found(2.1, repetitions=1),
    ),
    "a watch is no read": (
        ("W1", "O", "reads"),
        [one("O", calls={"POST pods/binding": 1000, "WATCH pods": 3})],
        Found(0, repetitions=1),
    ),
    "a list is one, and so is a get": (
        ("W1", "O", "reads"),
        [one("O", calls={"LIST pods": 3, "GET leases": 2})],
        Found(0.005, repetitions=1),
    ),
    "requests that nobody counted are not none": (("W1", "O", "reads"), [one("O")], None),
    "half of all pods wait less": (
        ("W2", "O", "p50"),
        [one("O", workload="W2", latencies=[0.001, 0.004, 0.5])],
        Found(4, repetitions=1),
    ),
    "the slowest hundredth": (
        ("W2", "O", "to bind, p99"),
        [one("O", workload="W2", latencies=[each / 1000 for each in range(101)])],
        Found(99, repetitions=1),
    ),
    "a decision in a large cluster beside one in a small one": (
        ("growth", "O/O", "by map"),
        [size(10, 100, 50), size(5000, 100, 60), size(5000, 50_000, 900), size(100, 100, 1)],
        Found(1.2, repetitions=1),
    ),
    "by strategy, where a thousand pods have room": (
        ("growth", "O/O", "by strategy"),
        [size(100, 1000, 50), size(5000, 1000, 50), size(10, 100, 1)],
        Found(1, repetitions=1),
    ),
    "a decision after many have come and gone": (
        ("growth", "O/O", "free line"),
        [size(1000, 1000, 50), size(1000, 1000, 55, variant="after 50,000 pods")],
        Found(1.1, repetitions=1),
    ),
    "a size that went wrong is not there": (
        ("growth", "O/O", "by map"),
        [size(10, 100), Measured(cell=size(5000, 100).cell, repetition=1, began="", to_last_bind=0, bound=0, **WRONG)],
        None,
    ),
    "memory in the largest cluster": (
        ("growth", "O", "memory"),
        [size(5000, 50_000, memory=2600), size(5000, 1000, memory=9000), size(10, 100, memory=None)],
        Found(2.6, repetitions=1),
    ),
    "events come later, in seconds": (
        ("W2", "O", "to event"),
        [one("O", workload="W2", event_delays=[0.5, 0.5])],
        Found(0.5, repetitions=1),
    ),
    "memory grows by the minute, in MB": (
        ("W5", "O", ""),
        [one("O", workload="W5", resident=[(second, 60 + second / 600) for second in range(0, 600, 3)])],
        Found(0.1048576, repetitions=1),
    ),
    "memory that nobody looked at does not grow": (("W5", "O", ""), [one("O", workload="W5")], None),
    "a cold start": (("W6", "O", "first bind"), [one("O", workload="W6", first_bind=1.5)], Found(1.5, repetitions=1)),
    "memory, less what the bound pods may have": (
        ("W6", "O", "memory"),
        [one("O", workload="W6", pods=10_000, first_bind=1.5, costs={"O": Cost(1.0, 100.0, 90.0)})],
        Found(100 * 1.048576 - 25, repetitions=1),
    ),
    "a leader that is killed": (
        ("W7", "O", "killed"),
        [one("O", workload="W7", variant="SIGKILL", gap=14), one("O", workload="W7", variant="SIGTERM", gap=20)],
        Found(14, repetitions=1),
    ),
    "a leader that is told to stop": (
        ("W7", "O", "told to stop"),
        [one("O", workload="W7", variant="SIGKILL", gap=14), one("O", workload="W7", variant="SIGTERM", gap=1)],
        Found(1, repetitions=1),
    ),
    "an idle process, in percent of a core": (
        ("idle", "O", "alone"),
        [one("O", workload="idle", variant="alone", cpu=0.3, window=60)],
        Found(0.5, repetitions=1),
    ),
    "one beside monitors is another matter": (
        ("idle", "O", "alone"),
        [one("O", workload="idle", variant="monitors", cpu=0.3, window=60)],
        None,
    ),
}


@pytest.mark.parametrize(("which", "measured", "found"), RATIOS.values(), ids=RATIOS)
def test_what_is_found_of_a_target(which: tuple[str, str, str], measured: list[Measured], found: Found | None) -> None:
    """The limit and the others stand with their best, we with our worst."""
    told = target(*which).find(measured)
    assert (told is None) == (found is None)
    if told is None or found is None:
        return
    assert told.value == (None if found.value is None else pytest.approx(found.value))
    assert told.low == (None if found.low is None else pytest.approx(found.low))
    assert told.high == (None if found.high is None else pytest.approx(found.high))
    assert (told.repetitions, told.variant, told.instead) == (found.repetitions, found.variant, found.instead)


MET = {
    "at least, and more": (("W1", "O/L0", ""), Found(0.81), True),
    "at least, and just so": (("W1", "O/L0", ""), Found(0.8), True),
    "at least, and less": (("W1", "O/L0", ""), Found(0.79), False),
    "at most, and just so": (("W1", "O", "writes"), Found(2.0), True),
    "at most, and more": (("W1", "O", "writes"), Found(2.001), False),
    "no value": (("W1", "O/L0", ""), Found(None, instead=CLIENT_LIMITED), None),
    "not measured": (("W1", "O/L0", ""), None, None),
}


@pytest.mark.parametrize(("which", "found", "met"), MET.values(), ids=MET)
def test_whether_a_target_is_met(which: tuple[str, str, str], found: Found | None, met: bool | None) -> None:  # noqa: FBT001 - what is expected
    """By the value alone."""
    assert target(*which).met(found) is met


def test_a_gap_may_last_as_long_as_the_lease_that_is_shipped_and_two_seconds() -> None:
    """The role leaves the lease as the scheduler has it."""
    assert target("W7", "O", "killed").bound == LeaderSettings.lease_duration + 2
