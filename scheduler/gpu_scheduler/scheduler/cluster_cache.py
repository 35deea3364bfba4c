"""What the watches have shown beside our own pods: nodes, monitors, others' pods, storage; all that decisions read.

LAW: takes what is shown and tells what it may cure; decides nothing and asks nobody.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_scheduler.core.cluster_events import QuotaChanged
from gpu_scheduler.core.decide import Cluster
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.monitor_leases import MonitorLeases
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.scheduler.ports import InputKind, NoJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.namespace_limits import NamespaceLimits
    from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
    from gpu_scheduler.core.pods.count_request import Strategy
    from gpu_scheduler.core.pods.pod import ForeignPod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.kube.resource import T
    from gpu_scheduler.scheduler.pod_states import PodStates
    from gpu_scheduler.scheduler.ports import Journal

ClusterEvents = frozenset["ClusterEvent"]

log = logging.getLogger(__name__)


class ClusterCache:
    """The cluster as the watches show it, and a feed for each watch but that of our own pods."""

    def __init__(
        self,
        policy: Policy,
        wake: Callable[[ClusterEvents], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        journal: Journal | None = None,
    ) -> None:
        """`wake` is told what each change may cure, `journal` everything by which is decided."""
        self.journal = journal or NoJournal()
        self._wake = wake
        self._clock = clock
        self._wall = wall
        self._foreign_pods: dict[str, ForeignPod] = {}
        self._monitor_leases = MonitorLeases()
        volumes = Volumes()
        self.cluster = Cluster(Ledger(policy), Nodes(), volumes, policy)
        self.nodes = self._handler(self._node_applied, self._node_forgotten)
        self.monitors = self._handler(self._monitor_applied, self._monitor_forgotten)
        self.foreign_pods = self._journaled(InputKind.RESIDENT, self._foreign_pod_applied, self._foreign_pod_forgotten)
        self.claims = self._journaled(InputKind.CLAIM, volumes.claim_applied, volumes.claim_forgotten)
        self.volumes = self._journaled(InputKind.VOLUME, volumes.volume_applied, volumes.volume_forgotten)
        self.classes = self._journaled(InputKind.STORAGE_CLASS, volumes.class_applied, volumes.class_forgotten)

    def rebuild_ledger(self, tracker: PodStates) -> Ledger:
        """Make the ledger anew from the objects alone, and from what is assumed and not confirmed yet."""
        ledger = Ledger(self.cluster.policy)
        for node in self.cluster.nodes:
            ledger.apply_node(node)
        for foreign_pod in self._foreign_pods.values():
            ledger.apply_foreign_pod(foreign_pod)
        for tracked in tracker.values():
            ledger.apply(tracked.pod)
        for uid, workload, index in tracker.nominated():
            ledger.nominate(uid, (workload, index))
        for pod, placement in tracker.assumed():
            ledger.assume(pod, placement)
        return ledger

    def replace(self, ledger: Ledger) -> None:
        """Decide by this ledger from now on."""
        self.journal.received(InputKind.REPAIRED, None)
        self.cluster = replace(self.cluster, ledger=ledger)

    def set_strategy(self, strategy: Strategy) -> None:
        """Place who names no strategy by this one from now on."""
        self.journal.received(InputKind.STRATEGY, strategy)
        self.cluster = replace(self.cluster, strategy=strategy)

    def set_limits(self, limits: NamespaceLimits, namespaces: Iterable[str] = ()) -> None:
        """Let no namespace have more than this from now on; who waits in `namespaces` may have more now."""
        self.journal.received(InputKind.LIMITS, limits)
        self.cluster = self.cluster.limited(limits)
        self._wake(frozenset(map(QuotaChanged, namespaces)))

    def expire_monitors(self) -> None:
        """Notice which monitors have fallen silent since the last time."""
        silent = list(self._monitor_leases.expired(self._clock()))
        for name in silent:
            self._wake(self._refresh_node(name))
        if silent:
            told = {"count": len(silent), "first": silent[0]}
            log.warning("Monitors are silent: the GPUs of their nodes get no pod by strategy", extra=told)

    @property
    def next_due(self) -> float | None:
        """When to listen again."""
        return self._monitor_leases.next_due()

    def _handler(
        self, applied: Callable[[T], ClusterEvents], forgotten: Callable[[T], ClusterEvents]
    ) -> EventHandlerFuncs[T]:
        return EventHandlerFuncs(lambda value: self._wake(applied(value)), lambda value: self._wake(forgotten(value)))

    def _journaled(
        self, news: InputKind, applied: Callable[[T], ClusterEvents], forgotten: Callable[[T], ClusterEvents]
    ) -> EventHandlerFuncs[T]:
        """One whose values are decided by as they are: what becomes of a node or a monitor is kept further on."""

        def take(value: T) -> ClusterEvents:
            self.journal.received(news, value)
            return applied(value)

        def drop(value: T) -> ClusterEvents:
            self.journal.received(news, value, gone=True)
            return forgotten(value)

        return self._handler(take, drop)

    def _node_applied(self, node: Node) -> ClusterEvents:
        if node.stale != self._monitor_leases.stale(node.name):
            node = replace(node, stale=not node.stale)
        self.journal.received(InputKind.NODE, node)
        return self.cluster.nodes.apply(node) | self.cluster.ledger.apply_node(node)

    def _node_forgotten(self, node: Node) -> ClusterEvents:
        self.journal.received(InputKind.NODE, node, gone=True)
        return self.cluster.nodes.forget(node.name) | self.cluster.ledger.forget_node(node.name)

    def _monitor_applied(self, sighting: MonitorLease) -> ClusterEvents:
        changed = self._monitor_leases.seen(sighting, now=self._clock(), wall=self._wall())
        return self._refresh_node(sighting.node) if changed else frozenset()

    def _monitor_forgotten(self, sighting: MonitorLease) -> ClusterEvents:
        return self._refresh_node(sighting.node) if self._monitor_leases.gone(sighting.node) else frozenset()

    def _refresh_node(self, name: str) -> ClusterEvents:
        """The node as it was shown, with what its monitor's silence or speech makes of it."""
        node = self.cluster.nodes.resolve(name)
        return self._node_applied(node) if isinstance(node, Node) and node.name == name else frozenset()

    def _foreign_pod_applied(self, foreign_pod: ForeignPod) -> ClusterEvents:
        self._foreign_pods[foreign_pod.ref.uid] = foreign_pod
        return self.cluster.ledger.apply_foreign_pod(foreign_pod)

    def _foreign_pod_forgotten(self, foreign_pod: ForeignPod) -> ClusterEvents:
        self._foreign_pods.pop(foreign_pod.ref.uid, None)
        return self.cluster.ledger.forget_foreign_pod(foreign_pod)
