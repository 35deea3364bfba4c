"""Wiring of `gpu-scheduler controller`: watches feed two reconcilers, the Lease gates what they write.

A standby keeps its caches warm and is Ready, as a scheduler's does.
"""

from __future__ import annotations

import asyncio
import uuid
from functools import partial
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.controller.api_writers import ApiGpuNodes, ApiPods, ApiWorkloads
from gpu_scheduler.controller.gpu_node_reconciler import GpuNodeReconciler
from gpu_scheduler.controller.gpu_workload import Phase
from gpu_scheduler.controller.reconcile_loop import ReconcileLoop
from gpu_scheduler.controller.translation import read_gpu_node, read_seen_pod, read_workload
from gpu_scheduler.controller.workload_reconciler import WorkloadReconciler
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.kube.leader_election import LeaderElector, LeaseLock, LeaseTimings
from gpu_scheduler.kube.objects.agentaflow import API
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.resource import EventHandlerFuncs, Resource
from gpu_scheduler.process.http_server import Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.process.metrics import new_registry, read_gauges, read_labelled_gauge
from gpu_scheduler.process.reflectors import Reflectors, by_name, by_path, by_uid

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from gpu_scheduler.controller.gpu_workload import WatchedPod
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.settings import LeaderSettings

# The parts of stopping, in seconds: together under the 5 that a stop may take.
DRAIN = 3.0
RELEASE = 1.0
# A loop that has not come round for so long is not slow, it is stuck.
STUCK = 60.0

log = get_logger(__name__)


class ControllerProcess:
    """One running controller and its parts."""

    def __init__(self, settings: LeaderSettings, api: ApiClient) -> None:
        """Wire everything; nothing is asked of the API server before `serve`."""
        self._settings = settings
        self.registry = new_registry(own_version(), settings.gpu_scheduler_commit)
        self.work = ReconcileLoop()
        self.leadership = LeaderElector(
            LeaseLock(api, namespace=settings.kubernetes_namespace, name=names.CONTROLLER),
            name=names.CONTROLLER,
            namespace=settings.kubernetes_namespace,
            identity=f"{settings.pod_name}_{uuid.uuid4().hex[:8]}",
            timing=LeaseTimings(settings.lease_duration, settings.renew_deadline, settings.retry_period),
            heartbeat_age=lambda: self.work.heartbeat_age,
        )
        self.workloads = WorkloadReconciler(
            ApiPods(api, self.leadership, settings.scheduler_name),
            ApiWorkloads(api, self.leadership),
            partial(self.work.add, names.WORKLOAD_KIND),
        )
        self.gpu_nodes = GpuNodeReconciler(ApiGpuNodes(api, self.leadership), partial(self.work.add, names.NODE_KIND))
        self.watches = self._watches(api)

    def _watches(self, api: ApiClient) -> Reflectors:
        """Pods before workloads: who looks early must not miss a pod that is there."""
        watches = Reflectors(api, self._settings.watch_idle_limit)
        scheduled = f"spec.schedulerName={self._settings.scheduler_name}"
        pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)
        watches.watch(Resource("pods", "/api/v1/pods", scheduled, read_seen_pod, by_uid), pods)
        watches.watch(Resource("nodes", "/api/v1/nodes", None, read_node, by_name), self.gpu_nodes.nodes)
        gpu_nodes = Resource("gpunodes", f"{API}/gpunodes", None, read_gpu_node, by_name)
        watches.watch(gpu_nodes, self.gpu_nodes.gpu_nodes)
        workloads = Resource("gpuworkloads", f"{API}/gpuworkloads", None, read_workload, by_path)
        watches.watch(workloads, self.workloads.workloads)
        return watches

    def _pod_applied(self, seen: WatchedPod) -> None:
        self.gpu_nodes.pods.applied(seen.pod)
        self.workloads.pods.applied(seen)

    def _pod_forgotten(self, seen: WatchedPod) -> None:
        self.gpu_nodes.pods.forgotten(seen.pod)
        self.workloads.pods.forgotten(seen)

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until `stop`; FatalError when a part ends by itself, ListenError when the port is taken."""
        health = health_app(
            alive={"worker": self._problem},
            ready={"caches": self.watches.unlisted, "watches": self.watches.silent},
            registry=self._observed(),
        )
        listener = Listener(
            health, address=self._settings.bind_address, port=self._settings.http_port, variable="HTTP_PORT"
        )
        async with listener:
            # Who finds the Lease free lists once: what is listed after the election need not be listed anew.
            watches = self.watches.parts(after=self.leadership.tried)
            parts = {**watches, "worker": self._lead(), "leadership": self.leadership.run()}
            tasks = {name: asyncio.create_task(part, name=name) for name, part in parts.items()}
            try:
                await until_stopped(stop, tasks.values())
                await self._wind_down(tasks["leadership"])
            finally:
                await cancel(tasks.values())

    async def _lead(self) -> None:
        """Wait for the election, list anew, because the last leader may have written until a moment ago; then work."""
        await self.leadership.elected.wait()
        await self.watches.relist()
        log.info("Working", waiting=self.work.waiting)
        await self.work.run({names.WORKLOAD_KIND: self.workloads.reconcile, names.NODE_KIND: self.gpu_nodes.reconcile})

    async def _wind_down(self, leading: asyncio.Task[None]) -> None:
        """Begin nothing more, let what is being written end, then give the lease up: no successor writes beside us."""
        log.info("Stopping")
        settled = await self.work.drain(DRAIN)
        await cancel([leading])
        if not settled:
            log.warning("A write is still under way: the lease is kept and will expire")
            return
        try:
            async with asyncio.timeout(RELEASE):
                await self.leadership.release()
        except TimeoutError:
            log.warning("The lease could not be released in time and will expire")

    def _problem(self) -> str | None:
        age = self.work.heartbeat_age
        return f"the worker has shown no sign of life for {age:.0f} s" if age > STUCK else None

    def _observed(self) -> CollectorRegistry:
        """Give the registry a gauge for everything that a scrape can just look at."""
        gauges = {
            names.METRIC_LEADER: ("1 on the replica that decides", lambda: float(self.leadership.leading)),
            names.METRIC_QUEUE: ("Workloads and nodes that wait for a look", lambda: float(self.work.waiting)),
        }
        read_gauges(self.registry, gauges)
        phases = {phase.value: lambda phase=phase: float(self.workloads.in_phase(phase)) for phase in Phase}
        read_labelled_gauge(self.registry, names.METRIC_WORKLOADS, "GPUWorkloads by phase", "phase", phases)
        meaning = "Seconds since the API server last said anything about a resource"
        read_labelled_gauge(self.registry, names.METRIC_WATCH_SILENCE, meaning, "resource", self.watches.silences())
        return self.registry


async def run_controller(settings: LeaderSettings, kubeconfig: str | None, context: str | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    try:
        api = await connect(kubeconfig, context, user_agent=f"{names.CONTROLLER}/{own_version()}")
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        await ControllerProcess(settings, api).serve(stop)
    except ListenError as error:
        raise UsageError(str(error)) from error
    finally:
        await api.close()
