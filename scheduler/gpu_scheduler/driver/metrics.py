"""The metrics of the driver, labelled with its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import Counter

from gpu_scheduler import names
from gpu_scheduler.driver.preparing import Operation, PrepareFailure
from gpu_scheduler.process.metrics import read_labelled_gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

DONE: Final = "done"
"""The outcome that is no failure."""


class DriverMetrics:
    """Counts what was done with claims."""

    def __init__(self, registry: CollectorRegistry, node: str) -> None:
        """Register with `registry`."""
        self._node = node
        self._claims = Counter(
            names.METRIC_DRIVER_CLAIMS,
            "Claims that the kubelet asked to prepare or unprepare, each time that it asked, by outcome: done, or what "
            "failed: the claim itself, an unknown device, held (another claim has a device), a CDI name, the "
            "checkpoint, or internal",
            ["node", "operation", "outcome"],
            registry=registry,
        )
        for operation in get_args(Operation):
            for outcome in (DONE, *PrepareFailure):
                self._claims.labels(node, operation, outcome)

    def answered(self, operation: Operation, failure: PrepareFailure | None) -> None:
        """Count a claim that was prepared or unprepared; `failure` says why it could not be."""
        self._claims.labels(self._node, operation, failure or DONE).inc()


def driver_gauges(
    registry: CollectorRegistry,
    node: str,
    *,
    prepared: Callable[[], int],
    registered: Callable[[], bool],
    current: Callable[[], bool],
) -> None:
    """Add the gauges, which are read at each scrape."""
    gauges = {
        names.METRIC_PREPARED_CLAIMS: ("Claims whose devices containers of this node may use", prepared),
        names.METRIC_DRIVER_REGISTERED: ("1 while the kubelet has registered the driver", registered),
        names.METRIC_DRIVER_CURRENT: ("1 while the ResourceSlices of the node are current", current),
    }
    for name, (meaning, read) in gauges.items():
        read_labelled_gauge(registry, name, meaning, "node", {node: read})
