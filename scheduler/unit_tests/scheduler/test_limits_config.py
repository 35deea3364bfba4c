"""Which limits apply: the last text without a fault, or the readable lines of a first text with a fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler.core.namespace_limits import NO_LIMITS
from gpu_scheduler.scheduler.limits_config import LimitsConfig
from tests.messages import text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

GONE = object()
FOUR, EIGHT, WRONG = "team-a: devices=4", "team-a: devices=8", "team-a: devices=8\n*: devices=many"
STEPS: dict[str, tuple[Sequence[object], list[int | None]]] = {
    "the limits of the text apply": ([FOUR], [4]),
    "the same again is no change": ([FOUR, FOUR, f"# anew\n{FOUR}"], [4]),
    "another text applies": ([FOUR, EIGHT], [4, 8]),
    "a text with a fault changes nothing": ([FOUR, WRONG], [4]),
    "a ConfigMap without the text changes nothing": ([FOUR, None], [4]),
    "of a first text with a fault the other lines apply": ([WRONG], [8]),
    "of a second text with a fault too": ([WRONG, "team-a: devices=2\nteam-a"], [8, 0]),
    "after a wrong text a right one applies": ([FOUR, WRONG, EIGHT], [4, 8]),
    "the limits go with the ConfigMap": ([FOUR, GONE], [4, None]),
    "after a deleted ConfigMap the next text is a first text": ([FOUR, GONE, WRONG], [4, None, 8]),
    "a ConfigMap without the text is no limit": ([None], []),
    "an empty text removes the limits": ([FOUR, ""], [4, None]),
}


@pytest.mark.promise("quota-5")
@pytest.mark.parametrize(("steps", "expected"), STEPS.values(), ids=STEPS)
def test_the_limits_that_apply(steps: Sequence[object], expected: list[int | None]) -> None:
    """The config reports each change, and nothing else."""
    reported: list[int | None] = []
    config = LimitsConfig(lambda: reported.append(config.limits.of("team-a").devices))
    for step in steps:
        if step is GONE:
            config.forgotten(None)
        else:
            assert step is None or isinstance(step, str)
            config.applied(step)

    assert reported == expected


def test_a_wrong_text_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the same text is listed. The log has the line, an example, and the limits that apply."""
    config = LimitsConfig(lambda: None)
    for text in (WRONG, WRONG, FOUR, WRONG, "x\ny", None):
        config.applied(text)

    first, second, third, fourth = (each.getMessage() for each in caplog.records if each.levelname == "ERROR")
    number = text_of("limits: no number of devices")
    fault = f'line 2: cannot read "devices=many": {number} (example: team-a: devices=8 priority=1000)'
    assert first == text_of("the scheduler starts with limits that have an error", faults=fault)
    assert second == text_of("the scheduler keeps the limits before an error", faults=fault)
    assert "line 1: " in third
    assert ", and 1 more; " in third
    assert 'it has no key "limits"' in fourth
    assert config.limits.of("team-a").devices == 4


def test_faults_are_listed_until_the_text_is_corrected() -> None:
    """A ConfigMap that is gone has no faults."""
    config = LimitsConfig(lambda: None)
    found = [len(config.faults)]
    for take, text in ((config.applied, WRONG), (config.forgotten, None)):
        take(text)
        found.append(len(config.faults))

    assert found == [0, 1, 0]
    assert config.limits == NO_LIMITS
