"""What is expected of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.targets import TARGETS

if TYPE_CHECKING:
    from bench.comparison import Estimate
    from bench.results import Measured
    from bench.targets import Target

Case = tuple[tuple[str, str, str], "list[Measured]", "Estimate | None"]
"""Which target, of what was measured, and what is found of it."""


def target(workload: str, contenders: str, what: str = "") -> Target:
    """The one target of these."""
    (found,) = (
        each for each in TARGETS if (each.workload, each.contenders) == (workload, contenders) and what in each.what
    )
    return found


def expect(which: tuple[str, str, str], measured: list[Measured], found: Estimate | None) -> None:
    """Look for it, to within rounding."""
    told = target(*which).find(measured)
    assert (told is None) == (found is None)
    if told is None or found is None:
        return
    assert told.value == (None if found.value is None else pytest.approx(found.value))
    assert told.low == (None if found.low is None else pytest.approx(found.low))
    assert told.high == (None if found.high is None else pytest.approx(found.high))
    assert (told.repetitions, told.variant, told.instead) == (found.repetitions, found.variant, found.instead)
