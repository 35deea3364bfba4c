"""The plans of the benchmark: which cells a run measures, in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.figures import FEWEST
from bench.jobs import (
    admission_jobs,
    arrival_jobs,
    churn_jobs,
    claims_growth_jobs,
    claims_jobs,
    failover_jobs,
    fastest,
    few_pending_pods_jobs,
    flood_jobs,
    growth_jobs,
    idle_jobs,
    large_jobs,
    neighbour_jobs,
    pending_pods_jobs,
    scale_jobs,
    start_jobs,
    strategy_jobs,
    sweep_jobs,
    unschedulable_jobs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.jobs import Job
    from bench.results import Measured

FULL: Final = 5
"""Enough repetitions for the interval of a median. The sweep is in no ratio, so it is measured once."""


@dataclass(frozen=True, slots=True)
class Part:
    """Cells that are measured in turn, `repetitions` times each. `jobs` may depend on earlier results."""

    name: str
    jobs: Callable[[Sequence[Measured]], tuple[Job, ...]]
    repetitions: int

    def order(self, found: Sequence[Measured]) -> list[tuple[Job, int]]:
        """Return jobs and repetitions. Each repetition reverses the order: so drift affects all contenders alike."""
        jobs = self.jobs(found)
        return [
            (job, repetition)
            for repetition in range(1, self.repetitions + 1)
            for job in (jobs if repetition % 2 else reversed(jobs))
        ]


Plan = tuple[Part, ...]


def quick() -> Plan:
    """W1 with one client of the limit, twice."""
    return (Part("W1", lambda _: few_pending_pods_jobs(), 2),)


def standard() -> Plan:
    """W1 with two of the limit's variants, arrivals, and W8."""
    clients = (("curl", 64), ("go", 32))
    return (
        Part("W1", lambda _: pending_pods_jobs(clients, clients), 3),
        Part("W2-sustained", flood_jobs, 3),
        Part("W2", arrival_jobs, 3),
        Part("W8", lambda _: admission_jobs(), 3),
    )


def claims() -> Plan:
    """ResourceClaims: how fast pods with a claim each are placed, and what a claim takes of memory."""
    return (
        Part("claims", lambda _: claims_jobs(), FULL),
        Part("growth", lambda _: claims_growth_jobs(), FULL),
    )


def neighbours() -> Plan:
    """How long a tenant's pods wait for their bind while another tenant burdens the scheduler."""
    return (Part("neighbour", lambda _: neighbour_jobs(), 1),)


def full() -> Plan:
    """All parts; a part has the name of its first workload."""
    return (
        Part("W1-limit", lambda _: sweep_jobs(), 1),
        Part("W1", lambda found: pending_pods_jobs(fastest(found, "L"), fastest(found, "L0")), FULL),
        Part("W1-5000", lambda _: large_jobs(), FULL),
        Part("scale", lambda _: scale_jobs(), FEWEST),
        Part("W2-sustained", flood_jobs, FULL),
        Part("W2", lambda found: (*arrival_jobs(found), *unschedulable_jobs(found)), FULL),
        Part("W3", lambda _: strategy_jobs(), FULL),
        Part("W5", lambda _: churn_jobs(), FULL),
        Part("W6", lambda _: start_jobs(), FULL),
        Part("W7", lambda _: failover_jobs(), FULL),
        Part("W8", lambda _: admission_jobs(), FULL),
        Part("claims", lambda _: claims_jobs(), FULL),
        Part("idle", lambda _: idle_jobs(), FULL),
        Part("neighbour", lambda _: neighbour_jobs(), FEWEST),
        Part("growth", lambda _: growth_jobs(), FULL),
    )


def chosen_parts(plan: Plan, only: str) -> Plan:
    """Return the named parts (separated by commas) in the plan's order; ValueError for an unknown part."""
    names = tuple(part.name for part in plan)
    for name in only.split(","):
        if name not in names:
            raise ValueError(
                f"cannot measure part {name!r}: it must be one of {', '.join(names)} (example: --only {names[-1]})"
            )
    return tuple(part for part in plan if part.name in only.split(","))
