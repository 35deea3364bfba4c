"""Wiring of `gpu-scheduler run`: watches feed the loop, the Lease permits the binds, and all parts stop in order.

A standby keeps its caches current and is Ready: it can take over at once, and it does not block a rollout that waits
for readiness.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import TYPE_CHECKING

from gpu_scheduler import names
from gpu_scheduler.core.ledger.availability import GpuTotals
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.kube.config.client_config import ClientConfigError
from gpu_scheduler.kube.events import Events
from gpu_scheduler.kube.http.client import connect
from gpu_scheduler.kube.leader_election import LeaderElector, LeaseLock, LeaseTimings, NoLeaderElection
from gpu_scheduler.process.http_server import PROGRESS, Listener, ListenError, health_app
from gpu_scheduler.process.lifecycle import Clocks, UsageError, cancel, own_version, stop_on_signals, until_stopped
from gpu_scheduler.process.metrics import leader_gauges, new_registry, read_gauges, read_labelled_gauge
from gpu_scheduler.scheduler.access import Use, find_denied
from gpu_scheduler.scheduler.binder import ApiBinder, ApiCordonStatus, ApiVolumeBinder
from gpu_scheduler.scheduler.claim_allocator import ApiClaimAllocator, DeviceClasses
from gpu_scheduler.scheduler.event_recorder import ApiEventRecorder
from gpu_scheduler.scheduler.journal import FileJournal, JournalError
from gpu_scheduler.scheduler.metrics import SchedulerMetrics
from gpu_scheduler.scheduler.ports import Ports
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.state_metrics import ClaimCollector, GpuCollector, PodCollector
from gpu_scheduler.scheduler.timings import Timings
from gpu_scheduler.scheduler.watches import Watches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

    from gpu_scheduler.core.ledger.availability import GpuCount
    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.scheduler.access import Denied
    from gpu_scheduler.settings import RunSettings

# Seconds. A stop may take 5. The time that drain and release leave is for notices that had to wait for binds.
DRAIN = 3.0
RELEASE = 1.0
STOP = 4.5
# Seconds. A loop that is late by more is stuck, not slow: every await in it has a much shorter time-out.
STUCK = 60.0
# Without one of these rights, no claim of a pod can be checked.
STORAGE = (Use.CLAIMS, Use.VOLUMES, Use.CLASSES)

log = logging.getLogger(__name__)


class SchedulerProcess:
    """One running scheduler and its parts."""

    def __init__(  # noqa: PLR0913 - what tests turn, each with its default
        self,
        settings: RunSettings,
        api: ApiClient,
        *,
        clocks: Clocks | None = None,
        identity: str | None = None,
        denied: Denied | None = None,
        leader_elect: bool = True,
    ) -> None:
        """Wire all parts; they send no request before `serve`. Each replica must have its own `identity`.

        `denied` are the rights that are missing.
        """
        self._settings = settings
        self._api = api
        denied = denied or {}
        clocks = clocks or Clocks()
        identity = identity or f"{settings.pod_name}_{uuid.uuid4().hex[:8]}"
        policy = Policy(
            settings.scheduler_name,
            Sharing(settings.gpu_sharing),
            settings.gpu_utilization_goal,
            reads_claims=settings.isolation == "dra",
            unread_storage="; ".join(str(denied[use]) for use in STORAGE if use in denied),
            unwritten_claims=str(denied.get(Use.SELECTED_NODES, "")),
            unread_monitors=Use.MONITORS in denied,
        )
        path = settings.decision_journal
        self._journal = None if path is None else FileJournal(path, policy)
        self.registry = new_registry(own_version(), settings.gpu_scheduler_commit)
        self.leadership: LeaderElector | NoLeaderElection = NoLeaderElection(identity)
        if leader_elect:
            events = Events(api, controller=settings.scheduler_name, instance=identity, wall=clocks.wall)
            self.leadership = self._elector(identity, clocks, None if Use.EVENTS in denied else events)
        self.event_recorder = ApiEventRecorder(
            api,
            controller=settings.scheduler_name,
            instance=identity,
            wall=clocks.wall,
            attempts_due=lambda: self.scheduler.attempts_due,
            binds_first=lambda attempts: self.scheduler.attempts < attempts and self.scheduler.busy,
            may_write=self.leadership.may_write,
            events=Use.EVENTS not in denied,
            conditions=Use.CONDITIONS not in denied,
        )
        classes = DeviceClasses()
        metrics = SchedulerMetrics(self.registry, settings.scheduler_name, lambda: clocks.wall().timestamp())
        self.scheduler = Scheduler(
            policy,
            Ports(
                binder=ApiBinder(api, self.leadership, identity, clocks.wall),
                claims=ApiVolumeBinder(api, self.leadership),
                allocator=ApiClaimAllocator(api, self.leadership, classes),
                event_recorder=self.event_recorder,
                recorder=metrics,
                repairs=metrics,
                allocations=metrics,
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
            clock=clocks.elapsed,
            wall=lambda: clocks.wall().timestamp(),
            processor=clocks.processor,
            poll_watches=api.poll_watches,
        )
        self.watches = Watches(
            api, self.scheduler, settings, clocks.elapsed, self._journal, denied=denied, device_classes=classes
        )
        self._clock = clocks.elapsed
        self._totals = GpuTotals()
        self._cordon_status = ApiCordonStatus(api, self.leadership, clocks.wall)
        self._leads = asyncio.Event()
        """Whether this replica is elected and has listed everything since."""

    def _elector(self, identity: str, clocks: Clocks, events: Events | None) -> LeaderElector:
        settings = self._settings
        return LeaderElector(
            LeaseLock(self._api, namespace=settings.kubernetes_namespace, name=names.LEASE),
            name=names.LEASE,
            namespace=settings.kubernetes_namespace,
            identity=identity,
            timing=LeaseTimings(settings.lease_duration, settings.renew_deadline, settings.retry_period),
            heartbeat_age=lambda: self.scheduler.heartbeat_age,
            clock=clocks.elapsed,
            wall=clocks.wall,
            events=events,
        )

    async def serve(self, stop: asyncio.Event) -> None:
        """Run until `stop`. FatalError if a part ends by itself, ListenError if the port is taken."""
        debug = self._settings.debug_endpoints
        health = health_app(
            alive={"scheduling loop": self._loop_problem},
            ready={"caches": self.watches.unlisted, "watches": self.watches.silent},
            registry=self.observed(),
            dumps={PROGRESS: self.progress, **({"/debug/ledger": self._dump} if debug else {})},
        )
        listener = Listener(
            health, address=self._settings.bind_address, port=self._settings.http_port, variable="HTTP_PORT"
        )
        async with listener:
            await self.live(stop)

    async def live(self, stop: asyncio.Event) -> None:
        """Run all of `serve` except its HTTP port."""
        parts = {
            # A replica that finds the Lease free lists only once: a list after the election need not be repeated.
            **self.watches.parts(after=self.leadership.tried),
            "event recorder": self.event_recorder.run(),
            "scheduling loop": self._lead(),
            "confirmation of cordons": self._confirm_cordons(),
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
        """Wait for the election and list again, because the last leader may have bound pods until now. Then decide."""
        await self.leadership.elected.wait()
        await self.watches.relist()
        counts = self.scheduler.pod_states.counts()
        log.info("Deciding", extra={"pending": counts.pending, "running": counts.running})
        self._leads.set()
        await self.scheduler.run()

    async def _confirm_cordons(self) -> None:
        await self._leads.wait()
        await self.scheduler.cordon_confirmer.run(self._cordon_status)

    async def _wind_down(self, leading: asyncio.Task[None]) -> None:
        """Stop deciding, wait for the binds and conditions in flight, release the Lease, and send what events are left.

        A successor must not start while a bind of ours is in flight. So the Lease is kept if an outcome is unknown.
        Conditions that are not sent yet are dropped, because the successor may have bound their pods.
        """
        log.info("Stopping")
        loop = asyncio.get_running_loop()
        until = loop.time() + STOP
        settled, _ = await asyncio.gather(self.scheduler.drain(DRAIN), self.event_recorder.withdraw_all())
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

    def _loop_problem(self) -> str | None:
        age = self.scheduler.heartbeat_age
        return f"the scheduling loop has not run for {age:.0f} s" if age > STUCK else None

    def progress(self) -> dict[str, object]:
        """Return the versions that decisions read, and how much is due that follows from them.

        A standby decides nothing: its pending pods stay active.
        """
        return {
            "versions": self.watches.versions(),
            "due": {
                "active": self.scheduler.queue.count_active(self._clock()),
                "writes": self.scheduler.writes,
                "notices": self.event_recorder.undelivered,
                "cordons": self.scheduler.cordon_confirmer.unconfirmed,
            },
        }

    def _dump(self) -> object:
        """Return all holds of the ledger, for debugging."""
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
            "claims": [
                {"claim": str(hold.ref), "uid": hold.ref.uid, "node": hold.node, "devices": hold.devices}
                for hold in self.scheduler.ledger.of_claims
            ],
        }

    def _gpu_counts(self) -> tuple[GpuCount, Mapping[str, GpuCount]]:
        # The loop of a standby does not run: it neither marks expired monitors nor ends cordons. Its metrics are read
        # nevertheless.
        self.scheduler.cache.expire_monitors()
        self.scheduler.cache.end_cordons()
        cluster = self.scheduler.cache.cluster
        return self._totals.take(cluster.nodes, cluster.ledger), self._totals.by_node

    def observed(self) -> CollectorRegistry:
        """Return the registry, with a gauge for each value that can be read when it is scraped."""
        scheduler, pending = self.scheduler, self.scheduler.queue
        gauges = {
            names.METRIC_CONFLICTS: (
                "Pairs of pods that hold one GPU against the rules",
                lambda: len(scheduler.ledger.conflicts()),
            ),
            names.METRIC_DRIFT: (
                "Bound pods that may not have the GPUs they were given",
                scheduler.ledger.drift,
            ),
            names.METRIC_LIMITS_FAULTS: (
                f"Lines of ConfigMap {names.LIMITS} that cannot be read",
                lambda: len(scheduler.limits.faults),
            ),
            **leader_gauges(self.leadership),
            names.METRIC_STALE_MONITORS: (
                "Nodes whose monitor has let its Lease expire, so that their GPUs are given to no pod by strategy",
                lambda: float(sum(node.stale for node in scheduler.cache.cluster.nodes)),
            ),
            names.METRIC_UNPUBLISHED_NODES: (
                "Nodes with a GPU that a monitor lists and no driver publishes; 0 without isolation dra",
                lambda: float(len(scheduler.cache.unpublished_nodes())),
            ),
        }
        read_gauges(self.registry, gauges)
        PodCollector(self.registry, scheduler.pod_states.counts, self._clock)
        GpuCollector(self.registry, self._gpu_counts)
        ClaimCollector(self.registry, lambda: scheduler.cache.count_claims(scheduler.pod_states))
        strategies = {word.value: lambda word=word: float(scheduler.settings.strategy is word) for word in Strategy}
        meaning = "1 for the strategy of pods that name none"
        read_labelled_gauge(self.registry, names.METRIC_STRATEGY, meaning, "strategy", strategies)
        queues = {
            queue: lambda queue=queue: pending.counts()[queue] for queue in ("active", "backoff", "unschedulable")
        }
        read_labelled_gauge(self.registry, names.METRIC_QUEUES, "Pending pods by queue", "queue", queues)
        meaning = "Seconds since the API server last sent anything about a resource"
        read_labelled_gauge(self.registry, names.METRIC_WATCH_SILENCE, meaning, "resource", self.watches.silences())
        return self.registry


async def run_scheduler(
    settings: RunSettings, kubeconfig: str | None, context: str | None, *, leader_elect: bool = True
) -> None:
    """Serve until SIGTERM or SIGINT.

    UsageError if the kubeconfig, the port or the journal cannot be used, or if a right is missing without which the
    scheduler must not start.
    """
    stop = stop_on_signals()
    try:
        agent = f"{names.SCHEDULER_NAME}/{own_version()}"
        api = await connect(kubeconfig, context, user_agent=agent, lease_gap=settings.lease_gap)
    except ClientConfigError as error:
        raise UsageError(str(error)) from error
    try:
        denied = None if kubeconfig is None else await find_denied(api, settings, leader_elect=leader_elect)
        await SchedulerProcess(settings, api, denied=denied, leader_elect=leader_elect).serve(stop)
    except (ListenError, JournalError) as error:
        raise UsageError(str(error)) from error
    finally:
        await api.close()
