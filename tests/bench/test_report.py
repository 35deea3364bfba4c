from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench import report
from bench.plots import draw
from bench.results import Cell, Cost, Machine, Measured, Session
from bench.targets import CLIENT_LIMITED, TARGETS, Found, Target

if TYPE_CHECKING:
    from pathlib import Path


def one(  # noqa: PLR0913 - each is a field of the record
    contender: str,
    rate: float = 100.0,
    number: int = 1,
    *,
    workload: str = "W1",
    variant: str = "",
    pods: int = 1000,
    nodes: int = 500,
    cpu: float | None = None,
    **fields: Any,
) -> Measured:
    """One repetition, bound at so many pods a second; events take twice the time."""
    seconds = pods / rate
    costs = {} if cpu is None else {contender: Cost(cpu, 80.0, 60.0)}
    given = {"to_last_event": 2 * seconds, "events": pods, "costs": costs, **fields}
    cell = Cell(workload, contender, variant, nodes, pods)
    return Measured(cell=cell, repetition=number, began="", to_last_bind=seconds, bound=pods, **given)


def session(*measured: Measured) -> Session:
    """A session of these."""
    machine = Machine("A processor", 2, 24103, "6.1.0")
    versions = {"kubernetes": "1.36.1", "etcd": "3.6.4"}
    return Session(
        name="quick",
        began="2026-01-02T03:04:05Z",
        commit="abc123-dirty",
        versions=versions,
        machine=machine,
        measured=list(measured),
    )


def target(workload: str, contenders: str, what: str = "") -> Target:
    """The one target of these."""
    (found,) = (
        each for each in TARGETS if (each.workload, each.contenders) == (workload, contenders) and what in each.what
    )
    return found


