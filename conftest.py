"""Hooks for every suite: which tests are collected, how long a test may take, and how failures are reported.

Tests that are marked `long` or `plays` run only with `-m`, those in tests/cluster only with `--cluster`.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import pytest_timeout  # type: ignore[import-untyped]  # it ships no types
from hypothesis import HealthCheck, settings

from tests.waiting import limit

# Its helpers assert, too. Without this, their failures would not show the values.
pytest.register_assert_rewrite("tests.integration")

if TYPE_CHECKING:
    from collections.abc import Generator

    from _pytest.capture import CaptureManager
    from _pytest.terminal import TerminalReporter

# Removed from the environment, so that a pytest that a test starts does not write to this file.
FAILURES: Final = os.environ.pop("SUITES_FAILURES", "")
"""The file that tests/suites prints at its end: a line for each failure, also of the tests that molecule runs."""
RESULTS: Final = os.environ.pop("SUITES_RESULTS", "") if FAILURES else ""
"""The folder of this suite's results: each pytest process writes a file there, with the time of each test."""
LONGEST_LINE: Final = 400
"""Characters of a failure in that file: the test's name and its message."""
SWALLOWED: Final = 1.5
"""The process ends when a test takes this many times its time-out: it has swallowed the exception of pytest-timeout."""
CLUSTER: Final = Path(__file__).parent / "tests" / "cluster"
NEEDS_FLAG: Final = (
    "tests/cluster changes a cluster, and partly an engine and the host's iptables: it is collected with --cluster "
    "alone (example: molecule converge && pytest --cluster tests/cluster/verify/test_placement.py)"
)

# Enough examples to find edge cases, few enough for a fast suite unit. The gate repeats its examples, so that a failure
# is caused by the change. `search` uses new examples each time; suite soak runs it and prints the seed.
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


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Refuse tests of tests/cluster that are named without --cluster. Have the results written, before pytest asks."""
    if RESULTS and not config.getoption("xmlpath"):
        config.option.xmlpath = f"{RESULTS}/{os.getpid()}.xml"
    if not config.getoption("--cluster") and any(path.is_relative_to(CLUSTER) for path in _asked(config)):
        raise pytest.UsageError(f"cannot collect {' '.join(config.args)}: {NEEDS_FLAG}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore tests/cluster when a folder above it is collected without --cluster."""
    return True if collection_path == CLUSTER and not config.getoption("--cluster") else None


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """Report that tests/cluster was ignored."""
    if not config.getoption("--cluster") and any(CLUSTER.is_relative_to(path) for path in _asked(config)):
        terminalreporter.write_line(f"left out: {NEEDS_FLAG}")


def _asked(config: pytest.Config) -> list[Path]:
    return [(config.invocation_params.dir / word.partition("::")[0]).resolve() for word in config.args]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Multiply the test's time-out by the present slowness of the machine, and end a process that does not heed it.

    pytest-timeout raises an exception in the main thread. A task of asyncio keeps it, as any `except` may, and then
    the test never ends. Its other method, a thread, ends no worker of pytest-xdist. Nor has it a time-out for the
    tear-down of a test that failed.
    """
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
    if not seconds or item.config.getoption("timeout") is not None:
        return (yield)
    seconds = limit(seconds)
    item.add_marker(pytest.mark.timeout(seconds), append=False)
    timer = threading.Timer(seconds * SWALLOWED, _end_process, (item, seconds))
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


def _end_process(item: pytest.Item, seconds: float) -> None:
    """End this process, with the stack of each thread. Under pytest-xdist the next worker runs the rest of the file."""
    if pytest_timeout.is_debugging():
        return
    file = _ended_tests(item.config)
    if file:
        with file.open("a", encoding="utf-8") as noted:
            noted.write(f"{item.nodeid}\n")
    failure = f"{item.nodeid}: still runs after {SWALLOWED} times its time-out of {seconds:g} s; its process was ended"
    _tell(failure)
    capture: CaptureManager | None = item.config.pluginmanager.get_plugin("capturemanager")
    if capture:
        capture.suspend_global_capture()
    # What sys.stderr was is the capture's.
    with os.fdopen(os.dup(2), "w") as stderr:
        print(f"\n{failure}", file=stderr, flush=True)
        faulthandler.dump_traceback(stderr)
    os._exit(1)


def _ended_tests(config: pytest.Config) -> Path | None:
    """Return the file of the tests that ended a worker, which all workers of a session have."""
    return Path(config.getoption("basetemp")).parent / "ended" if hasattr(config, "workerinput") else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test that has ended a worker: pytest-xdist runs it again, four times as often as there are workers."""
    file = _ended_tests(item.config)
    if file and file.exists() and item.nodeid in file.read_text(encoding="utf-8").splitlines():
        pytest.fail("it ended its process, and is not run again", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session with skipped tests in CI; `-ra` has printed the reason of each skip."""
    reporter: TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if skipped and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        _tell(f"{skipped} skipped tests of {' '.join(session.config.args)}: where CI is set a skip is an error")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record a failed test and its phase: set-up, call or tear-down."""
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Record a file that could not be collected."""
    _note(report)


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        # What its hooks say of it: which programs have ended.
        told = [text for _, text in getattr(report, "user_properties", ())]
        _tell(f"{report.nodeid}: {'; '.join((*told, crash.message if crash else report.longreprtext))}")


def _tell(failure: str) -> None:
    if FAILURES:
        with Path(FAILURES).open("a", encoding="utf-8") as file:
            file.write(" ".join(failure.split())[:LONGEST_LINE] + "\n")
