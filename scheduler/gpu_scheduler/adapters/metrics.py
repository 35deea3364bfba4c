"""Prometheus metrics of the scheduler and the webhook: counters fed by decisions, gauges read when they are scraped.

Upstream's names where the meaning is the same, so that dashboards of kube-scheduler fit; nothing is computed twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from gpu_scheduler import names
from gpu_scheduler.ports import Recorder, RepairRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpu_scheduler.ports import Result

# As upstream: 1 ms doubling 15 times, up to 16 s.
_ATTEMPT_BUCKETS = tuple(0.001 * 2**power for power in range(15))
# A pod may wait for hours for its GPU.
_WAIT_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)


def new_registry(version: str, commit: str) -> CollectorRegistry:
    """Make a registry that already tells what was built, and what the process uses."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Info(names.METRIC_BUILD_INFO.removesuffix("_info"), "What this process was built from", registry=registry)
    build.info({"version": version, "commit": commit})
    return registry


def read_gauges(registry: CollectorRegistry, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
    """Add gauges by name: what they mean, and the function that a scrape asks."""
    for name, (meaning, read) in gauges.items():
        Gauge(name, meaning, registry=registry).set_function(read)


def read_labelled_gauge(
    registry: CollectorRegistry,
    name: str,
    meaning: str,
    label: str,
    reads: Mapping[str, Callable[[], float]],
) -> None:
    """Add one gauge with one label: its values, and the function that a scrape asks for each."""
    gauge = Gauge(name, meaning, [label], registry=registry)
    for value, read in reads.items():
        gauge.labels(value).set_function(read)


class SchedulerMetrics(Recorder, RepairRecorder):
    """What the loop counts."""

    def __init__(self, registry: CollectorRegistry, profile: str) -> None:
        """`profile` is upstream's word for the scheduler's name."""
        labels = ["result", "profile"]
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
        # The library takes two locks to find a child, each time.
        self._children: dict[Result, tuple[Counter, Histogram]] = {}
        self._placed = Histogram(
            names.METRIC_DURATION,
            "Seconds from first seeing a pod to having bound it",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )

        self._repairs = Counter(
            names.METRIC_REPAIRS,
            "Entries of the ledger that differed from the cluster and were made anew",
            registry=registry,
        )

    def attempted(self, result: Result, seconds: float) -> None:
        """See Recorder."""
        known = self._children.get(result)
        if known is None:
            labels = (result.value, self._profile)
            known = self._children[result] = self._attempts.labels(*labels), self._seconds.labels(*labels)
        count, duration = known
        count.inc()
        duration.observe(seconds)

    def placed(self, seconds: float) -> None:
        """See Recorder."""
        self._placed.observe(seconds)

    def repaired(self, entries: int) -> None:
        """See RepairRecorder."""
        self._repairs.inc(entries)


class WebhookMetrics:
    """What the webhook counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Zeroes."""
        self._reviews = Counter(
            names.METRIC_REVIEWS,
            "Admission reviews answered, by path and by outcome: patched, allowed, a reason, or malformed",
            ["path", "outcome"],
            registry=registry,
        )
        # The library takes two locks to find a child, each time.
        self._children: dict[tuple[str, str], Counter] = {}

    def reviewed(self, path: str, outcome: str) -> None:
        """Count one answered review."""
        count = self._children.get((path, outcome))
        if count is None:
            count = self._children[path, outcome] = self._reviews.labels(path, outcome)
        count.inc()
