"""Counters and histograms of scheduling attempts, under kube-scheduler's names where the meaning is the same."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from gpu_scheduler import names
from gpu_scheduler.core.decision import BY_MAP
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.scheduler.ports import AllocationMetrics, AllocationOutcome, AttemptMetrics, RepairMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.scheduler.ports import AttemptResult

# As in kube-scheduler: 15 buckets, from 1 ms to 16 s, each twice the one before.
_ATTEMPT_BUCKETS = tuple(0.001 * 2**power for power in range(15))
# A pod may wait for hours for its GPU.
_WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
# A pod's author chooses the kind of its controller, so only these kinds are labels.
_KINDS: Final = frozenset(
    {
        "Pod",
        "StatefulSet",
        "ReplicaSet",
        "DaemonSet",
        "Job",
        "GPUWorkload",
        "PyTorchJob",
        "TFJob",
        "MPIJob",
    }
)


class SchedulerMetrics(AttemptMetrics, RepairMetrics, AllocationMetrics):
    """The counters and histograms of the scheduling loop."""

    def __init__(self, registry: CollectorRegistry, profile: str, wall: Callable[[], float]) -> None:
        """Register the metrics. `profile` is the scheduler's name, as kube-scheduler labels it.

        `wall` returns the time in seconds since 1970, UTC.
        """
        labels = ["result", "profile"]
        self._wall = wall
        self._profile = profile
        self._attempts = Counter(
            names.METRIC_ATTEMPTS,
            "Attempts to schedule pods, by how they ended",
            labels,
            registry=registry,
        )
        self._seconds = Histogram(
            names.METRIC_ATTEMPT_DURATION,
            "Seconds from taking a pod up to the end of its attempt, bind included",
            labels,
            buckets=_ATTEMPT_BUCKETS,
            registry=registry,
        )
        # Each lookup of a child takes two locks in the library, so children are kept here.
        self._children: dict[AttemptResult, tuple[Counter, Histogram]] = {}
        self._placed = Histogram(
            names.METRIC_DURATION,
            "Seconds from first seeing a pod to having bound it",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )

        self._by_reason = Counter(
            names.METRIC_ATTEMPTS_BY_REASON,
            "Attempts that ended without a placement, by reason",
            ["reason"],
            registry=registry,
        )
        for reason in Reason:
            self._by_reason.labels(reason)
        binds = Counter(
            names.METRIC_BINDS,
            f"Pods bound, by what chose their GPUs: {BY_MAP} or a strategy",
            ["strategy"],
            registry=registry,
        )
        self._binds_by = {strategy: binds.labels(strategy) for strategy in (BY_MAP, *Strategy)}
        since_creation = Histogram(
            names.METRIC_CREATION_TO_BIND,
            "Seconds from a pod's creation, which the API server rounds down to a second, to its Binding, by the kind "
            "of its controller; kind Pod if it has none, and other for kinds without a label of their own",
            ["kind"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._since_creation = cache(since_creation.labels)
        self._allocations = Histogram(
            names.METRIC_ALLOCATION_DURATION,
            "Seconds that the allocation of a pod's ResourceClaims took, by outcome: allocated, failed (a write), "
            "unseen (the watch has not shown it in 3 s), withdrawn (another claim has one of the GPUs)",
            ["outcome"],
            buckets=_ATTEMPT_BUCKETS,
            registry=registry,
        )
        for outcome in AllocationOutcome:
            self._allocations.labels(outcome)
        self._repairs = Counter(
            names.METRIC_REPAIRS,
            "Entries of the ledger that differed from the API objects and were rebuilt",
            registry=registry,
        )

    def attempted(self, result: AttemptResult, seconds: float) -> None:
        """Count one attempt, see AttemptMetrics."""
        known = self._children.get(result)
        if known is None:
            labels = (result.value, self._profile)
            known = self._children[result] = self._attempts.labels(*labels), self._seconds.labels(*labels)
        count, duration = known
        count.inc()
        duration.observe(seconds)

    def waits(self, reason: Reason) -> None:
        """Count an attempt without a placement, see AttemptMetrics."""
        self._by_reason.labels(reason).inc()

    def placed(self, pod: Pod, bind: Bind, seconds: float) -> None:
        """Count a pod that was bound, see AttemptMetrics."""
        self._placed.observe(seconds)
        self._binds_by[bind.strategy].inc()
        kind = "Pod" if pod.owner is None else pod.owner.kind
        try:
            created = datetime.fromisoformat(pod.created).timestamp()
        except ValueError:
            return
        self._since_creation(kind if kind in _KINDS else "other").observe(max(0.0, self._wall() - created))

    def allocation(self, outcome: AllocationOutcome, seconds: float) -> None:
        """Count an attempt to allocate claims, see AllocationMetrics."""
        self._allocations.labels(outcome).observe(seconds)

    def repaired(self, entries: int) -> None:
        """Count repaired entries of the ledger, see RepairMetrics."""
        self._repairs.inc(entries)
