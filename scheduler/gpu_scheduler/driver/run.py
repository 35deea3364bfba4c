"""Wiring of `gpu-scheduler driver`: what it watches, what it publishes, and the kubelet's plugin."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.driver.cdi import NvidiaCdi, SimulatedCdi
from gpu_scheduler.driver.checkpoint import CheckpointError, open_checkpoint
from gpu_scheduler.driver.kubelet_plugin import KubeletPlugin, SocketError, plugin_dir
from gpu_scheduler.driver.metrics import DriverMetrics, driver_gauges
from gpu_scheduler.driver.node_state import NotifyingHandler, WatchedNode, WatchedPools
from gpu_scheduler.driver.objects import read_own_node, read_slice
from gpu_scheduler.driver.preparing import Preparer
from gpu_scheduler.driver.publisher import PATH, PAUSE_LONGEST, Publisher
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.kube.resource import ReflectorTimings, Resource
from gpu_scheduler.process.http_server import PROGRESS, Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.metrics import new_registry
from gpu_scheduler.process.own_cordons import OwnCordons, own_gpu_node
from gpu_scheduler.process.reflectors import Reflectors, by_name

if TYPE_CHECKING:
    from gpu_scheduler.driver.checkpoint import Checkpoint
    from gpu_scheduler.driver.ports import Cdi
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.settings import DriverSettings

# Seconds. A loop without an iteration for this long is stuck: every await in it has a much shorter time-out.
STUCK = 60.0 + PAUSE_LONGEST

log = logging.getLogger(__name__)


class DriverProcess:
    """One running driver and its parts."""

    def __init__(self, settings: DriverSettings, api: ApiClient, checkpoint: Checkpoint) -> None:
        """Wire the parts; nothing is sent, written or opened before `serve`."""
        self._settings = settings
        name, changed = settings.node_name, asyncio.Event()
        cordons, pools = OwnCordons(name), WatchedPools()
        node = WatchedNode(cordons.in_force)
        self._watches = watches = Reflectors(api, ReflectorTimings())
        own_node = Resource("node", "/api/v1/nodes", f"metadata.name={name}", read_own_node, by_name)
        watches.watch(own_node, NotifyingHandler(node, changed))
        watches.watch(own_gpu_node(name), NotifyingHandler(cordons, changed))
        own_pools = Resource("resourceslices", PATH, f"spec.nodeName={name}", read_slice, by_name)
        watches.watch(own_pools, NotifyingHandler(pools, changed))
        cdi = self._cdi()
        self.publisher = Publisher(api, node, pools, cdi, changed=changed, unlisted=watches.unlisted)
        self.registry = new_registry(own_version(), settings.gpu_scheduler_commit)
        preparer = Preparer(api, name, node.published, cdi, checkpoint)
        self.plugin = KubeletPlugin(settings.kubelet_dir, name, preparer, DriverMetrics(self.registry, name).answered)
        driver_gauges(
            self.registry,
            name,
            prepared=checkpoint.__len__,
            registered=lambda: self.plugin.problem is None,
            current=lambda: self.publisher.problem is None,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until `stop`. The ResourceSlices remain: the kubelet deletes them if no driver registers soon."""
        settings, publisher, plugin = self._settings, self.publisher, self.plugin
        health = health_app(
            alive={"loop": self._stuck},
            ready={"kubelet": lambda: plugin.problem, "resourceslices": lambda: publisher.problem},
            registry=self.registry,
            dumps={PROGRESS: self.progress},
        )
        listener = Listener(health, address=settings.bind_address, port=settings.http_port, variable="HTTP_PORT")
        async with listener, plugin:
            parts = {**self._watches.parts(), "publisher": publisher.run()}
            tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
            try:
                await until_stopped(stop, tasks)
                log.info("Stopping")
            finally:
                await cancel(tasks)

    def progress(self) -> dict[str, object]:
        """Return the versions that publishing reads, and whether publishing is due."""
        return {"versions": self._watches.versions(), "due": {"publications": int(self.publisher.due)}}

    def _cdi(self) -> Cdi:
        settings = self._settings
        if settings.driver_source == "simulated":
            return SimulatedCdi(settings.cdi_dir, settings.simulated_device_major)
        return NvidiaCdi(settings.cdi_dir, settings.static_cdi_dir)

    def _stuck(self) -> str | None:
        age = self.publisher.heartbeat_age
        return f"the loop has not run for {age:.0f} s" if age > STUCK else None


async def run_driver(settings: DriverSettings, kubeconfig: str | None, context: str | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    try:
        api = await connect(kubeconfig, context, user_agent=f"{names.DRIVER}/{own_version()}")
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        checkpoint = open_checkpoint(plugin_dir(settings.kubelet_dir))
        await DriverProcess(settings, api, checkpoint).serve(stop)
    except (CheckpointError, ListenError, SocketError) as error:
        raise UsageError(str(error)) from error
    finally:
        await api.close()
