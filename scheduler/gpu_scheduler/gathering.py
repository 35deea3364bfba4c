"""What the watches have shown beside our own pods: nodes, other schedulers' pods, storage; all that decisions read.

LAW: takes what is shown and tells what it may cure; decides nothing and asks nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_scheduler.core.decide import Cluster
from gpu_scheduler.core.ledger import Ledger
from gpu_scheduler.core.nodes import Nodes
from gpu_scheduler.core.placement_map import REMEMBERED
from gpu_scheduler.core.volumes import Volumes

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.model import Node, Policy, Resident
    from gpu_scheduler.core.reasons import Wake
    from gpu_scheduler.tracking import Tracker

T = TypeVar("T")
Wakes = frozenset["Wake"]


@dataclass(frozen=True, slots=True)
class Feed(Generic[T]):
    """Where a watch delivers: fits ports.Observer."""

    applied: Callable[[T], None]
    forgotten: Callable[[T], None]


class World:
    """The cluster as the watches show it, and a feed for each watch but that of our own pods."""

    def __init__(self, policy: Policy, wake: Callable[[Wakes], None]) -> None:
        """`wake` is told what each change may cure."""
        self._wake = wake
        self._residents: dict[str, Resident] = {}
        volumes = Volumes()
        self.cluster = Cluster(Ledger(policy), Nodes(), volumes, policy)
        self.nodes = self._feed(self._node_applied, self._node_forgotten)
        self.residents = self._feed(self._resident_applied, self._resident_forgotten)
        self.claims = self._feed(volumes.claim_applied, volumes.claim_forgotten)
        self.volumes = self._feed(volumes.volume_applied, volumes.volume_forgotten)
        self.classes = self._feed(volumes.class_applied, volumes.class_forgotten)

    def rebuilt(self, tracker: Tracker) -> Ledger:
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
        self.cluster = Cluster(ledger, self.cluster.nodes, self.cluster.volumes, self.cluster.policy)

    def _feed(self, applied: Callable[[T], Wakes], forgotten: Callable[[T], Wakes]) -> Feed[T]:
        return Feed(lambda value: self._wake(applied(value)), lambda value: self._wake(forgotten(value)))

    def _node_applied(self, node: Node) -> Wakes:
        return self.cluster.nodes.apply(node) | self.cluster.ledger.learn(node)

    def _node_forgotten(self, node: Node) -> Wakes:
        return self.cluster.nodes.forget(node.name) | self.cluster.ledger.unlearn(node.name)

    def _resident_applied(self, resident: Resident) -> Wakes:
        self._residents[resident.ref.uid] = resident
        return self.cluster.ledger.resident_applied(resident)

    def _resident_forgotten(self, resident: Resident) -> Wakes:
        self._residents.pop(resident.ref.uid, None)
        return self.cluster.ledger.resident_forgotten(resident)
