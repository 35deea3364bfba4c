"""The metrics of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter

from gpu_scheduler import names
from gpu_scheduler.driver.preparing import PrepareFailure
from gpu_scheduler.process.metrics import read_gauges

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry


class DriverMetrics:
    """Counts failures; the prepared claims are read at each scrape."""

    def __init__(self, registry: CollectorRegistry, prepared: Callable[[], int]) -> None:
        """Register with `registry`. `prepared` returns the number of prepared claims."""
        claims = ("Claims whose devices containers of this node may use", lambda: float(prepared()))
        read_gauges(registry, {names.METRIC_PREPARED_CLAIMS: claims})
        self._failures = Counter(
            names.METRIC_PREPARE_FAILURES,
            "Claims that could not be prepared or unprepared, by what failed: the claim itself, an unknown device, a "
            "device that another claim has, a CDI name, the checkpoint, or the driver",
            ["failure"],
            registry=registry,
        )
        for failure in PrepareFailure:
            self._failures.labels(failure)

    def failed(self, failure: PrepareFailure) -> None:
        """Count a failure."""
        self._failures.labels(failure).inc()
