"""One machine for each file of tests. Its tests build on each other: they tell what a new user does, in this order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.cluster.bare.machine import machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.bare.machine import Machine


@pytest.fixture(scope="module")
def bare(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Start a machine with the suite of Debian after which the file is named, or with another one that is given."""
    suite = os.environ.get("BARE_SUITE", request.path.stem.removeprefix("test_"))
    with machine(suite, cold=bool(os.environ.get("BARE_COLD"))) as started:
        yield started
