"""Which strategy applies, and which priority in the scheduling queue a pod has under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpu_scheduler import names
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.scheduler.dynamic_config import DynamicConfig
from unit_tests.core.build import MAP, pod

if TYPE_CHECKING:
    from collections.abc import Iterable

GONE = object()
STEPS = {
    "the strategy of the settings applies": (["best_fit"], ["best_fit"]),
    "the same again is no change": (["best_fit", "best_fit"], ["best_fit"]),
    "the strategy the process started with is no change": (["least_utilized"], []),
    "spaces and line feeds around it are ignored": ([" best_fit\n"], ["best_fit"]),
    "settings without a strategy leave the strategy the process started with": (
        ["best_fit", None],
        ["best_fit", "least_utilized"],
    ),
    "deleted settings leave the strategy the process started with": (
        ["best_fit", GONE],
        ["best_fit", "least_utilized"],
    ),
    "a word that is no strategy changes nothing": (["best_fit", "fastest"], ["best_fit"]),
    "an empty word changes nothing": (["best_fit", ""], ["best_fit"]),
    "a strategy in capitals changes nothing": (["BEST_FIT"], []),
    "after a wrong word a right one applies": (["fastest", "priority"], ["priority"]),
}


@pytest.mark.promise("steer-1", "steer-2")
@pytest.mark.parametrize(("steps", "expected"), STEPS.values(), ids=STEPS)
def test_the_strategy_that_applies(steps: Iterable[object], expected: list[str]) -> None:
    """The config reports each change, and nothing else."""
    reported: list[str] = []
    dynamic_config = DynamicConfig(Strategy.LEAST_UTILIZED, lambda: reported.append(dynamic_config.strategy))
    for step in steps:
        if step is GONE:
            dynamic_config.forgotten(None)
        else:
            assert step is None or isinstance(step, str)
            dynamic_config.applied(step)

    assert reported == expected


def test_a_wrong_strategy_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However often the same settings are listed. The log has the strategies, the one that stays, and an example."""
    dynamic_config = DynamicConfig(Strategy.ROUND_ROBIN, lambda: None)
    for word in ("fastest", "fastest", "priority", "fastest"):
        dynamic_config.applied(word)

    first, second = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert first == (
        'cannot use strategy "fastest" of ConfigMap gpu-scheduler-settings: must be one of least_utilized, best_fit, '
        "priority, round_robin; round_robin stays (example: gpu-scheduler strategy best_fit)"
    )
    assert "priority stays" in second


TEN = {names.COUNT: "1", names.PRIORITY: "10"}
RANKS = {
    "its priority, if the cluster's strategy is priority": (Strategy.PRIORITY, TEN, None, 10),
    "zero, if the cluster's strategy is another": (Strategy.BEST_FIT, TEN, None, 0),
    "its priority, if its own strategy is priority": (Strategy.BEST_FIT, {**TEN, names.STRATEGY: "priority"}, None, 10),
    "zero, if its own strategy is another": (Strategy.PRIORITY, {**TEN, names.STRATEGY: "best_fit"}, None, 0),
    "zero, without a priority": (Strategy.PRIORITY, {names.COUNT: "1"}, None, 0),
    "zero, with a map": (Strategy.PRIORITY, TEN, MAP, 0),
    "zero, without a request for devices": (Strategy.PRIORITY, {names.PRIORITY: "10"}, None, 0),
    "zero, with a request that cannot be read": (Strategy.PRIORITY, {**TEN, names.COUNT: "-1"}, None, 0),
    "a priority below zero": (Strategy.PRIORITY, {**TEN, names.PRIORITY: "-7"}, None, -7),
}


def test_a_priority_ranks_as_the_maximum_of_its_namespace_at_most() -> None:
    """A pod that asks for a billion ranks as a pod with the maximum."""
    limits, _ = parse_limits("default: priority=7")
    dynamic_config = DynamicConfig(Strategy.PRIORITY, lambda: None, lambda: limits)

    assert dynamic_config.priority_of(
        pod("a-0", None, annotations={**TEN, names.PRIORITY: "1000000000"}, priority=9)
    ) == (7, 7)
    assert dynamic_config.priority_of(pod("a-0", None, annotations=TEN, namespace="team-b", priority=9)) == (9, 10)


@pytest.mark.parametrize(("strategy", "annotations", "text", "rank"), RANKS.values(), ids=RANKS)
def test_rank(strategy: Strategy, annotations: dict[str, str], text: str | None, rank: int) -> None:
    """The scheduling queue pops pods of a higher rank first."""
    assert DynamicConfig(strategy, lambda: None).priority_of(pod("a-0", text, annotations=annotations)) == (0, rank)
