"""Wiring of `gpu-scheduler monitor`: a source of readings, the objects that the monitor writes, and its loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from gpu_scheduler import names
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.kube.resource import Resource
from gpu_scheduler.monitor.listed import ListedFirst
from gpu_scheduler.monitor.metrics import ReadingsCollector
from gpu_scheduler.monitor.monitor_loop import Monitor, MonitorTimings
from gpu_scheduler.monitor.sinks import ApiGpuNodeSink, ApiNodeLease, ApiNodeSink
from gpu_scheduler.process.http_server import PROGRESS, Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.metrics import new_registry, read_gauges
from gpu_scheduler.process.own_cordons import OwnCordons, own_gpu_node
from gpu_scheduler.process.reflectors import by_uid

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.monitor.ports import GpuSource
    from gpu_scheduler.settings import MonitorSettings

# Seconds. A reading ends before the next one is due. A driver that has to initialize its devices takes a few seconds.
LONGEST_READ = 10.0
# Seconds. A loop without an iteration for this long is stuck, not slow: every await in it has a much shorter time-out.
STUCK = 60.0

log = logging.getLogger(__name__)


class MonitorProcess:
    """One running monitor and its parts."""

    def __init__(self, settings: MonitorSettings, api: ApiClient) -> None:
        """Wire the parts; the first request and the first reading are made by `serve`."""
        self._settings = settings
        self._api = api
        name = settings.node_name
        self._node = ApiNodeSink(api, name, settings.gpu_utilization_goal)
        source, self._reflectors = self._source()
        self.monitor = Monitor(
            source,
            self._node,
            ApiGpuNodeSink(api, name),
            ApiNodeLease(
                api,
                self._node,
                name,
                namespace=settings.kubernetes_namespace,
                holder=settings.pod_name,
                interval=settings.monitor_interval,
            ),
            goal=settings.gpu_utilization_goal,
            timings=MonitorTimings(settings.monitor_interval),
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until `stop`. The values written for the node remain, and become stale when the Lease expires."""
        settings, monitor = self._settings, self.monitor
        health = health_app(
            alive={"loop": self._stuck},
            ready={"readings": lambda: monitor.problem},
            registry=self.observed(),
            dumps={PROGRESS: self.progress},
        )
        listener = Listener(health, address=settings.bind_address, port=settings.http_port, variable="HTTP_PORT")
        async with listener:
            parts = {
                **{f"watch of {name}": reflector.run() for name, reflector in self._reflectors.items()},
                "monitor": monitor.run(),
            }
            tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
            try:
                await until_stopped(stop, tasks)
                log.info("Stopping")
            finally:
                await cancel(tasks)

    def progress(self) -> dict[str, object]:
        """Return the versions that readings use, and how many readings have ended, with all that they write."""
        versions = {name: reflector.version for name, reflector in self._reflectors.items()}
        return {"versions": versions, "readings": self.monitor.readings}

    def observed(self) -> CollectorRegistry:
        """Return a registry with the GPUs as last read."""
        registry, monitor = new_registry(own_version(), self._settings.gpu_scheduler_commit), self.monitor
        ReadingsCollector(registry, self._settings.node_name, lambda: monitor.gpus)
        current = ("1 while the values written for the node are current", lambda: float(monitor.problem is None))
        read_gauges(registry, {names.METRIC_MONITOR_CURRENT: current})
        return registry

    def _source(self) -> tuple[GpuSource, dict[str, Reflector[Any]]]:
        """Return the source that the settings name, and the reflectors that it needs.

        Each source is imported only if it is used.
        """
        settings, node = self._settings, self._settings.node_name
        deadline = min(LONGEST_READ, settings.monitor_interval)
        cordons = OwnCordons(node)
        # Without permission to read the cordons there is no reading, because that would open a cordoned device.
        reflectors: dict[str, Reflector[Any]] = {"cordons": Reflector(self._api, own_gpu_node(node), cordons)}
        source: GpuSource
        if settings.monitor_source == "nvml":
            from gpu_scheduler.monitor.nvml import NvmlSource

            source = NvmlSource(deadline=deadline, remember=self._node.written, cordons=cordons.in_force)
        else:
            from gpu_scheduler.kube.objects.pods import read_pod
            from gpu_scheduler.monitor.simulated import NodePods, SimulatedSource

            pods = NodePods(node)
            here = Resource("pods", "/api/v1/pods", f"spec.nodeName={node}", read_pod, by_uid)
            reflectors["pods"] = Reflector(self._api, here, pods)
            source = SimulatedSource(settings.simulated_inventory, node, pods, cordons.in_force)
        listed = {name: reflector.synced for name, reflector in reflectors.items()}
        return ListedFirst(source, listed, deadline=deadline), reflectors

    def _stuck(self) -> str | None:
        heartbeat_age = self.monitor.heartbeat_age
        limit = STUCK + self._settings.monitor_interval
        return f"the loop has not run for {heartbeat_age:.0f} s" if heartbeat_age > limit else None


async def run_monitor(settings: MonitorSettings, kubeconfig: str | None, context: str | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    try:
        api = await connect(kubeconfig, context, user_agent=f"{names.MONITOR}/{own_version()}")
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        await MonitorProcess(settings, api).serve(stop)
    except ListenError as error:
        raise UsageError(str(error)) from error
    finally:
        await api.close()
