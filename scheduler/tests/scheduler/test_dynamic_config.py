"""Which strategy holds, and what a pod's priority is worth under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.scheduler.dynamic_config import DynamicConfig
from tests.core.build import MAP, pod

if TYPE_CHECKING:
    from collections.abc import Iterable

GONE = object()
STEPS = {
    "what the settings say holds": (["best_fit"], ["best_fit"]),
    "the same again is no change": (["best_fit", "best_fit"], ["best_fit"]),
    "what the process was started with is no change": (["least_utilized"], []),
    "spaces and line feeds around it are nobody's intention": ([" best_fit\n"], ["best_fit"]),
    "settings without a strategy leave what the process was started with": (
        ["best_fit", None],
        ["best_fit", "least_utilized"],
    ),
    "settings that go leave what the process was started with": (["best_fit", GONE], ["best_fit", "least_utilized"]),
    "a word that is no strategy changes nothing": (["best_fit", "fastest"], ["best_fit"]),
    "nor does an empty one": (["best_fit", ""], ["best_fit"]),
    "nor one in capitals": (["BEST_FIT"], []),
    "after a wrong word a right one holds": (["fastest", "priority"], ["priority"]),
}


@pytest.mark.parametrize(("steps", "turned"), STEPS.values(), ids=STEPS)
def test_the_strategy_that_holds(steps: Iterable[object], turned: list[str]) -> None:
    """Told after each change, and only then."""
    told: list[str] = []
    steering = DynamicConfig(Strategy.LEAST_UTILIZED, lambda: told.append(steering.strategy))
    for step in steps:
        if step is GONE:
            steering.forgotten(None)
        else:
            assert step is None or isinstance(step, str)
            steering.applied(step)

    assert told == turned


def test_a_wrong_word_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With the list, what stays, and an example, however often the same settings are listed; the next is told too."""
    steering = DynamicConfig(Strategy.ROUND_ROBIN, lambda: None)
    for word in ("fastest", "fastest", "priority", "fastest"):
        steering.applied(word)

    first, second = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert first == (
        'cannot use strategy "fastest" of ConfigMap gpu-scheduler-settings: must be one of least_utilized, best_fit, '
        "priority, round_robin; round_robin stays (example: gpu-scheduler strategy best_fit)"
    )
    assert "priority stays" in second


TEN = {names.COUNT: "1", names.PRIORITY: "10"}
RANKS = {
    "its priority, where the cluster goes by it": (Strategy.PRIORITY, TEN, None, 10),
    "nothing, where the cluster does not": (Strategy.BEST_FIT, TEN, None, 0),
    "its priority, where it says so itself": (Strategy.BEST_FIT, {**TEN, names.STRATEGY: "priority"}, None, 10),
    "nothing, where it chose another strategy": (Strategy.PRIORITY, {**TEN, names.STRATEGY: "best_fit"}, None, 0),
    "nothing, where it has none": (Strategy.PRIORITY, {names.COUNT: "1"}, None, 0),
    "nothing, where it has a map": (Strategy.PRIORITY, TEN, MAP, 0),
    "nothing, where it asks for nothing": (Strategy.PRIORITY, {names.PRIORITY: "10"}, None, 0),
    "nothing, where its text is wrong": (Strategy.PRIORITY, {**TEN, names.COUNT: "-1"}, None, 0),
    "a priority below zero": (Strategy.PRIORITY, {**TEN, names.PRIORITY: "-7"}, None, -7),
}


def test_a_priority_ranks_as_the_maximum_of_its_namespace_at_most() -> None:
    """Who asks for a billion stands where the maximum stands."""
    limits, _ = parse_limits("default: priority=7")
    steering = DynamicConfig(Strategy.PRIORITY, lambda: None, lambda: limits)

    assert steering.priority_of(pod("a-0", None, annotations={**TEN, names.PRIORITY: "1000000000"})) == 7
    assert steering.priority_of(pod("a-0", None, annotations=TEN, namespace="team-b")) == 10


@pytest.mark.parametrize(("strategy", "annotations", "text", "rank"), RANKS.values(), ids=RANKS)
def test_rank(strategy: Strategy, annotations: dict[str, str], text: str | None, rank: int) -> None:
    """How far before the others a pod is looked at."""
    assert DynamicConfig(strategy, lambda: None).priority_of(pod("a-0", text, annotations=annotations)) == rank
