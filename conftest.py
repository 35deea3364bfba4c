"""What holds for every ring: a skipped test is an error where CI is set, so that nothing is skipped silently."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn a session with skips into a failed one in CI; `-ra` has printed each skip's reason."""
    reporter: TerminalReporter | None = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if skipped and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
