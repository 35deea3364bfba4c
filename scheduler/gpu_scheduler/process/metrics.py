"""The Prometheus registry of a process, and gauges that are read when they are scraped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from prometheus_client import CollectorRegistry, Gauge, Info, disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from gpu_scheduler import names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def new_registry(version: str, commit: str) -> CollectorRegistry:
    """Return a registry that has the build information and the process' metrics."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Info(names.METRIC_BUILD_INFO.removesuffix("_info"), "What this process was built from", registry=registry)
    build.info({"version": version, "commit": commit})
    return registry


class Leadership(Protocol):
    """What the gauges of a replica that competes for a Lease are read from."""

    transitions: int

    @property
    def leading(self) -> bool:
        """Whether this replica leads."""


def leader_gauges(leadership: Leadership) -> dict[str, tuple[str, Callable[[], float]]]:
    """Return the gauges of a replica that competes for a Lease, for `read_gauges`."""
    return {
        names.METRIC_LEADER: ("1 on the replica that decides", lambda: float(leadership.leading)),
        names.METRIC_LEADER_TRANSITIONS: (
            "How often the Lease has had another holder, as the Lease says",
            lambda: float(leadership.transitions),
        ),
    }


def read_gauges(registry: CollectorRegistry, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
    """Add gauges. `gauges` maps each name to its meaning and the function that a scrape calls."""
    for name, (meaning, read) in gauges.items():
        Gauge(name, meaning, registry=registry).set_function(read)


def read_labelled_gauge(
    registry: CollectorRegistry,
    name: str,
    meaning: str,
    label: str,
    reads: Mapping[str, Callable[[], float]],
) -> None:
    """Add one gauge with one label. `reads` maps each label value to the function that a scrape calls."""
    gauge = Gauge(name, meaning, [label], registry=registry)
    for value, read in reads.items():
        gauge.labels(value).set_function(read)