WRONG: dict[str, Any] = {"wrong": ["a GPU was given twice"]}
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
    "events come later, in seconds": (
        ("W2", "O", "to event"),
        [one("O", workload="W2", event_delays=[0.5, 0.5])],
        Found(0.5, repetitions=1),
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


NUMBERS = {
    0.0: "0",
    5000: "5,000",
    1234.5: "1,234",
    81.25: "81.2",
    80.0: "80",
    0.8: "0.8",
    0.79649: "0.796",
    0.0002: "0.0002",
    -3.5: "-3.5",
}


@pytest.mark.parametrize(("value", "text"), NUMBERS.items())
def test_numbers_are_written_for_people(value: float, text: str) -> None:
    """Three digits that count."""
    assert report.number(value) == text


def row(text: str, *first: str) -> list[str]:
    """The one row of a table that begins so, cell by cell."""
    (found,) = (line for line in text.splitlines() if line.startswith(f"| {' | '.join(first)} |"))
    return [cell.strip() for cell in found.strip("| ").split(" | ")]


def test_a_report_tells_the_targets() -> None:
    """What was found, how sure it is, and whether that is enough."""
    measured = [
        each
        for number, ours in enumerate((90, 80, 85))
        for each in (one("O", ours, number, cpu=0.5), one("L0", 100, number, variant="curl/32", to_last_event=None))
    ]
    text = report.markdown(session(*measured, one("K", 50), one("L", 100, cpu=99, variant="go/8")))
    assert text.startswith("# Benchmark `quick`\n")
    assert "- commit: `abc123-dirty`\n- machine: A processor, 2 cores, 23.5 GiB of memory, kernel 6.1.0\n" in text
    assert "- versions: etcd 3.6.4, kubernetes 1.36.1\n" in text
    assert "2 met, 1 missed, 8 without a value." in text
    rate = ("W1", "rate to the last bind")
    assert row(text, *rate, "O/L0 (curl/32)")[3:] == ["≥ 0.8", "0.85", "0.8 to 0.9", "3", "met"]
    assert row(text, *rate, "O/K")[3:] == ["≥ 1.5", "1.6", "—", "1", "met"]
    assert row(text, *rate, "O/N")[3:] == ["≥ 5", "not measured", "—", "—", "—"]
    assert row(text, "W1", "CPU a pod", "O")[3:] == ["≤ 0.4 ms", "0.5 ms", "0.5 to 0.5", "3", "**missed**"]
    assert row(text, "W1", "rate to the last event", "O/L (go/8)")[4:] == [CLIENT_LIMITED, "—", "1", "—"]


def test_a_value_is_not_rounded_onto_a_bound_that_it_misses() -> None:
    """Otherwise a reader would see 0.8 of 0.8, and that it was missed."""
    text = report.markdown(session(one("O", 79.99), one("L0", 100, to_last_event=None)))
    assert row(text, "W1", "rate to the last bind", "O/L0")[3:] == ["≥ 0.8", "0.7999", "—", "1", "**missed**"]


def test_a_report_tells_each_workload() -> None:
    """Every variant has a row, in the order of the contenders, and dashes where it has no figure."""
    calls = {"POST pods/binding": 1000, "POST events": 1000, "PUT leases": 4}
    text = report.markdown(
        session(
            one("N", 15, pods=200, to_last_event=None),
            one("O", 2000, cpu=0.3, calls=calls),
            one("O", 1000, 2, cpu=0.5, calls=calls),
            one("O", 1, 3, **WRONG),
            one("L0", 1500, variant="curl/32"),
            one("L0", 1400, variant="aiohttp/32"),
            one("O", 50, workload="W2", latencies=[0.004, 0.006], event_delays=[0.02]),
        )
    )
    assert "These are footnotes: machines differ" in text
    assert "### W1: a backlog of mapped pods" in text
    cost = ["0.4", "80 / 60", "POST 2, PUT 0.004"]
    rates = ["1,500 (1,000 to 2,000)", "750 (500 to 1,000)"]
    assert row(text, "O", "—", "1,000 on 500", "2 of 3")[4:] == [*rates, *cost]
    assert row(text, "N", "—", "200 on 500")[3:] == ["1", "15", "—", "—", "—", "—"]
    assert row(text, "O", "—", "1,000 on 500", "1")[4:7] == ["50", "25", "5 / 5.98"]
    assert [line.split()[1:4:2] for line in text.splitlines() if " on 500 " in line] == [
        ["L0", "aiohttp/32"],
        ["L0", "curl/32"],
        ["O", "—"],
        ["N", "—"],
        ["O", "—"],
    ]


def test_a_report_tells_what_was_wrong_and_stays_a_table() -> None:
    """Each on a line of its own; a bar in a name is no end of a cell."""
    text = report.markdown(session(one("O", variant="a|b", wrong=["two pods\nhave GPU 0"]), one("O", number=2)))
    assert "- W1 O a|b, repetition 1: two pods have GPU 0\n" in text
    assert "| O | a\\|b | 1,000 on 500 | 0 of 1 | — | — | — | — | — |" in text
    assert "Nothing: every repetition takes part." in report.markdown(session(one("O")))


def test_a_report_of_nothing_says_so() -> None:
    """As where a session broke off."""
    text = report.markdown(session())
    assert "0 met, 0 missed, 11 without a value." in text
    assert "###" not in text


def test_pictures_come_out_as_png_and_svg_and_are_the_same_each_time(tmp_path: Path) -> None:
    """What is committed changes only where the figures do; what has no data is not drawn."""
    waited = one("O", workload="W2", latencies=[0.004, 0.004])
    measured = session(one("O", 90, each_tenth=[5, 5]), one("K", 20, each_tenth=[3]), waited)
    written = draw(measured, tmp_path / "one")
    assert [path.name for path in written] == [
        *("throughput.png", "throughput.svg"),
        *("progress-w1.png", "progress-w1.svg"),
        *("latency-w2.png", "latency-w2.svg"),
    ]
    assert all(path.read_bytes().startswith((b"\x89PNG", b"<?xml")) and path.stat().st_size > 5000 for path in written)
    again = draw(session(waited), tmp_path / "two")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written[-2:]]
    assert draw(session(one("O", **WRONG)), tmp_path / "none") == []
