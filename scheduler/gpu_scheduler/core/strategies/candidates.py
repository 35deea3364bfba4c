"""Nodes for pods that ask for a count: a ranking for each equivalence class, and events for pods that wait.

LAW: a new class filters all nodes once, in turns if `filtering` is read before the decision; their devices only if no
class before it needs the same of a device. After that, a decision filters only the nodes that changed. After a change,
the cost depends on a bounded number of classes, however many there are for which pods wait.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final
from weakref import WeakValueDictionary

from gpu_scheduler.core.cluster_events import NO_EVENTS, ClassChanged, ClusterEvent
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.count_request import MAX_DEVICES, CountRequest, Strategy
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Unschedulable
from gpu_scheduler.core.strategies.class_filter import ClassFilter
from gpu_scheduler.core.strategies.device_fit import DeviceFilter
from gpu_scheduler.core.strategies.diagnosis import unschedulable
from gpu_scheduler.core.strategies.equivalence import (
    DeviceRequirements,
    EquivalenceClass,
    NodeRequirements,
    equivalence_class_of,
    unconstrained,
)
from gpu_scheduler.core.strategies.node_fit import NodeFilter
from gpu_scheduler.core.strategies.orderings import LastAssigned
from gpu_scheduler.core.strategies.ranking import Ranking

MAX_RANKINGS: Final = 16
"""How many rankings without waiting pods are kept at least, for any number of nodes."""

MAX_RANKED_NODES: Final = 80_000
"""A small cluster keeps more rankings: as many as have this number of nodes in total. CPU and memory requests are part
of a class, so that many classes are usual, and a pod of a new class causes all nodes to be filtered."""

MAX_WAITING: Final = 16
"""For how many classes pods wait at least with an event of their own, for any number of nodes."""

MAX_WAITING_NODES: Final = 40_000
"""A small cluster has more of them: as many as have this number of nodes in total. At 500 nodes they are 80: after a
change they take 1 ms, and 16 MiB. Pods of other classes share an event, of any node that has a GPU for any of them."""


class Candidates:
    """The rankings for one ledger and its nodes."""

    __slots__ = (
        "_device_filters",
        "_generation",
        "_ledger",
        "_node_filters",
        "_nodes",
        "_policy",
        "_rankings",
        "_shared",
        "_waiting",
    )

    def __init__(self, ledger: Ledger, nodes: Nodes, policy: Policy) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._policy = policy
        self._rankings: OrderedDict[EquivalenceClass, Ranking] = OrderedDict()
        """The ranking that was used last comes last."""
        self._device_filters: WeakValueDictionary[DeviceRequirements, DeviceFilter] = WeakValueDictionary()
        """The filters of the rankings for devices. Classes that need the same of a device share one."""
        self._node_filters: WeakValueDictionary[NodeRequirements, NodeFilter] = WeakValueDictionary()
        """Their filters for nodes. Classes that need the same of a node besides devices share one."""
        self._shared: dict[EquivalenceClass, Ranking] = {}
        """Rankings for pods of many classes, whose events they share: 32 at most."""
        self._waiting: dict[EquivalenceClass, Ranking] = {}
        self._generation = 0
        """The number of the last change for which `pop_events` has returned events."""

    def ranking(self, pod: Pod, request: CountRequest, strategy: Strategy) -> Ranking:
        """Return the up-to-date ranking for the pod. `strategy` is the default if the pod names none."""
        equivalence_class = equivalence_class_of(pod, request, strategy)
        ranking = self._rankings.get(equivalence_class) or self._add(equivalence_class, pod)
        self._rankings.move_to_end(equivalence_class)
        self._update(ranking)
        if ranking.round_robin:
            ranking.last_assigned = self._last_assigned()
        return ranking

    def filtering(self, pod: Pod, request: CountRequest, strategy: Strategy) -> Iterator[None]:
        """Filter the nodes for the first pod of a class, and yield after each. `ranking` then finds them filtered.

        Nodes that change meanwhile are filtered again.
        """
        equivalence_class = equivalence_class_of(pod, request, strategy)
        if equivalence_class in self._rankings:
            return
        class_filter = self._add(equivalence_class, pod).class_filter
        for node in tuple(self._nodes):
            class_filter.filter(node)
            yield

    def wait(self, ranking: Ranking) -> ClassChanged:
        """Return the event that requeues a pod that no node fits.

        `pop_events` returns it later if a pod still waits for it.
        """
        if ranking.waiting is None and not self._room_for_waiting():
            ranking = self._shared_ranking(ranking)
        self._waiting[ranking.equivalence_class] = ranking
        return ranking.wait()

    def unschedulable(self, ranking: Ranking) -> Unschedulable:
        """Return why no node fits."""
        reason = ranking.diagnosis.reason()
        count = ranking.diagnosis.count(reason)
        node = self._node(count.node) or Node(count.node)
        return unschedulable(ranking.class_filter, reason, count, node)

    def pop_events(self) -> frozenset[ClusterEvent]:
        """Return the events of the waiting classes that a node begins to fit, or whose reason has changed."""
        before, self._generation = self._generation, self._ledger.generations.now
        if before == self._generation or not self._waiting:
            return NO_EVENTS
        events: set[ClusterEvent] = set()
        for equivalence_class, ranking in list(self._waiting.items()):
            event = ranking.waiting
            if event is not None:
                self._update(ranking)
                if not ranking.pop_change():
                    continue
                events.add(event)
            del self._waiting[equivalence_class]
        return frozenset(events)

    def _add(self, equivalence_class: EquivalenceClass, pod: Pod) -> Ranking:
        self._drop_oldest()
        ranking = self._rankings[equivalence_class] = Ranking(self._filter(equivalence_class, pod))
        return ranking

    def _room_for_waiting(self) -> bool:
        """Whether pods of one more class may wait with an event of their own."""
        most = max(MAX_WAITING, MAX_WAITING_NODES // max(len(self._nodes), 1))
        if len(self._waiting) < most:
            return True
        for equivalence_class in [key for key, ranking in self._waiting.items() if ranking.waiting is None]:
            del self._waiting[equivalence_class]
        return len(self._waiting) < most

    def _shared_ranking(self, ranking: Ranking) -> Ranking:
        """Return the up-to-date ranking of all nodes that have a GPU which may be given to pods of this class."""
        shared = EquivalenceClass(1, ranking.equivalence_class.of_devices.of_sharing, NodeRequirements())
        found = self._shared.get(shared)
        if found is None:
            pod = unconstrained(ranking.class_filter.node.sample)
            found = self._shared[shared] = Ranking(self._filter(shared, pod), any_change=True)
        self._update(found)
        return found

    def _filter(self, equivalence_class: EquivalenceClass, pod: Pod) -> ClassFilter:
        """Return the filters for the class of the pod."""
        _, of_devices, of_node = equivalence_class
        devices = self._device_filters.get(of_devices)
        if devices is None:
            devices = self._device_filters[of_devices] = DeviceFilter(of_devices, pod, self._ledger, self._policy)
        node = self._node_filters.get(of_node)
        if node is None:
            node = self._node_filters[of_node] = NodeFilter(pod, self._ledger.used_resources)
        return ClassFilter(equivalence_class, devices, node)

    def _update(self, ranking: Ranking) -> None:
        changed = self._ledger.generations.since(ranking.generation)
        if changed is None:
            ranking.clear()
            changed = [node.name for node in self._nodes]
            ranking.class_filter.keep(changed)
        for name in changed:
            ranking.update(name, self._node(name))
        ranking.generation = self._ledger.generations.now

    def _drop_oldest(self) -> None:
        """Make room for one more ranking. A ranking for which pods wait is kept."""
        idle = [key for key, ranking in self._rankings.items() if ranking.waiting is None]
        kept = max(MAX_RANKINGS, MAX_RANKED_NODES // max(len(self._nodes), 1) - len(self._waiting))
        for equivalence_class in idle[: max(len(idle) + 1 - kept, 0)]:
            del self._rankings[equivalence_class]

    def _node(self, name: str) -> Node | None:
        """Return the node whose real name this is, or None."""
        node = self._nodes.resolve(name)
        return node if isinstance(node, Node) and node.name == name else None

    def _last_assigned(self) -> LastAssigned | None:
        """Return the last device of the newest hold.

        If its devices are unknown, return a position after all devices of its node.
        """
        devices = self._ledger.devices
        holder = devices.newest()
        if holder is None:
            return None
        keys = [devices.key(holder.node, device) for device in holder.devices]
        indices = [int(key) for key in keys if key.isdecimal()]
        if indices and not devices.unnamed(holder):
            return LastAssigned(holder.node, max(indices), f"GPU {max(indices)} of {holder.node}")
        return LastAssigned(holder.node, MAX_DEVICES, holder.node)
