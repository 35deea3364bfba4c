"""Wiring of `gpu-scheduler run`: watches feed the loop, the lease gates the binds, and everything stops in order.

A standby keeps its caches warm and is Ready: it can take over at once, and a rollout that waits for readiness goes on.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.core.ledger.availability import GpuTotals
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.kube.leader_election import LeaderElector, LeaseLock, LeaseTimings
from gpu_scheduler.process.http_server import Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import Clocks, UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.logs import get_logger
from gpu_scheduler.process.metrics import new_registry, read_gauges, read_labelled_gauge
from gpu_scheduler.scheduler.binder import ApiBinder, ApiVolumeBinder
from gpu_scheduler.scheduler.event_recorder import ApiEventRecorder
from gpu_scheduler.scheduler.journal import FileJournal, JournalError
from gpu_scheduler.scheduler.metrics import SchedulerMetrics
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from gpu_scheduler.scheduler.watches import Watches

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from gpu_scheduler.core.ledger.availability import GpuCount
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.settings import RunSettings

# Seconds: a stop may take 5, and what its parts leave of them is for notices that binds have kept waiting.
DRAIN = 3.0
RELEASE = 1.0
STOP = 4.5
# A loop that has not come round for so long is not slow, it is stuck: every await in it has a time-out well below.
STUCK = 60.0

log = get_logger(__name__)


class SchedulerProcess:
    """One running scheduler and its parts."""

    def __init__(
        self, settings: RunSettings, api: ApiClient, *, clocks: Clocks | None = None, identity: str | None = None
    ) -> None:
        """Wire everything; nothing is asked of the API server before `serve`. No two replicas may have one identity."""
        self._settings = settings
        self._api = api
        clocks = clocks or Clocks()
        identity = identity or f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
        policy = Policy(settings.scheduler_name, Sharing(settings.gpu_sharing), settings.gpu_utilization_goal)
        path = settings.decision_journal
        self._journal = None if path is None else FileJournal(path, policy)
        self.registry = new_registry(own_version(), settings.gpu_scheduler_commit)
        self.leadership = LeaderElector(
            LeaseLock(api, namespace=settings.kubernetes_namespace, name=names.LEASE),
            name=names.LEASE,
            namespace=settings.kubernetes_namespace,
            identity=identity,
            timing=LeaseTimings(settings.lease_duration, settings.renew_deadline, settings.retry_period),
            heartbeat_age=lambda: self.scheduler.heartbeat_age,
            clock=clocks.monotonic,
            wall=clocks.wall,
        )
        self.event_recorder = ApiEventRecorder(
            api,
            controller=settings.scheduler_name,
            instance=identity,
            wall=clocks.wall,
            busy=lambda: self.scheduler.busy,
        )
        metrics = SchedulerMetrics(self.registry, settings.scheduler_name)
        self.scheduler = Scheduler(
            policy,
            Ports(
                binder=ApiBinder(api, self.leadership, identity, clocks.wall),
                claims=ApiVolumeBinder(api, self.leadership),
                event_recorder=self.event_recorder,
                recorder=metrics,
                repairs=metrics,
                journal=self._journal,
            ),
            strategy=settings.scheduling_strategy,
            timings=Timings(
                settings.scheduling_interval,
                settings.audit_interval,
                settings.pod_initial_backoff,
                settings.pod_max_backoff,
                settings.pod_resync,
            ),
            clock=clocks.monotonic,
            wall=lambda: clocks.wall().timestamp(),
            poll_watches=api.poll_watches,
        )
        self.watches = Watches(api, self.scheduler, settings, clocks.monotonic, self._journal)
        self._totals = GpuTotals()

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until `stop`; FatalError when a part ends by itself, ListenError when the port is taken."""
        health = health_app(
            alive={"decider": self._decider_problem},
            ready={"caches": self.watches.unlisted, "watches": self.watches.silent},
            registry=self._observed(),
            dumps={"/debug/ledger": self._dump} if self._settings.debug_endpoints else {},
        )
        listener = Listener(
            health, address=self._settings.bind_address, port=self._settings.http_port, variable="HTTP_PORT"
        )
        async with listener:
            await self.live(stop)

    async def live(self, stop: asyncio.Event) -> None:
        """All of `serve` but its port."""
        parts = {
            # Who finds the Lease free lists once: what is listed after the election need not be listed anew.
            **self.watches.parts(after=self.leadership.tried),
            "announcer": self.event_recorder.run(),
            "decider": self._lead(),
            "leadership": self.leadership.run(),
        }
        tasks = {name: asyncio.create_task(part, name=name) for name, part in parts.items()}
        try:
            await until_stopped(stop, tasks.values())
            await self._wind_down(tasks["leadership"])
        finally:
            await cancel(tasks.values())
            if self._journal is not None:
                self._journal.close()

    async def _lead(self) -> None:
        """Wait for the election, list anew, because the last leader may have bound until a moment ago; then decide."""
        await self.leadership.elected.wait()
        await self.watches.relist()
        tracked = self.scheduler.tracked
        log.info("Deciding", pending=tracked.pending(), running=tracked.running())
        await self.scheduler.run()

    async def _wind_down(self, leading: asyncio.Task[None]) -> None:
        """No new decision, binds settled, then the lease given up: a successor must not start beside a bind of ours."""
        log.info("Stopping")
        loop = asyncio.get_running_loop()
        until = loop.time() + STOP
        settled = await self.scheduler.drain(DRAIN)
        await cancel([leading])
        if settled:
            try:
                async with asyncio.timeout(RELEASE):
                    await self.leadership.release()
            except TimeoutError:
                log.warning("The lease could not be released in time and will expire")
        else:
            log.warning("A bind's outcome is unknown: the lease is kept and will expire")
        await self.event_recorder.flush(until - loop.time())

    def _decider_problem(self) -> str | None:
        age = self.scheduler.heartbeat_age
        return f"the decider has shown no sign of life for {age:.0f} s" if age > STUCK else None

    def _dump(self) -> object:
        """Who holds what, for who debugs: as the ledger has it."""
        devices = self.scheduler.ledger.devices
        return {
            "strategy": self.scheduler.settings.strategy,
            "holders": [
                {
                    "pod": str(holder.ref),
                    "uid": holder.ref.uid,
                    "node": holder.node,
                    "devices": holder.devices,
                    "unnamed": devices.unnamed(holder),
                    "memory": holder.memory,
                    "shared": holder.shared,
                    "index": holder.index,
                    "workload": None if holder.workload is None else str(holder.workload),
                    "assumed": holder.assumed,
                }
                for holder in self.scheduler.ledger
            ],
        }

    def _cards(self) -> GpuCount:
        # A standby's loop does not listen yet, and is asked all the same.
        self.scheduler.world.expire_monitors()
        cluster = self.scheduler.world.cluster
        return self._totals.take(cluster.nodes, cluster.ledger)

    def _observed(self) -> CollectorRegistry:
        """Give the registry a gauge for everything that a scrape can just look at."""
        scheduler, pending = self.scheduler, self.scheduler.queue
        gauges = {
            names.METRIC_PENDING: ("Our pods that are not bound yet", scheduler.tracked.pending),
            names.METRIC_RUNNING: ("Our pods that are bound and not finished", scheduler.tracked.running),
            names.METRIC_CONFLICTS: (
                "Pairs of pods that hold one GPU against the rules",
                lambda: len(scheduler.ledger.conflicts()),
            ),
            names.METRIC_DRIFT: (
                "Bound pods that lack the annotation they read their GPUs from",
                scheduler.ledger.drift,
            ),
            names.METRIC_LIMITS_FAULTS: (
                f"Lines of ConfigMap {names.LIMITS} that cannot be read",
                lambda: len(scheduler.limits.faults),
            ),
            names.METRIC_LEADER: ("1 on the replica that decides", lambda: float(self.leadership.leading)),
            names.METRIC_GPUS: ("GPUs of all nodes, as far as they are known", lambda: self._cards().total),
            names.METRIC_GPUS_AVAILABLE: (
                "GPUs that the next pod may have: healthy, held by nobody, on a node that takes pods",
                lambda: self._cards().available,
            ),
            names.METRIC_UTILIZATION: (
                "Mean utilization of the GPUs that monitors read, in percent",
                lambda: self._cards().mean,
            ),
        }
        read_gauges(self.registry, gauges)
        strategies = {word.value: lambda word=word: float(scheduler.settings.strategy is word) for word in Strategy}
        meaning = "1 for the strategy of pods that name none"
        read_labelled_gauge(self.registry, names.METRIC_STRATEGY, meaning, "strategy", strategies)
        queues = {
            queue: lambda queue=queue: pending.counts()[queue] for queue in ("active", "backoff", "unschedulable")
        }
        read_labelled_gauge(self.registry, names.METRIC_QUEUES, "Pending pods by queue", "queue", queues)
        meaning = "Seconds since the API server last said anything about a resource"
        read_labelled_gauge(self.registry, names.METRIC_WATCH_SILENCE, meaning, "resource", self.watches.silences())
        return self.registry


async def run_scheduler(settings: RunSettings, kubeconfig: str | None, context: str | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = stop_on_signals()
    try:
        api = await connect(kubeconfig, context, user_agent=f"{names.SCHEDULER_NAME}/{own_version()}")
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        await SchedulerProcess(settings, api).serve(stop)
    except (ListenError, JournalError) as error:
        raise UsageError(str(error)) from error
    finally:
        await api.close()
