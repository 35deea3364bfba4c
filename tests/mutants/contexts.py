"""A pytest plugin: coverage notes for each line which tests reached it, and which lines ran at import (test "")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Name the test, without its row, while its fixtures and itself run."""
    measured = coverage.Coverage.current()
    assert measured is not None, (
        "cannot note tests without coverage: run `coverage run -m pytest -p tests.mutants.contexts`"
    )
    measured.switch_context(item.nodeid.partition("[")[0])
    try:
        return (yield)
    finally:
        measured.switch_context("")
