"""Compares a target's estimate with an expected one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.targets import TARGETS

if TYPE_CHECKING:
    from bench.comparison import Estimate
    from bench.results import Measured
    from bench.targets import Target

Case = tuple[tuple[str, str, str], "list[Measured]", "Estimate | None"]
"""A target's key, the measured results, and the expected estimate."""


def target(workload: str, contenders: str, what: str = "") -> Target:
    """Return the only target with this key."""
    (found,) = (
        each for each in TARGETS if (each.workload, each.contenders) == (workload, contenders) and what in each.what
    )
    return found


def expect(which: tuple[str, str, str], measured: list[Measured], found: Estimate | None) -> None:
    """Check the target's estimate, within rounding."""
    reported = target(*which).find(measured)
    assert (reported is None) == (found is None)
    if reported is None or found is None:
        return
    assert reported.value == (None if found.value is None else pytest.approx(found.value))
    assert reported.low == (None if found.low is None else pytest.approx(found.low))
    assert reported.high == (None if found.high is None else pytest.approx(found.high))
    assert (reported.repetitions, reported.variant, reported.instead) == (
        found.repetitions,
        found.variant,
        found.instead,
    )
