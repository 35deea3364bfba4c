"""Which changes of a node's GPUs are written, and for which reason."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.monitor.readings import (
    GpuReading,
    MigDevice,
    Tier,
    covered,
    faults_of,
    health_of,
    let_go,
    reason_to_write,
    schedulable,
    status_of,
    tier_of,
)

GOAL = 80
IDLE = GpuReading(0, "GPU-0", "00000000:01:00.0", "A100-40GB", 40960, 0, 0, 30, 55)
BUSY = replace(IDLE, used=8192, utilization=70)
SICK = replace(BUSY, health=Health.UNHEALTHY, why="it is lost")
UNREAD = GpuReading(0)

CHANGES = {
    "nothing": (BUSY, BUSY, None),
    "temperature and power alone": (BUSY, replace(BUSY, temperature=80, power=300), None),
    "memory by 4.9 %": (IDLE, replace(IDLE, used=2007), None),
    "memory by 5 %": (IDLE, replace(IDLE, used=2048), "memory"),
    "memory back by 5 %": (BUSY, replace(BUSY, used=6144), "memory"),
    "memory that was not read before": (replace(IDLE, used=None), IDLE, "memory"),
    "memory that is no longer read": (IDLE, replace(IDLE, used=None), "memory"),
    "memory of an unknown total, by 4.9 %": (GpuReading(0, used=1000), GpuReading(0, used=1049), None),
    "memory of an unknown total, by 5 %": (GpuReading(0, used=1000), GpuReading(0, used=1050), "memory"),
    "the first memory of an unknown total": (GpuReading(0, used=0), GpuReading(0, used=1), "memory"),
    "no memory of an unknown total": (GpuReading(0, used=0), GpuReading(0, used=0), None),
    "utilization by 9 points": (BUSY, replace(BUSY, utilization=79), None),
    "utilization by 10 points": (IDLE, replace(IDLE, utilization=10), "utilization"),
    "utilization back by 10 points": (BUSY, replace(BUSY, utilization=60), "utilization"),
    "utilization up to the goal": (replace(BUSY, utilization=75), replace(BUSY, utilization=80), None),
    "utilization that is no longer read": (IDLE, replace(IDLE, utilization=None), "utilization"),
    "utilization that was not read before": (replace(IDLE, utilization=None), IDLE, "utilization"),
    "no value that is read": (UNREAD, UNREAD, None),
    "health": (BUSY, replace(BUSY, health=Health.DEGRADED, why="2 rows wait"), "health"),
    "health before memory": (IDLE, replace(SICK, used=9000), "health"),
    "the reason of its health": (SICK, replace(SICK, why="it needs a reset"), "health"),
    "that it is let go": (BUSY, let_go(BUSY), "release"),
    "that it is read again": (let_go(IDLE), IDLE, "release"),
    "health before that it is let go": (BUSY, let_go(SICK), "health"),
    "nothing of one that is let go": (let_go(BUSY), let_go(BUSY), None),
    "the tier": (replace(BUSY, utilization=39), replace(BUSY, utilization=41), "tier"),
    "its UUID": (IDLE, replace(IDLE, uuid="GPU-1"), "membership"),
    "its MIG devices": (IDLE, replace(IDLE, mig_devices=(MigDevice("MIG-0", 4864),)), "membership"),
    "its index before its health": (IDLE, replace(SICK, index=1), "membership"),
}


@pytest.mark.parametrize(("written", "now", "why"), CHANGES.values(), ids=CHANGES)
def test_a_change_has_a_reason_to_be_written(written: GpuReading, now: GpuReading, why: str | None) -> None:
    """Membership, health, release, tier, memory by 5 %, utilization by 10 points. Smaller changes have none."""
    assert reason_to_write([written], [now], GOAL) == why


def test_one_gpu_across_the_goal_is_a_change_of_its_node() -> None:
    """A device above the goal gets no pod by strategy, so the scheduler must know it at once."""
    quiet = replace(BUSY, index=1, utilization=41)
    below, above = replace(BUSY, utilization=80), replace(BUSY, utilization=81)

    assert reason_to_write([below, quiet], [above, quiet], GOAL) == "utilization"
    assert reason_to_write([above, quiet], [below, quiet], GOAL) == "utilization"
    assert reason_to_write([above, quiet], [replace(above, utilization=88), quiet], GOAL) is None


def test_a_gpu_that_comes_or_goes_is_a_change() -> None:
    """Even if all others are unchanged."""
    assert reason_to_write([], [IDLE], GOAL) == "membership"
    assert reason_to_write([IDLE, replace(IDLE, index=1)], [IDLE], GOAL) == "membership"
    assert reason_to_write([], [], GOAL) is None


NAMED = [replace(IDLE, mig_devices=(MigDevice("MIG-0"), MigDevice("MIG-1"))), replace(IDLE, index=1, uuid="GPU-1")]
NAMELESS = [GpuReading(0), GpuReading(1)]
COVERED = {
    "no cordon": (NAMED, (), set()),
    "no GPU": ([], (Cordon("*"),), set()),
    "all": (NAMED, (Cordon("*"),), {0, 1}),
    "an index": (NAMED, (Cordon("1"),), {1}),
    "a UUID": (NAMED, (Cordon("GPU-0", index=1),), {0}),
    "a MIG device": (NAMED, (Cordon("MIG-1"),), {0}),
    "two": (NAMED, (Cordon("MIG-1"), Cordon("1")), {0, 1}),
    "a GPU that is not there": (NAMED, (Cordon("GPU-9", index=1),), set()),
    "an index where no UUID is known": (NAMELESS, (Cordon("1"),), {1}),
    "the index of a UUID where none is known": (NAMELESS, (Cordon("GPU-9", index=0),), {0}),
}


@pytest.mark.parametrize(("gpus", "cordons", "indices"), COVERED.values(), ids=COVERED)
def test_a_cordon_covers_gpus(gpus: list[GpuReading], cordons: tuple[Cordon, ...], indices: set[int]) -> None:
    """By any of their names. A cordon of a part covers the whole, because only the whole GPU can be let go."""
    assert covered(gpus, cordons) == indices


TIERS = {
    "no GPU": ([], Tier.LOW),
    "no utilization": ([None], Tier.LOW),
    "idle": ([0, 0], Tier.LOW),
    "just below half the goal": ([39, None], Tier.LOW),
    "half the goal": ([40], Tier.MEDIUM),
    "at the goal": ([80, 80], Tier.MEDIUM),
    "above the goal": ([100, 61], Tier.HIGH),
}


@pytest.mark.parametrize(("utilizations", "tier"), TIERS.values(), ids=TIERS)
def test_tier_is_the_mean_against_the_goal(utilizations: list[int | None], tier: Tier) -> None:
    """Low below half of the goal, high above the goal."""
    assert tier_of([GpuReading(index, utilization=each) for index, each in enumerate(utilizations)], GOAL) is tier


NODES = {
    "no GPU": ([], Health.HEALTHY, False),
    "all healthy": ([IDLE, BUSY], Health.HEALTHY, True),
    "one degraded": ([replace(IDLE, health=Health.DEGRADED)], Health.DEGRADED, True),
    "one unhealthy": ([IDLE, SICK], Health.DEGRADED, True),
    "all unhealthy": ([SICK, SICK], Health.UNHEALTHY, False),
}


@pytest.mark.parametrize(("gpus", "health", "takes_work"), NODES.values(), ids=NODES)
def test_the_health_of_a_node_is_that_of_its_gpus(gpus: list[GpuReading], health: Health, takes_work: bool) -> None:  # noqa: FBT001 - from the table
    """Unhealthy if no GPU can take work, degraded if any GPU is not healthy."""
    assert health_of(gpus) is health
    assert schedulable(gpus) is takes_work


LINES = {
    "healthy: 2 GPUs, utilization 35 %, memory 8192 of 81920 MiB": [IDLE, BUSY],
    "healthy: 1 GPU": [UNREAD],
    "healthy: 1 GPU, memory 0 of 512 MiB": [GpuReading(0, total=512)],
    "healthy: 0 GPUs": [],
    "degraded: 2 GPUs, utilization 35 %, memory 8192 of 81920 MiB; GPU 1 is unhealthy: it is lost": [
        IDLE,
        replace(SICK, index=1),
    ],
    "degraded: 2 GPUs, utilization 70 %, memory 8192 of 81920 MiB; GPU 1 is unhealthy: it is lost": [
        BUSY,
        let_go(replace(SICK, index=1)),
    ],
    "healthy: 1 GPU, memory 0 of 40960 MiB": [let_go(BUSY)],
}


@pytest.mark.parametrize(("line", "gpus"), LINES.items(), ids=LINES)
def test_the_status_is_one_line_for_people(line: str, gpus: list[GpuReading]) -> None:
    """Its end has the reasons of unhealthy GPUs, one by one."""
    assert status_of(gpus) == line


FAULTS = st.dictionaries(
    st.integers(0, 255),
    st.tuples(st.sampled_from([Health.DEGRADED, Health.UNHEALTHY]), st.text().filter(lambda text: "; GPU" not in text)),
)


@given(faults=FAULTS)
def test_what_is_wrong_with_each_gpu_is_read_from_the_line(faults: dict[int, tuple[Health, str]]) -> None:
    """The verb `health` shows it."""
    sick = [replace(IDLE, index=index, health=health, why=why) for index, (health, why) in faults.items()]

    assert faults_of(status_of([replace(IDLE, index=256), *sick])) == {gpu.index: gpu.why for gpu in sick}


@pytest.mark.parametrize("line", ["", "broken", "healthy: 4 GPUs", "unhealthy: 1 GPU; GPU x is unhealthy: it is lost"])
def test_a_line_without_faults_has_none(line: str) -> None:
    """Others may have written the annotation."""
    assert faults_of(line) == {}
