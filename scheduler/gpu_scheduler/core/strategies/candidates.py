"""Where pods fit that ask for a count: a ranking of nodes for each shape of them, and news for those who wait.

LAW: all nodes are weighed once for a shape that is new; from then on only those that changed, however many there are.
"""

from collections import OrderedDict
from typing import Final
from weakref import WeakValueDictionary

from gpu_scheduler.core.cluster_events import ClassChanged, ClusterEvent
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.count_request import MAX_DEVICES, CountRequest, Strategy
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Unschedulable
from gpu_scheduler.core.strategies.diagnosis import NodeNumbers, shortfall
from gpu_scheduler.core.strategies.equivalence import EquivalenceClass, PlacementRequirements, equivalence_class_of
from gpu_scheduler.core.strategies.node_fit import NodeFilter
from gpu_scheduler.core.strategies.orderings import LastAssigned
from gpu_scheduler.core.strategies.ranking import Ranking

MAX_SHAPES: Final = 16
"""How many rankings are kept for which nobody waits, however many nodes there are."""

MAX_RANKED: Final = 80_000
"""Nodes that all of them together may rank, where that is more: who comes with one more shape pays a look at all nodes,
and processor and memory are part of a shape."""

_NOBODY: Final[frozenset[ClusterEvent]] = frozenset()


class Candidates:
    """Everything follows from ledger and nodes; another ledger needs another one of these."""

    __slots__ = ("_ledger", "_looked", "_nodes", "_places", "_policy", "_rankings", "_scales", "_waiting")

    def __init__(self, ledger: Ledger, nodes: Nodes, policy: Policy) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._policy = policy
        self._places = NodeNumbers()
        self._rankings: OrderedDict[EquivalenceClass, Ranking] = OrderedDict()
        """The one that was asked for last is the last."""
        self._scales: WeakValueDictionary[PlacementRequirements, NodeFilter] = WeakValueDictionary()
        """Those of the rankings; shapes that differ in nothing but the count have one."""
        self._waiting: dict[EquivalenceClass, Ranking] = {}
        self._looked = 0
        """Up to which change those who wait have been told."""

    def ranking(self, pod: Pod, request: CountRequest, strategy: Strategy) -> Ranking:
        """Where the pod fits, as things are now; `strategy` counts where the pod names none."""
        self._tidy()
        shape = equivalence_class_of(pod, request, strategy)
        ranking = self._rankings.get(shape)
        if ranking is None:
            self._drop_oldest()
            ranking = self._rankings[shape] = Ranking(shape, self._scale(shape.kind, pod), self._places)
        self._rankings.move_to_end(shape)
        self._catch_up(ranking)
        if ranking.takes_turns:
            ranking.turn = self._turn()
        return ranking

    def wait(self, ranking: Ranking) -> ClassChanged:
        """What wakes a pod that can have none of these nodes; as long as somebody has it, there is news about them."""
        self._waiting[ranking.shape] = ranking
        return ranking.wait()

    def shortfall(self, ranking: Ranking) -> Unschedulable:
        """Why no node fits."""
        reason = ranking.lacking
        count = ranking.count(reason)
        node = self._node(count.node) or Node(count.node)
        return shortfall(ranking.shape, ranking.scale, reason, count, node)

    def news(self) -> frozenset[ClusterEvent]:
        """For whose pods a node begins to fit, or something else is in the way. Costs what changed for who waits."""
        if self._looked == self._ledger.touched.now:
            return _NOBODY
        self._tidy()
        self._looked = self._ledger.touched.now
        told: set[ClusterEvent] = set()
        for shape, ranking in list(self._waiting.items()):
            wake = ranking.waiting
            if wake is not None:
                self._catch_up(ranking)
                if not ranking.tell():
                    continue
                told.add(wake)
            del self._waiting[shape]
        return frozenset(told)

    def _scale(self, kind: PlacementRequirements, pod: Pod) -> NodeFilter:
        scale = self._scales.get(kind)
        if scale is None:
            scale = self._scales[kind] = NodeFilter(kind, pod, self._ledger, self._policy)
        return scale

    def _catch_up(self, ranking: Ranking) -> None:
        changed = self._ledger.touched.since(ranking.seen)
        if changed is None:
            ranking.clear(self._places)
            changed = [node.name for node in self._nodes]
            ranking.scale.keep(changed)
        for name in changed:
            ranking.look(name, self._node(name))
        ranking.seen = self._ledger.touched.now

    def _tidy(self) -> None:
        """Numbers are kept of nodes that are gone; when they are too many, everything begins anew."""
        if self._ledger.touched.crowded(len(self._places)):
            self._places = NodeNumbers()
            for ranking in self._rankings.values():
                ranking.clear(self._places)

    def _drop_oldest(self) -> None:
        """Make room for one more."""
        idle = [shape for shape, ranking in self._rankings.items() if ranking.waiting is None]
        kept = max(MAX_SHAPES, MAX_RANKED // max(len(self._places), 1))
        for shape in idle[: max(len(idle) + 1 - kept, 0)]:
            del self._rankings[shape]

    def _node(self, name: str) -> Node | None:
        """The node that really has this name."""
        node = self._nodes.resolve(name)
        return node if isinstance(node, Node) and node.name == name else None

    def _turn(self) -> LastAssigned | None:
        """The last card of who came last; where a device plugin chose, or nobody knows which it is, the node's last."""
        devices = self._ledger.devices
        holder = devices.newest()
        if holder is None:
            return None
        keys = [devices.card(holder.node, device) for device in holder.devices]
        cards = [int(key) for key in keys if key.isdecimal()]
        if cards and not devices.unnamed(holder):
            return LastAssigned(holder.node, max(cards), f"GPU {max(cards)} of {holder.node}")
        return LastAssigned(holder.node, MAX_DEVICES, holder.node)
