"""Which limits hold: the last text without a fault, and of a first text with one the lines that can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.namespace_limits import NO_LIMITS
from gpu_scheduler.scheduler.limits_config import LimitsConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

GONE = object()
FOUR, EIGHT, WRONG = "team-a: devices=4", "team-a: devices=8", "team-a: devices=8\n*: devices=many"
STEPS: dict[str, tuple[Sequence[object], list[int | None]]] = {
    "what the text says holds": ([FOUR], [4]),
    "the same again is no change": ([FOUR, FOUR, f"# anew\n{FOUR}"], [4]),
    "another text holds": ([FOUR, EIGHT], [4, 8]),
    "a text with a fault changes nothing": ([FOUR, WRONG], [4]),
    "nor does a ConfigMap without the text": ([FOUR, None], [4]),
    "of a first text with a fault the other lines hold": ([WRONG], [8]),
    "of the next one too": ([WRONG, "team-a: devices=2\nteam-a"], [8, 0]),
    "after a wrong text a right one holds": ([FOUR, WRONG, EIGHT], [4, 8]),
    "what holds goes with the ConfigMap": ([FOUR, GONE], [4, None]),
    "a first text with a fault that comes after that is a first one": ([FOUR, GONE, WRONG], [4, None, 8]),
    "a ConfigMap without the text is no limit": ([None], []),
    "an empty text takes the limits back": ([FOUR, ""], [4, None]),
}


@pytest.mark.parametrize(("steps", "held"), STEPS.values(), ids=STEPS)
def test_the_limits_that_hold(steps: Sequence[object], held: list[int | None]) -> None:
    """Told after each change, and only then."""
    told: list[int | None] = []
    config = LimitsConfig(lambda: told.append(config.limits.of("team-a").devices))
    for step in steps:
        if step is GONE:
            config.forgotten(None)
        else:
            assert step is None or isinstance(step, str)
            config.applied(step)

    assert told == held


def test_a_wrong_text_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With its line, an example and what holds, however often the same text is listed; the next is told too."""
    config = LimitsConfig(lambda: None)
    for text in (WRONG, WRONG, FOUR, WRONG, "x\ny", None):
        config.applied(text)

    first, second, third, fourth = (each.getMessage() for each in caplog.records if each.levelname == "ERROR")
    assert first == (
        'cannot use all of ConfigMap gpu-scheduler-limits: line 2: cannot read "devices=many": devices must be '
        "a number from 0 to 999999, or unlimited (example: team-a: devices=8 priority=1000); "
        "the lines that can be read hold"
    )
    assert second.endswith("; the limits before it stay")
    assert "line 1: " in third
    assert ", and 1 more; " in third
    assert 'it has no key "limits"' in fourth
    assert config.limits.of("team-a").devices == 4


def test_what_is_wrong_is_known_until_it_is_mended() -> None:
    """For who asks; nothing is wrong where nothing is written."""
    config = LimitsConfig(lambda: None)
    found = [len(config.faults)]
    for take, text in ((config.applied, WRONG), (config.forgotten, None)):
        take(text)
        found.append(len(config.faults))

    assert found == [0, 1, 0]
    assert config.limits == NO_LIMITS
