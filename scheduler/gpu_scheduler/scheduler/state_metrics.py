"""What the scheduler knows at the moment of a scrape, as gauges: pods by state, and the GPUs of each node.

LAW: all of it is computed once a scrape, and nothing between scrapes. A node or reason has a sample as long as it
exists, so that labels are bounded by the cluster and by the list of reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpu_scheduler import names
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.scheduler.pod_states import ClaimState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import CollectorRegistry

    from gpu_scheduler.core.ledger.availability import GpuCount
    from gpu_scheduler.scheduler.pod_states import PodCounts


class PodCollector(Collector):
    """Gauges of our pods."""

    def __init__(
        self, registry: CollectorRegistry, counts: Callable[[], PodCounts], clock: Callable[[], float]
    ) -> None:
        """Register with `registry`. `clock` is the clock of `PodCounts.oldest`."""
        self._counts = counts
        self._clock = clock
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one family after the other, all from one count."""
        counts = self._counts()
        yield GaugeMetricFamily(names.METRIC_PENDING, "Our pods that are not bound yet", value=counts.pending)
        yield GaugeMetricFamily(names.METRIC_RUNNING, "Our pods that are bound and not finished", value=counts.running)
        waiting = GaugeMetricFamily(
            names.METRIC_PENDING_BY_REASON,
            "Pods that wait or are refused, by reason, as the leading replica decided last",
            labels=["reason"],
        )
        for reason in Reason:
            waiting.add_metric([reason], counts.waiting[reason])
        yield waiting
        yield GaugeMetricFamily(
            names.METRIC_LONGEST_WAIT,
            "Seconds since the leading replica first saw the oldest of the pods that wait; 0 if none waits",
            value=0 if counts.oldest is None else self._clock() - counts.oldest,
        )


class ClaimCollector(Collector):
    """A gauge of the ResourceClaims that have GPUs."""

    def __init__(self, registry: CollectorRegistry, counts: Callable[[], Mapping[ClaimState, int]]) -> None:
        """Register with `registry`. `counts` returns the numbers; a state that it lacks has no claim."""
        self._counts = counts
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one family."""
        counts = self._counts()
        claims = GaugeMetricFamily(
            names.METRIC_ALLOCATED_CLAIMS,
            "ResourceClaims that have GPUs: bound (for a pod that we have bound), waiting (for pods of ours that "
            "wait), other (of another scheduler, or not cleared yet)",
            labels=["state"],
        )
        for state in ClaimState:
            claims.add_metric([state], counts.get(state, 0))
        yield claims


class GpuCollector(Collector):
    """Gauges of the GPUs, of all nodes and of each node."""

    def __init__(
        self, registry: CollectorRegistry, take: Callable[[], tuple[GpuCount, Mapping[str, GpuCount]]]
    ) -> None:
        """Register with `registry`. `take` returns the numbers of all nodes, and of each node by its name."""
        self._take = take
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one family after the other, all from one count."""
        total, nodes = self._take()
        yield GaugeMetricFamily(names.METRIC_GPUS, "GPUs of all nodes, as far as they are known", value=total.total)
        yield GaugeMetricFamily(
            names.METRIC_GPUS_AVAILABLE,
            "GPUs that the next pod may have: healthy, in service, not held, on a node that takes pods",
            value=total.available,
        )
        yield GaugeMetricFamily(
            names.METRIC_UTILIZATION, "Mean utilization of the GPUs that monitors read, in percent", value=total.mean
        )
        by_state = GaugeMetricFamily(
            names.METRIC_NODE_GPUS,
            "GPUs of a node by the first state that applies: held (by pods or claims, or for a line of a map), "
            "cordoned, unhealthy, unavailable (its node takes no pods, or its monitor is silent), free",
            labels=["node", "state"],
        )
        for node, count in nodes.items():
            for state, number in count.by_state.items():
                by_state.add_metric([node, state], number)
        yield by_state
