from __future__ import annotations

import pytest

from gpu_scheduler_check.report import Report, interval_seconds, read_report


def test_block_is_the_promised_text() -> None:
    """The log has exactly the three lines of the contract."""
    report = read_report({"NODE_NAME": "node3", "CUDA_VISIBLE_DEVICES": "0,1,2", "HOME": "/"})

    assert report.block() == "Node Name: node3\nCUDA_VISIBLE_DEVICES: 0,1,2\n---\n"


def test_empty_and_missing_devices_differ() -> None:
    """The report distinguishes an empty variable (no GPU) from a missing one (CUDA shows every GPU)."""
    assert "CUDA_VISIBLE_DEVICES: \n" in read_report({"CUDA_VISIBLE_DEVICES": ""}).block()
    assert read_report({}).block() == "Node Name: (not set)\nCUDA_VISIBLE_DEVICES: (not set)\n---\n"


def test_metrics_escape_what_labels_may_not_hold() -> None:
    """A quote, a backslash or a line break in a variable does not break the exposition."""
    text = Report('a"b', "c\\d\ne").metrics(3)

    assert 'node="a\\"b",cuda_visible_devices="c\\\\d\\ne"} 1\n' in text
    assert "gpu_scheduler_check_reports_total 3\n" in text


@pytest.mark.parametrize(("text", "seconds"), [("10", 10.0), ("10s", 10.0), (" 0.5s ", 0.5), ("86400", 86_400.0)])
def test_interval_is_seconds(text: str, seconds: float) -> None:
    """CHECK_INTERVAL is a number of seconds, with or without its unit."""
    assert interval_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1s", "1m", "ten", "nan", "inf", "86401"])
def test_bad_interval_names_variable_value_and_example(text: str) -> None:
    """A value that cannot be used is refused in one sentence with an example that works."""
    with pytest.raises(ValueError, match=r"cannot use CHECK_INTERVAL .*example: 10s"):
        interval_seconds(text)
