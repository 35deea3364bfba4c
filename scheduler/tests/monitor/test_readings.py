"""Which changes of a node's GPUs are written, and in which words."""

from dataclasses import replace

import pytest

from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.monitor.readings import (
    GpuReading,
    MigDevice,
    Tier,
    health_of,
    reason_to_write,
    schedulable,
    status_of,
    tier_of,
)

GOAL = 80
IDLE = GpuReading(0, "GPU-0", "00000000:01:00.0", "A100-40GB", 40960, 0, 0, 30, 55)
BUSY = replace(IDLE, used=8192, utilization=70)
SICK = replace(BUSY, health=Health.UNHEALTHY, why="it is lost")
MUTE = GpuReading(0)

CHANGES = {
    "nothing": (BUSY, BUSY, None),
    "temperature and power alone": (BUSY, replace(BUSY, temperature=80, power=300), None),
    "memory by 4.9 %": (IDLE, replace(IDLE, used=2007), None),
    "memory by 5 %": (IDLE, replace(IDLE, used=2048), "memory"),
    "memory back by 5 %": (BUSY, replace(BUSY, used=6144), "memory"),
    "memory that nobody could read before": (replace(IDLE, used=None), IDLE, "memory"),
    "memory that nobody can read any more": (IDLE, replace(IDLE, used=None), "memory"),
    "memory of an unknown whole, by a little": (GpuReading(0, used=1000), GpuReading(0, used=1049), None),
    "memory of an unknown whole, by a twentieth": (GpuReading(0, used=1000), GpuReading(0, used=1050), "memory"),
    "the first memory of an unknown whole": (GpuReading(0, used=0), GpuReading(0, used=1), "memory"),
    "no memory of an unknown whole": (GpuReading(0, used=0), GpuReading(0, used=0), None),
    "utilization by 9 points": (BUSY, replace(BUSY, utilization=79), None),
    "utilization by 10 points": (IDLE, replace(IDLE, utilization=10), "utilization"),
    "utilization back by 10 points": (BUSY, replace(BUSY, utilization=60), "utilization"),
    "utilization up to the goal": (replace(BUSY, utilization=75), replace(BUSY, utilization=80), None),
    "utilization that nobody can read any more": (IDLE, replace(IDLE, utilization=None), "utilization"),
    "utilization that nobody could read before": (replace(IDLE, utilization=None), IDLE, "utilization"),
    "nothing to read at all": (MUTE, MUTE, None),
    "health": (BUSY, replace(BUSY, health=Health.DEGRADED, why="2 rows wait"), "health"),
    "health before memory": (IDLE, replace(SICK, used=9000), "health"),
    "what is wrong": (SICK, replace(SICK, why="it needs a reset"), "health"),
    "the tier": (replace(BUSY, utilization=39), replace(BUSY, utilization=41), "tier"),
    "its UUID": (IDLE, replace(IDLE, uuid="GPU-1"), "membership"),
    "its slices": (IDLE, replace(IDLE, slices=(MigDevice("MIG-0", 4864),)), "membership"),
    "its index before its health": (IDLE, replace(SICK, index=1), "membership"),
}


@pytest.mark.parametrize(("told", "now", "why"), CHANGES.values(), ids=CHANGES)
def test_what_is_worth_a_write(told: GpuReading, now: GpuReading, why: str | None) -> None:
    """Membership, health, tier, memory by 5 %, utilization by 10 points: each has a word; what flickers has none."""
    assert reason_to_write([told], [now], GOAL) == why


def test_one_gpu_across_the_goal_is_news_though_its_node_is_not() -> None:
    """A card above the goal gets no pod by strategy, so the scheduler must know of it at once."""
    calm = replace(BUSY, index=1, utilization=41)
    below, above = replace(BUSY, utilization=80), replace(BUSY, utilization=81)

    assert reason_to_write([below, calm], [above, calm], GOAL) == "utilization"
    assert reason_to_write([above, calm], [below, calm], GOAL) == "utilization"
    assert reason_to_write([above, calm], [replace(above, utilization=88), calm], GOAL) is None


def test_a_gpu_that_comes_or_goes_is_news() -> None:
    """Also where all that are left are as they were."""
    assert reason_to_write([], [IDLE], GOAL) == "membership"
    assert reason_to_write([IDLE, replace(IDLE, index=1)], [IDLE], GOAL) == "membership"
    assert reason_to_write([], [], GOAL) is None


TIERS = {
    "no GPU": ([], Tier.LOW),
    "none that tells": ([None], Tier.LOW),
    "idle": ([0, 0], Tier.LOW),
    "just below half the goal": ([39, None], Tier.LOW),
    "half the goal": ([40], Tier.MEDIUM),
    "at the goal": ([80, 80], Tier.MEDIUM),
    "above the goal": ([100, 61], Tier.HIGH),
}


@pytest.mark.parametrize(("utilizations", "tier"), TIERS.values(), ids=TIERS)
def test_tier_is_the_mean_against_the_goal(utilizations: list[int | None], tier: Tier) -> None:
    """Low below half of it, high above it."""
    assert tier_of([GpuReading(index, utilization=each) for index, each in enumerate(utilizations)], GOAL) is tier


NODES = {
    "no GPU": ([], Health.HEALTHY, False),
    "all well": ([IDLE, BUSY], Health.HEALTHY, True),
    "one that wears": ([replace(IDLE, health=Health.DEGRADED)], Health.DEGRADED, True),
    "one that is lost": ([IDLE, SICK], Health.DEGRADED, True),
    "none left": ([SICK, SICK], Health.UNHEALTHY, False),
}


@pytest.mark.parametrize(("gpus", "health", "takes_work"), NODES.values(), ids=NODES)
def test_a_node_is_as_well_as_its_gpus(gpus: list[GpuReading], health: Health, takes_work: bool) -> None:  # noqa: FBT001 - from the table
    """Unhealthy when none can take work, degraded when any is not well."""
    assert health_of(gpus) is health
    assert schedulable(gpus) is takes_work


LINES = {
    "healthy: 2 GPUs, utilization 35 %, memory 8192 of 81920 MiB": [IDLE, BUSY],
    "healthy: 1 GPU": [MUTE],
    "healthy: 1 GPU, memory 0 of 512 MiB": [GpuReading(0, total=512)],
    "healthy: 0 GPUs": [],
    "degraded: 2 GPUs, utilization 35 %, memory 8192 of 81920 MiB; GPU 1 is unhealthy: it is lost": [
        IDLE,
        replace(SICK, index=1),
    ],
}


@pytest.mark.parametrize(("line", "gpus"), LINES.items(), ids=LINES)
def test_the_status_is_one_line_for_people(line: str, gpus: list[GpuReading]) -> None:
    """What is wrong stands at its end, GPU by GPU."""
    assert status_of(gpus) == line
