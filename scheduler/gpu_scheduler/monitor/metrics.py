"""The last readings of a monitor as gauges. They are made at each scrape, so that a GPU that is gone has no gauge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpu_scheduler import names
from gpu_scheduler.core.nodes.inventory import Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from gpu_scheduler.monitor.readings import GpuReading

MIB = 2**20

_LABELS = ("node", "gpu", "uuid", "model")
_WORSE = (Health.HEALTHY, Health.DEGRADED, Health.UNHEALTHY)

# metric → (help text, value of one GPU).
_GAUGES: dict[str, tuple[str, Callable[[GpuReading], float | None]]] = {
    names.METRIC_GPU_UTILIZATION: ("Percent of the time that the GPU worked", lambda gpu: gpu.utilization),
    names.METRIC_GPU_MEMORY_TOTAL: ("Memory of the GPU", lambda gpu: None if gpu.total is None else gpu.total * MIB),
    names.METRIC_GPU_MEMORY_USED: ("Memory in use", lambda gpu: None if gpu.used is None else gpu.used * MIB),
    names.METRIC_GPU_TEMPERATURE: ("Temperature of the GPU", lambda gpu: gpu.temperature),
    names.METRIC_GPU_POWER: ("Power that the GPU draws", lambda gpu: gpu.power),
    names.METRIC_GPU_HEALTH: ("0 healthy, 1 degraded, 2 unhealthy", lambda gpu: _WORSE.index(gpu.health)),
}


class ReadingsCollector(Collector):
    """Gives one sample for each GPU and metric; a value that could not be read has no sample."""

    def __init__(self, registry: CollectorRegistry, node: str, read: Callable[[], Iterable[GpuReading]]) -> None:
        """Register with `registry`. `read` returns the GPUs as last read."""
        self._node = node
        self._read = read
        registry.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the samples of the last reading, one family per metric."""
        gpus = tuple(self._read())
        for name, (meaning, value_of) in _GAUGES.items():
            family = GaugeMetricFamily(name, meaning, labels=_LABELS)
            for gpu in gpus:
                value = value_of(gpu)
                if value is not None:
                    family.add_metric((self._node, str(gpu.index), gpu.uuid or "", gpu.model or ""), value)
            yield family
