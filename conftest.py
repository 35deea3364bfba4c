"""What holds for every ring: a skip is an error where CI is set, and what failed is told once more at the end.

Tests that are marked `long` run with --long, and then no others do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

# Taken out of the environment, so that a pytest that a test starts does not write there too.
FAILURES: Final = os.environ.pop("RINGS_FAILURES", None)
"""The file that tests/rings.py prints at its end: one line for each failure, also of cases that molecule runs."""
LONGEST_LINE: Final = 400
"""Characters of one failure there: the test's name and the sentence that it failed with."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --long."""
    parser.addoption("--long", action="store_true", help="run the tests that are marked long, and no others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the long tests or the others."""
    wanted = bool(config.getoption("--long"))
    others = [item for item in items if bool(item.get_closest_marker("long")) is not wanted]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a session with skips into a failed one in CI; `-ra` has printed each skip's reason."""
    reporter: TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if skipped and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        _tell(f"{skipped} skipped tests of {' '.join(session.config.args)}: where CI is set a skip is an error")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that failed, and in which of set-up, call and tear-down."""
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a file that could not be collected."""
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _tell(f"{report.nodeid}: {crash.message if crash else report.longreprtext}")


def _tell(failure: str) -> None:
    if FAILURES is not None:
        with Path(FAILURES).open("a", encoding="utf-8") as file:
            file.write(" ".join(failure.split())[:LONGEST_LINE] + "\n")
