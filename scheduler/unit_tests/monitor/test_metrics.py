"""A monitor's gauges."""

from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.monitor.metrics import ReadingsCollector
from gpu_scheduler.monitor.readings import GpuReading, let_go


def test_each_gpu_has_its_samples() -> None:
    """Memory is in bytes. A value that could not be read has no sample, and a GPU that is gone has none at all.

    Of a released GPU, memory and last known health remain.
    """
    gpus = [GpuReading(0, "GPU-0", "bus", "A100", 40960, 8192, 70, 41, 250), GpuReading(1, health=Health.UNHEALTHY)]
    gpus.append(let_go(replace(gpus[0], index=2)))
    registry = CollectorRegistry()
    ReadingsCollector(registry, "node1", lambda: gpus)

    samples = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    labels = 'gpu="0",model="A100",node="node1",uuid="GPU-0"'
    assert sorted(samples) == sorted(
        [
            f"gpu_scheduler_monitor_gpu_utilization_percent{{{labels}}} 70.0",
            f"gpu_scheduler_monitor_gpu_memory_total_bytes{{{labels}}} 4.294967296e+10",
            f"gpu_scheduler_monitor_gpu_memory_used_bytes{{{labels}}} 8.589934592e+09",
            f"gpu_scheduler_monitor_gpu_temperature_celsius{{{labels}}} 41.0",
            f"gpu_scheduler_monitor_gpu_power_watts{{{labels}}} 250.0",
            f"gpu_scheduler_monitor_gpu_health{{{labels}}} 0.0",
            'gpu_scheduler_monitor_gpu_health{gpu="1",model="",node="node1",uuid=""} 2.0',
            f"gpu_scheduler_monitor_gpu_memory_total_bytes{{{labels.replace('0', '2', 1)}}} 4.294967296e+10",
            f"gpu_scheduler_monitor_gpu_health{{{labels.replace('0', '2', 1)}}} 0.0",
        ]
    )
    gpus.clear()
    assert [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")] == []
