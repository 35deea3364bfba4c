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
from gpu_scheduler.core.pods.placement_map import REMEMBERED
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

Wakes = frozenset["ClusterEvent"]

log = logging.getLogger(__name__)


class ClusterCache:
    """The cluster as the watches show it, and a feed for each watch but that of our own pods."""

    def __init__(
        self,
        policy: Policy,
        wake: Callable[[Wakes], None],
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
        self._residents: dict[str, ForeignPod] = {}
        self._freshness = MonitorLeases()
        volumes = Volumes()
        self.cluster = Cluster(Ledger(policy), Nodes(), volumes, policy)
        self.nodes = self._feed(self._node_applied, self._node_forgotten)
        self.monitors = self._feed(self._monitor_applied, self._monitor_forgotten)
        self.residents = self._kept(InputKind.RESIDENT, self._resident_applied, self._resident_forgotten)
        self.claims = self._kept(InputKind.CLAIM, volumes.claim_applied, volumes.claim_forgotten)
        self.volumes = self._kept(InputKind.VOLUME, volumes.volume_applied, volumes.volume_forgotten)
        self.classes = self._kept(InputKind.STORAGE_CLASS, volumes.class_applied, volumes.class_forgotten)

    def rebuilt(self, tracker: PodStates) -> Ledger:
        """Make the ledger anew from the objects alone, and from what was promised and is not settled yet.

        With more text in maps than the parser remembers, each would be read again, for seconds; then it is the old one.
        """
        if sum(map(len, {tracked.pod.map_text or "" for tracked in tracker.values()})) > REMEMBERED:
            return self.cluster.ledger
        ledger = Ledger(self.cluster.policy)
        for node in self.cluster.nodes:
            ledger.learn(node)
        for resident in self._residents.values():
            ledger.resident_applied(resident)
        for tracked in tracker.values():
            ledger.apply(tracked.pod)
        for uid, workload, index in tracker.reserved():
            ledger.reserve(uid, (workload, index))
        for pod, placement in tracker.promised():
            ledger.assume(pod, placement)
        return ledger

    def replace(self, ledger: Ledger) -> None:
        """Decide by this ledger from now on."""
        self.journal.took(InputKind.REPAIRED, None)
        self.cluster = replace(self.cluster, ledger=ledger)

    def steer(self, strategy: Strategy) -> None:
        """Place who names no strategy by this one from now on."""
        self.journal.took(InputKind.STRATEGY, strategy)
        self.cluster = replace(self.cluster, strategy=strategy)

    def limit(self, limits: NamespaceLimits, namespaces: Iterable[str] = ()) -> None:
        """Let no namespace have more than this from now on; who waits in `namespaces` may have more now."""
        self.journal.took(InputKind.LIMITS, limits)
        self.cluster = self.cluster.limited(limits)
        self._wake(frozenset(map(QuotaChanged, namespaces)))

    def listen(self) -> None:
        """Notice which monitors have fallen silent since the last time."""
        silent = list(self._freshness.fallen_silent(self._clock()))
        for name in silent:
            self._wake(self._looked_at_anew(name))
        if silent:
            told = {"count": len(silent), "first": silent[0]}
            log.warning("Monitors are silent: the GPUs of their nodes get no pod by strategy", extra=told)

    @property
    def next_due(self) -> float | None:
        """When to listen again."""
        return self._freshness.next_due()

    def _feed(self, applied: Callable[[T], Wakes], forgotten: Callable[[T], Wakes]) -> EventHandlerFuncs[T]:
        return EventHandlerFuncs(lambda value: self._wake(applied(value)), lambda value: self._wake(forgotten(value)))

    def _kept(
        self, news: InputKind, applied: Callable[[T], Wakes], forgotten: Callable[[T], Wakes]
    ) -> EventHandlerFuncs[T]:
        """One whose values are decided by as they are: what becomes of a node or a monitor is kept further on."""

        def take(value: T) -> Wakes:
            self.journal.took(news, value)
            return applied(value)

        def drop(value: T) -> Wakes:
            self.journal.took(news, value, gone=True)
            return forgotten(value)

        return self._feed(take, drop)

    def _node_applied(self, node: Node) -> Wakes:
        if node.stale != self._freshness.stale(node.name):
            node = replace(node, stale=not node.stale)
        self.journal.took(InputKind.NODE, node)
        return self.cluster.nodes.apply(node) | self.cluster.ledger.learn(node)

    def _node_forgotten(self, node: Node) -> Wakes:
        self.journal.took(InputKind.NODE, node, gone=True)
        return self.cluster.nodes.forget(node.name) | self.cluster.ledger.unlearn(node.name)

    def _monitor_applied(self, sighting: MonitorLease) -> Wakes:
        changed = self._freshness.seen(sighting, now=self._clock(), wall=self._wall())
        return self._looked_at_anew(sighting.node) if changed else frozenset()

    def _monitor_forgotten(self, sighting: MonitorLease) -> Wakes:
        return self._looked_at_anew(sighting.node) if self._freshness.gone(sighting.node) else frozenset()

    def _looked_at_anew(self, name: str) -> Wakes:
        """The node as it was shown, with what its monitor's silence or speech makes of it."""
        node = self.cluster.nodes.resolve(name)
        return self._node_applied(node) if isinstance(node, Node) and node.name == name else frozenset()

    def _resident_applied(self, resident: ForeignPod) -> Wakes:
        self._residents[resident.ref.uid] = resident
        return self.cluster.ledger.resident_applied(resident)

    def _resident_forgotten(self, resident: ForeignPod) -> Wakes:
        self._residents.pop(resident.ref.uid, None)
        return self.cluster.ledger.resident_forgotten(resident)
