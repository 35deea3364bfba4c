"""The compiled stubs, once a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit_tests.nvml.library import COMPILER, build

if TYPE_CHECKING:
    from pathlib import Path


def _built(tmp_path_factory: pytest.TempPathFactory, *flags: str) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler: install gcc")
    return build(tmp_path_factory.mktemp("nvml"), *flags)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the library of a present-day driver."""
    return _built(tmp_path_factory)


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an old driver's library."""
    return _built(tmp_path_factory, "-DOLD")
