"""What holds for every suite: which tests are collected, how long one may take, and what is told of those that fail.

Tests that are marked `long` are left out but for `-m long`. Those in tests/cluster run with --cluster alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.terminal import TerminalReporter

# Taken out of the environment, so that a pytest that a test starts does not write there too.
FAILURES: Final = os.environ.pop("SUITES_FAILURES", "")
"""The file that tests/suites prints at its end: one line for each failure, also of cases that molecule runs."""
LONGEST_LINE: Final = 400
"""Characters of one failure there: the test's name and the sentence that it failed with."""
CLUSTER: Final = Path(__file__).parent / "tests" / "cluster"
NEEDS_FLAG: Final = (
    "tests/cluster changes a cluster, and partly an engine and the host's iptables: it is collected with --cluster "
    "alone (example: molecule converge && pytest --cluster tests/cluster/verify/test_placement.py)"
)

# Enough examples to meet the corners, few enough that suite unit stays quick. The same examples each time: what is red
# is red because of a change. `search` looks elsewhere each time; suite soak runs it and prints the seed.
settings.register_profile(
    "gate",
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "search", settings.get_profile("gate"), max_examples=400, stateful_step_count=60, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --cluster."""
    parser.addoption("--cluster", action="store_true", help="collect tests/cluster, which changes a cluster that runs")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what is asked for by name and needs a cluster, where nobody says that one may be changed."""
    if not config.getoption("--cluster") and any(path.is_relative_to(CLUSTER) for path in _asked(config)):
        raise pytest.UsageError(f"cannot collect {' '.join(config.args)}: {NEEDS_FLAG}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests/cluster out of any folder above it."""
    return True if collection_path == CLUSTER and not config.getoption("--cluster") else None


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out."""
    if not config.getoption("--cluster") and any(CLUSTER.is_relative_to(path) for path in _asked(config)):
        terminalreporter.write_line(f"left out: {NEEDS_FLAG}")


def _asked(config: pytest.Config) -> list[Path]:
    return [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give a test as much more time as the machine is slower now."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
    if seconds and item.config.getoption("timeout") is None:
        item.add_marker(pytest.mark.timeout(limit(seconds)), append=False)
    return (yield)


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
    if FAILURES:
        with Path(FAILURES).open("a", encoding="utf-8") as file:
            file.write(" ".join(failure.split())[:LONGEST_LINE] + "\n")
