"""Wiring of `gpu-scheduler controller`: watches feed two reconcilers, and only the holder of the Lease writes.

A standby fills its caches and is Ready, as a standby of the scheduler is.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.controller.api_writers import ApiGpuNodes, ApiPods, ApiWorkloadEvents, ApiWorkloads
from gpu_scheduler.controller.gpu_node_reconciler import GpuNodeReconciler
from gpu_scheduler.controller.gpu_workload import Phase
from gpu_scheduler.controller.reconcile_loop import ReconcileLoop
from gpu_scheduler.controller.translation import read_gpu_node, read_watched_pod, read_workload
from gpu_scheduler.controller.workload_reconciler import WorkloadReconciler
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.events import Events
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.kube.leader_election import LeaderElector, LeaseLock, LeaseTimings
from gpu_scheduler.kube.objects.agentaflow import API
from gpu_scheduler.kube.objects.nodes import read_node
from gpu_scheduler.kube.resource import EventHandlerFuncs, ReflectorTimings, Resource
from gpu_scheduler.process.http_server import PROGRESS, Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import Clocks, UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.metrics import leader_gauges, new_registry, read_gauges, read_labelled_gauge
from gpu_scheduler.process.reflectors import Reflectors, by_name, by_path, by_uid

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from gpu_scheduler.controller.gpu_workload import WatchedPod
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.settings import LeaderSettings

# Seconds of the two parts of a stop; together less than the 5 seconds that a stop may take.
DRAIN = 3.0
RELEASE = 1.0
# Seconds. A loop without an iteration for this long is stuck, not slow.
STUCK = 60.0

log = logging.getLogger(__name__)


class ControllerProcess:
    """One running controller and its parts."""

    def __init__(self, settings: LeaderSettings, api: ApiClient) -> None:
        """Wire the parts; the first request to the API server is sent by `serve`."""
        self._settings = settings
        self.registry = new_registry(own_version(), settings.gpu_scheduler_commit)
        self.loop = ReconcileLoop()
        identity = f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
        wall = Clocks().wall
        events = Events(api, controller=names.CONTROLLER, instance=identity, wall=wall)
        self.leadership = LeaderElector(
            LeaseLock(api, namespace=settings.kubernetes_namespace, name=names.CONTROLLER),
            name=names.CONTROLLER,
            namespace=settings.kubernetes_namespace,
            identity=identity,
            timing=LeaseTimings(settings.lease_duration, settings.renew_deadline, settings.retry_period),
            heartbeat_age=lambda: self.loop.heartbeat_age,
            events=events,
        )
        self.workloads = WorkloadReconciler(
            ApiPods(api, self.leadership, settings.scheduler_name),
            ApiWorkloads(api, self.leadership),
            ApiWorkloadEvents(events),
            partial(self.loop.add, names.WORKLOAD_KIND),
        )
        self.gpu_nodes = GpuNodeReconciler(ApiGpuNodes(api, self.leadership), partial(self.loop.add, names.NODE_KIND))
        self.watches = self._watches(api)

    def _watches(self, api: ApiClient) -> Reflectors:
        """Create the watches. Pods come before workloads, so that an early reconcile misses no pod that exists."""
        watches = Reflectors(api, ReflectorTimings(idle_limit=self._settings.watch_idle_limit))
        scheduled = f"spec.schedulerName={self._settings.scheduler_name}"
        pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)
        watches.watch(Resource("pods", "/api/v1/pods", scheduled, read_watched_pod, by_uid), pods)
        watches.watch(Resource("nodes", "/api/v1/nodes", None, read_node, by_name), self.gpu_nodes.nodes)
        gpu_nodes = Resource("gpunodes", f"{API}/gpunodes", None, read_gpu_node, by_name)
        watches.watch(gpu_nodes, self.gpu_nodes.gpu_nodes)
        workloads = Resource("gpuworkloads", f"{API}/gpuworkloads", None, read_workload, by_path)
        watches.watch(workloads, self.workloads.workloads)
        return watches

    def _pod_applied(self, watched: WatchedPod) -> None:
        self.gpu_nodes.pods.applied(watched.pod)
        self.workloads.pods.applied(watched)

    def _pod_forgotten(self, watched: WatchedPod) -> None:
        self.gpu_nodes.pods.forgotten(watched.pod)
        self.workloads.pods.forgotten(watched)

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until `stop`. FatalError if a part ends by itself, ListenError if the port is in use."""
        health = health_app(
            alive={"worker": self._problem},
            ready={"caches": self.watches.unlisted, "watches": self.watches.silent},
            registry=self.observed(),
            dumps={PROGRESS: self.progress},
        )
        listener = Listener(
            health, address=self._settings.bind_address, port=self._settings.http_port, variable="HTTP_PORT"
        )
        async with listener:
            # The first lists wait for the first try to get the Lease. A replica that gets it then lists only once,
            # because a list that began after the election need not be repeated.
            watches = self.watches.parts(after=self.leadership.tried)
            parts = {**watches, "worker": self._lead(), "leadership": self.leadership.run()}
            tasks = {name: asyncio.create_task(part, name=name) for name, part in parts.items()}
            try:
                await until_stopped(stop, tasks.values())
                await self._wind_down(tasks["leadership"])
            finally:
                await cancel(tasks.values())

    async def _lead(self) -> None:
        """Wait for the election, list again, then reconcile.

        The second list is needed because the previous leader may have written until just before the election.
        """
        await self.leadership.elected.wait()
        await self.watches.relist()
        log.info("Working", extra={"waiting": self.loop.waiting})
        await self.loop.run({names.WORKLOAD_KIND: self.workloads.reconcile, names.NODE_KIND: self.gpu_nodes.reconcile})

    async def _wind_down(self, leading: asyncio.Task[None]) -> None:
        """Start no more reconciles, wait for running writes, then release the Lease.

        In this order no successor writes at the same time as this replica.
        """
        log.info("Stopping")
        settled = await self.loop.drain(DRAIN)
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
        age = self.loop.heartbeat_age
        return f"the worker loop has not run for {age:.0f} s" if age > STUCK else None

    def progress(self) -> dict[str, object]:
        """Return the versions that reconciles read, and how many reconciles are due."""
        return {"versions": self.watches.versions(), "due": {"reconciles": self.loop.due}}

    def observed(self) -> CollectorRegistry:
        """Add the gauges that are read at each scrape, and return the registry."""
        gauges = {
            **leader_gauges(self.leadership),
            names.METRIC_QUEUE: ("Workloads and nodes that wait to be reconciled", lambda: float(self.loop.waiting)),
        }
        read_gauges(self.registry, gauges)
        phases = {phase.value: lambda phase=phase: float(self.workloads.in_phase(phase)) for phase in Phase}
        read_labelled_gauge(self.registry, names.METRIC_WORKLOADS, "GPUWorkloads by phase", "phase", phases)
        meaning = "Seconds since the API server last sent anything about a resource"
        read_labelled_gauge(self.registry, names.METRIC_WATCH_SILENCE, meaning, "resource", self.watches.silences())
        return self.registry


async def run_controller(settings: LeaderSettings, kubeconfig: str | None, context: str | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    try:
        agent = f"{names.CONTROLLER}/{own_version()}"
        api = await connect(kubeconfig, context, user_agent=agent, lease_gap=settings.lease_gap)
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        await ControllerProcess(settings, api).serve(stop)
    except ListenError as error:
        raise UsageError(str(error)) from error
    finally:
        await api.close()
