from __future__ import annotations

from typing import TYPE_CHECKING

from bench import report
from bench.comparison import CLIENT_LIMITED
from bench.plots import draw
from bench.targets import TARGETS
from tests.bench.sample_results import WRONG, one, session, size

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_report_shows_what_was_wrong_and_stays_a_table() -> None:
    """Each fault has a line of its own; a bar in a name does not end a cell."""
    text = report.markdown(session(one("O", variant="a|b", wrong=["two pods\nhave GPU 0"]), one("O", number=2)))
    assert "- W1 O a|b, repetition 1: two pods have GPU 0\n" in text
    assert "| O | a\\|b | 1,000 on 500 | 0 of 1 | — | — | — | — | — |" in text
    assert "Nothing: every repetition takes part." in report.markdown(session(one("O")))


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
