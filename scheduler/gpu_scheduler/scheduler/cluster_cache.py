"""The cluster cache: nodes, monitors, foreign pods and storage, as the watches deliver them.

LAW: applies what is delivered and returns the cluster events that follow; decides nothing and sends no request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import NO_EVENTS, Aspect, NodeChanged, QuotaChanged, ResourceClaimChanged
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaims
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import Cordons
from gpu_scheduler.core.nodes.device_pools import DevicePools
from gpu_scheduler.core.nodes.monitor_leases import MonitorLeases
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.scheduler.ports import InputKind, NoJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpu_scheduler.core.cluster_events import ClusterEvent
    from gpu_scheduler.core.decision import ClaimAllocation
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.namespace_limits import NamespaceLimits
    from gpu_scheduler.core.nodes.cordons import NodeCordons
    from gpu_scheduler.core.nodes.device_pools import DeviceSlice
    from gpu_scheduler.core.nodes.inventory import Inventory
    from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
    from gpu_scheduler.core.pods.count_request import Strategy
    from gpu_scheduler.core.pods.pod import ForeignPod, Pod
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.kube.resource import T
    from gpu_scheduler.scheduler.pod_states import ClaimState, PodStates
    from gpu_scheduler.scheduler.ports import Journal

ClusterEvents = frozenset["ClusterEvent"]

log = logging.getLogger(__name__)


class ClusterCache:
    """The cluster as the watches show it, with an event handler for each watch except that of our own pods."""

    def __init__(
        self,
        policy: Policy,
        on_events: Callable[[ClusterEvents], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        journal: Journal | None = None,
    ) -> None:
        """Start empty. `on_events` gets the cluster events of each change, `journal` each value that decisions read."""
        self.journal = journal or NoJournal()
        self._on_events = on_events
        self._clock = clock
        self._wall = wall
        self._foreign_pods: dict[str, ForeignPod] = {}
        self._monitor_leases = MonitorLeases()
        self._cordons = Cordons()
        self._claim_change = asyncio.Event()
        """Set by the next change of a claim."""
        self._own_inventories: dict[str, Inventory | None] = {}
        """By node: what its own object says of its devices, while a driver of claims publishes them."""
        volumes = Volumes(policy.unread_storage, policy.unwritten_claims)
        pools = DevicePools()
        self._allocated_claims = AllocatedClaims(pools)
        self.cluster = Cluster(Ledger(policy), Nodes(), volumes, policy, pools=pools, claims=self._allocated_claims)
        self.nodes = self._handler(self._node_applied, self._node_forgotten)
        self.monitors = self._handler(self._monitor_applied, self._monitor_forgotten)
        self.cordons = self._handler(self._cordons_applied, self._cordons_forgotten)
        self.foreign_pods = self._journaled(
            InputKind.FOREIGN_POD, self._foreign_pod_applied, self._foreign_pod_forgotten
        )
        self.device_slices = self._journaled(
            InputKind.DEVICE_SLICE, self._slice_changed, partial(self._slice_changed, gone=True)
        )
        self.device_claims = self._journaled(
            InputKind.DEVICE_CLAIM, self._device_claim_applied, self._device_claim_forgotten
        )
        self.claims = self._journaled(InputKind.CLAIM, volumes.claim_applied, volumes.claim_forgotten)
        self.volumes = self._journaled(InputKind.VOLUME, volumes.volume_applied, volumes.volume_forgotten)
        self.classes = self._journaled(InputKind.STORAGE_CLASS, volumes.class_applied, volumes.class_forgotten)

    def rebuild_ledger(self, states: PodStates) -> Ledger:
        """Build a new ledger from the objects, and from the placements that are assumed and not confirmed yet."""
        ledger, steps = self.ledger_steps(states)
        for step in steps:
            step()
        return ledger

    def ledger_steps(self, states: PodStates) -> tuple[Ledger, Iterator[Callable[[], object]]]:
        """Return an empty ledger, and the steps that make it the ledger of this moment, also if they run later."""
        ledger = Ledger(self.cluster.policy)
        pods = [state.pod for state in states.values()]
        return ledger, chain(
            (partial(ledger.apply_node, node) for node in tuple(self.cluster.nodes)),
            (partial(ledger.apply_foreign_pod, foreign_pod) for foreign_pod in tuple(self._foreign_pods.values())),
            (partial(ledger.apply_claim, uid, holds) for uid, holds in tuple(self._allocated_claims)),
            (partial(ledger.apply, pod) for pod in pods),
            (partial(ledger.reserve_index, uid, index) for uid, index in tuple(states.reserved_indices())),
            (partial(ledger.assume, pod, placement) for pod, placement in tuple(states.assumed())),
        )

    def replace(self, ledger: Ledger) -> None:
        """Use `ledger` for all decisions from now on."""
        self.journal.received(InputKind.REPAIRED, None)
        self.cluster = replace(self.cluster, ledger=ledger)

    def set_strategy(self, strategy: Strategy) -> None:
        """Use `strategy` from now on for pods that name none."""
        self.journal.received(InputKind.STRATEGY, strategy)
        self.cluster = replace(self.cluster, strategy=strategy)

    def set_limits(self, limits: NamespaceLimits, namespaces: Iterable[str] = ()) -> None:
        """Apply `limits` from now on. Pods of `namespaces` that wait for quota are requeued: they may have more now."""
        self.journal.received(InputKind.LIMITS, limits)
        self.cluster = self.cluster.limited(limits)
        self._on_events(frozenset(map(QuotaChanged, namespaces)))

    def expire_monitors(self) -> None:
        """Mark as stale the nodes of monitors whose Leases have expired since the last call."""
        silent = list(self._monitor_leases.expired(self._clock()))
        for name in silent:
            self._on_events(self._refresh_node(name))
        if silent:
            details = {"count": len(silent), "first": silent[0]}
            log.warning("Monitors have not renewed their Leases: strategies place no pod on their nodes", extra=details)

    def end_cordons(self) -> None:
        """Return to service the devices whose cordons have ended since the last call."""
        if self._cordons.any_end:
            for name in self._cordons.ended(self._wall()):
                self._on_events(self._refresh_node(name))

    @property
    def next_due(self) -> float | None:
        """When `expire_monitors` is due again, by the monotonic clock; None if no Lease can expire."""
        return self._monitor_leases.next_due()

    def _handler(
        self, applied: Callable[[T], ClusterEvents], forgotten: Callable[[T], ClusterEvents]
    ) -> EventHandlerFuncs[T]:
        return EventHandlerFuncs(
            lambda value: self._on_events(applied(value)), lambda value: self._on_events(forgotten(value))
        )

    def _journaled(
        self, kind: InputKind, applied: Callable[[T], ClusterEvents], forgotten: Callable[[T], ClusterEvents]
    ) -> EventHandlerFuncs[T]:
        """Make an event handler that journals each value as it is received.

        It is not for nodes, monitors and cordons: `_node_applied` journals a node together with what they say of it.
        """

        def take(value: T) -> ClusterEvents:
            self.journal.received(kind, value)
            return applied(value)

        def drop(value: T) -> ClusterEvents:
            self.journal.received(kind, value, gone=True)
            return forgotten(value)

        return self._handler(take, drop)

    def _node_applied(self, node: Node) -> ClusterEvents:
        self._own_inventories.pop(node.name, None)
        return self._store_node(node)

    def _store_node(self, node: Node) -> ClusterEvents:
        stale, cordons = self._is_stale(node), self._cordons.in_force(node.name, self._wall())
        inventory = self._inventory(node)
        if (node.stale, node.cordons, node.inventory) != (stale, cordons, inventory):
            node = replace(node, stale=stale, cordons=cordons, inventory=inventory)
        self.journal.received(InputKind.NODE, node)
        return self.cluster.nodes.apply(node) | self.cluster.ledger.apply_node(node)

    def _inventory(self, node: Node) -> Inventory | None:
        """Return the node's devices: those that its monitor lists, else those that a driver of claims publishes."""
        own = self._own_inventories.pop(node.name, node.inventory)
        published = self.cluster.pools.published_for(node)
        if published is None:
            return own
        self._own_inventories[node.name] = own
        return published

    def _is_stale(self, node: Node) -> bool:
        """Whether its readings may be old. A Lease that may not be read cannot show that they are current."""
        return node.monitored if self._unread(node.name) else self._monitor_leases.stale(node.name)

    def _unread(self, node: str) -> bool:
        """Whether a Lease of the node's monitor may exist that cannot be read."""
        return self.cluster.policy.unread_monitors and not self._monitor_leases.known(node)

    def _node_forgotten(self, node: Node) -> ClusterEvents:
        self._own_inventories.pop(node.name, None)
        self.journal.received(InputKind.NODE, node, gone=True)
        return self.cluster.nodes.forget(node.name) | self.cluster.ledger.forget_node(node.name)

    def _monitor_applied(self, lease: MonitorLease) -> ClusterEvents:
        first_read = self._unread(lease.node)
        changed = self._monitor_leases.seen(lease, now=self._clock(), wall=self._wall())
        return self._refresh_node(lease.node) if changed or first_read else frozenset()

    def _monitor_forgotten(self, lease: MonitorLease) -> ClusterEvents:
        changed = self._monitor_leases.gone(lease.node)
        return self._refresh_node(lease.node) if changed or self._unread(lease.node) else frozenset()

    def _cordons_applied(self, cordons: NodeCordons) -> ClusterEvents:
        self._cordons.put(cordons.node, cordons.cordons, self._wall())
        return self._refresh_node(cordons.node)

    def _cordons_forgotten(self, cordons: NodeCordons) -> ClusterEvents:
        self._cordons.put(cordons.node, (), self._wall())
        return self._refresh_node(cordons.node)

    def _refresh_node(self, name: str) -> ClusterEvents:
        """Apply the node again, after its monitor's Lease, its cordons or its published devices have changed."""
        node = self.cluster.nodes.resolve(name)
        return self._store_node(node) if isinstance(node, Node) and node.name == name else frozenset()

    def apply_slice(self, found: DeviceSlice, *, gone: bool = False) -> tuple[frozenset[str], ClusterEvents]:
        """Store or remove a slice, and apply again the claims that hold devices of its pool.

        Return the nodes whose devices have changed, and the cluster events.
        """
        pools = self.cluster.pools
        nodes = pools.forget(found) if gone else pools.apply(found)
        for node in nodes:
            # A line of a pod with ResourceClaims fits, or does not, though the node itself has not changed.
            self.cluster.ledger.generations.mark(node)
        claims = self._allocated_claims.of_pool(found.driver, found.pool) if nodes else ()
        return nodes, frozenset().union(*map(self._device_claim_applied, claims))

    def _slice_changed(self, found: DeviceSlice, *, gone: bool = False) -> ClusterEvents:
        nodes, events = self.apply_slice(found, gone=gone)
        changed = (NodeChanged(node, Aspect.INVENTORY) for node in nodes)
        return events.union(changed, *map(self._refresh_node, nodes))

    def reserved_for(self, pod: Pod) -> tuple[AllocatedClaim, ...]:
        """Return the claims that are reserved for the pod."""
        return self._allocated_claims.reserved_for(pod.ref.uid)

    def count_claims(self, states: PodStates) -> Counter[ClaimState]:
        """Count the claims that have GPUs. The cost depends on the number of all claims: for a scrape."""
        return Counter(map(states.claim_state, self._allocated_claims.claims))

    def unpublished_nodes(self) -> list[str]:
        """Return the nodes with a GPU that a monitor lists and no driver publishes; none without claims."""
        cluster = self.cluster
        return [
            node.name for node in cluster.nodes if cluster.policy.reads_claims and not cluster.pools.publish_all(node)
        ]

    def others_allocate(self, may_give_gpus: Callable[[str], bool]) -> bool:
        """Whether another scheduler may be allocating GPUs to a claim now. `may_give_gpus` says it of a DeviceClass."""
        return self._allocated_claims.others_pending(may_give_gpus)

    async def shown_allocated(
        self, namespace: str, claims: Sequence[ClaimAllocation], versions: Mapping[str, str], seconds: float
    ) -> bool:
        """Wait until the watch has shown these allocations, at these versions or later. Return False after `seconds`.

        An older version may show the same devices: they were given back since, and another claim may have had them.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not all(self._shows(namespace, each, versions.get(each.name, "")) for each in claims):
                    await self._claim_change.wait()
                return True
        return False

    def _shows(self, namespace: str, wanted: ClaimAllocation, version: str) -> bool:
        claim = self._allocated_claims.find(namespace, wanted.name)
        return claim is not None and claim.shows(frozenset(wanted.devices), version)

    def _device_claim_applied(self, claim: AllocatedClaim) -> ClusterEvents:
        change, self._claim_change = self._claim_change, asyncio.Event()
        change.set()
        return self.cluster.ledger.apply_claim(claim.uid, self._allocated_claims.apply(claim)) | _claim_events(claim)

    def _device_claim_forgotten(self, claim: AllocatedClaim) -> ClusterEvents:
        self._allocated_claims.forget(claim.uid)
        return self.cluster.ledger.apply_claim(claim.uid, ()) | _claim_events(claim)

    def _foreign_pod_applied(self, foreign_pod: ForeignPod) -> ClusterEvents:
        self._foreign_pods[foreign_pod.ref.uid] = foreign_pod
        return self.cluster.ledger.apply_foreign_pod(foreign_pod)

    def _foreign_pod_forgotten(self, foreign_pod: ForeignPod) -> ClusterEvents:
        self._foreign_pods.pop(foreign_pod.ref.uid, None)
        return self.cluster.ledger.forget_foreign_pod(foreign_pod)


def _claim_events(claim: AllocatedClaim) -> ClusterEvents:
    """Return the event of a change of a user's claim, or of one of ours that is reserved for pods."""
    if claim.request is None and not claim.unread and not claim.pods:
        return NO_EVENTS
    return frozenset({ResourceClaimChanged(f"{claim.namespace}/{claim.name}")})
