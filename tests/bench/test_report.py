from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench import report
from bench.columns import NONE, number, remarks
from bench.comparison import CLIENT_LIMITED
from bench.plots import draw
from bench.results import Again, Machine
from bench.targets import TARGETS
from tests.bench.sample_results import WRONG, one, session, size

if TYPE_CHECKING:
    from pathlib import Path

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
    """Three significant digits."""
    assert number(value) == text


def row(text: str, *first: str) -> list[str]:
    """Return the cells of the only row that begins so."""
    (found,) = (line for line in text.splitlines() if line.startswith(f"| {' | '.join(first)} |"))
    return [cell.strip() for cell in found.strip("| ").split(" | ")]


def test_a_report_shows_the_targets() -> None:
    """The value, its interval, and whether the target is met."""
    measured = [
        each
        for number, ours in enumerate((90, 80, 85))
        for each in (one("O", ours, number, cpu=0.5), one("L0", 100, number, variant="curl/32", to_last_event=None))
    ]
    text = report.markdown(session(*measured, one("K", 50), one("L", 100, cpu=99, variant="go/8")))
    assert text.startswith("# Benchmark `quick`\n")
    assert "- commit: `abc123-dirty`\n- machine: A processor, 2 cores, 23.5 GiB of memory, kernel 6.1.0\n" in text
    assert "- versions: etcd 3.6.4, kubernetes 1.36.1\n" in text
    assert f"2 met, 1 missed, {len(TARGETS) - 3} without a value." in text
    rate = ("W1", "rate to the last bind")
    assert row(text, *rate, "O/L0 (curl/32)")[3:] == ["≥ 0.8", "0.85", "0.8 to 0.9", "3", "met"]
    assert row(text, *rate, "O/K")[3:] == ["≥ 1.5", "1.6", "—", "1", "met"]
    assert row(text, *rate, "O/N")[3:] == ["≥ 5", "not measured", "—", "—", "—"]
    assert row(text, "W1", "CPU a pod", "O")[3:] == ["≤ 0.4 ms", "0.5 ms", "0.5 to 0.5", "3", "**missed**"]
    assert row(text, "W1", "rate to the last event", "O/L (go/8)")[4:] == [CLIENT_LIMITED, "—", "1", "—"]


def test_a_value_is_not_rounded_onto_a_bound_that_it_misses() -> None:
    """Otherwise a reader would see 0.8 of 0.8, and the result missed."""
    text = report.markdown(session(one("O", 79.99), one("L0", 100, to_last_event=None)))
    assert row(text, "W1", "rate to the last bind", "O/L0")[3:] == ["≥ 0.8", "0.7999", "—", "1", "**missed**"]


def test_a_report_shows_each_workload() -> None:
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


def test_a_report_has_columns_for_what_was_measured_alone() -> None:
    """A workload has a column only for figures that it has, without columns of dashes."""
    text = report.markdown(
        session(
            one("O", workload="W7", variant="SIGKILL", gap=14.25),
            one("O", workload="idle", variant="alone", cpu=0.3, window=60, pods=0),
        )
    )
    assert row(text, "O", "SIGKILL", "1,000 on 500", "1")[6] == "14.2"
    assert row(text, "O", "alone", NONE, "1")[6] == "0.5"
    assert text.count("s of the longest gap") == text.count("% of a core |") == 1


def test_remarks_are_what_the_pace_does_not_show() -> None:
    """As a terminal shows them during the run."""
    assert remarks(one("O", workload="W6", first_bind=1.25)) == ["1.25 s from start to first bind"]
    assert remarks(one("O")) == []


def test_a_report_shows_how_fast_a_client_was_answered() -> None:
    """And the time of each creation, if it was measured."""
    made = one("P", workload="W8", variant="creations", creations=[0.004, 0.006], answered=500, to_last_answer=0.5)
    asked = one("H", workload="W8", variant="reviews", answered=20000, to_last_answer=2.0)
    text = report.markdown(session(made, asked))
    assert "- **P**: pods created without a webhook\n- **H**: a bare aiohttp handler" in text
    assert row(text, "P", "creations")[6:8] == ["1,000", "5 / 5.98"]
    assert row(text, "H", "reviews")[6:8] == ["10,000", "—"]


def test_a_report_shows_what_was_wrong_and_stays_a_table() -> None:
    """Each fault has a line of its own; a bar in a name does not end a cell."""
    text = report.markdown(session(one("O", variant="a|b", wrong=["two pods\nhave GPU 0"]), one("O", number=2)))
    assert "- W1 O a|b, repetition 1: two pods have GPU 0\n" in text
    assert "| O | a\\|b | 1,000 on 500 | 0 of 1 | — | — | — | — | — |" in text
    assert "Nothing: every repetition takes part." in report.markdown(session(one("O")))


def test_a_report_shows_how_costs_grow() -> None:
    """Each size in a row, the powers below; a size with earlier churn is not included."""
    sizes = [size(nodes, 100, float(nodes), memory=None) for nodes in (10, 100, 1000)]
    text = report.markdown(session(*sizes, size(1000, 5000, 1000), size(1000, 5000, 1, variant="after 50,000 pods")))
    assert row(text, "pods on nodes")[1] == "decision by map, µs"
    assert row(text, "100 on 10") == ["100 on 10", "10", "10", "10", "10", "10", "10", "—"]
    assert row(text, "5,000 on 1,000")[-1] == "2"
    assert row(text, "decision by map") == ["decision by map", "1.00 (10 to 1,000)", "—"]
    assert "memory a node" not in text
    assert "### growth" in text
    assert "### growth" not in report.markdown(session(one("O")))


def test_a_report_shows_which_parts_are_of_another_time() -> None:
    """Parts that were measured again are listed."""
    measured = session(one("O"))
    measured.again.append(Again("W5", "2026-02-03T04:05:06Z", "def456"))
    assert "- measured again: W5, begun 2026-02-03T04:05:06Z, commit `def456`\n" in report.markdown(measured)
    measured.again[-1] = Again("W5", "2026-02-03T04:05:06Z", "def456", Machine("Other CPU", 1, 2048, "6.1"))
    assert "commit `def456`, on another machine: Other CPU, 1 core, 2 GiB of memory, kernel 6.1\n" in report.markdown(
        measured
    )


def test_a_report_of_nothing_says_so() -> None:
    """As after an interrupted session."""
    text = report.markdown(session())
    assert f"0 met, 0 missed, {len(TARGETS)} without a value." in text
    assert "###" not in text


def test_pictures_are_the_same_each_time(tmp_path: Path) -> None:
    """The committed pictures change only with the figures; without data there is no picture."""
    waited = one("O", workload="W2", latencies=[0.004, 0.004])
    sizes = [size(nodes, pods) for nodes, pods in ((10, 100), (5000, 100), (5000, 1000))]
    measured = session(one("O", 90, each_tenth=[5, 5]), one("K", 20, each_tenth=[3]), waited, *sizes)
    written = draw(measured, tmp_path / "one")
    assert [path.name for path in written] == [
        "throughput.png",
        "progress-w1.png",
        "latency-w2.png",
        "growth-nodes.png",
        "growth-pods.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000 for path in written)
    again = draw(session(waited, *sizes), tmp_path / "two")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written[-3:]]
    assert draw(session(one("O", **WRONG)), tmp_path / "none") == []
