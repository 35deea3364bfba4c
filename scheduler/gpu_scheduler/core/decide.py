"""One pod in, one decision out: the heart of the scheduler, and the file to read first.

LAW: reads values and answers with a value that explains itself; event, condition, log line and metric are all rendered
from it. Nothing is changed here: who asked books the placement with `Ledger.assume`.
"""

from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain

from gpu_scheduler.core.cluster_events import AnyIndexFreed, Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.decision import Bind, Decision, Refuse, Wait, awaits_placement
from gpu_scheduler.core.filters import gpu_filters, node_filters, quota
from gpu_scheduler.core.filters.environment import environment_complete
from gpu_scheduler.core.filters.volumes import Selection, Volumes
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.namespace_limits import NO_LIMITS, NamespaceLimits
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.count_request import MAX_DEVICES, CountRequest, Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import limit_fits
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Fault, Unschedulable
from gpu_scheduler.core.refs import WorkloadKey
from gpu_scheduler.core.strategies import diagnosis
from gpu_scheduler.core.strategies.candidates import Candidates
from gpu_scheduler.core.strategies.orderings import Choice


@dataclass(frozen=True, slots=True)
class Cluster:
    """All that a decision reads beside the pod."""

    ledger: Ledger
    nodes: Nodes
    volumes: Volumes
    policy: Policy
    strategy: Strategy = Strategy.LEAST_UTILIZED
    """Of pods that ask for a count and name none."""
    limits: NamespaceLimits = NO_LIMITS
    candidates: Candidates = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", Candidates(self.ledger, self.nodes, self.policy))

    def limited(self, limits: NamespaceLimits) -> "Cluster":
        """The same under these limits; who waits for GPUs still hears of them."""
        cluster = replace(self, limits=limits)
        object.__setattr__(cluster, "candidates", self.candidates)
        return cluster


@dataclass(frozen=True, slots=True)
class _NoFit:
    """A line that the pod cannot have now."""

    unschedulable: Fault
    cured_by: frozenset[ClusterEvent]
    selection: Selection | None = None


def decide(pod: Pod, cluster: Cluster) -> Decision | None:
    """What to do with `pod`; None when there is nothing to decide: it awaits no placement, or its bind is under way."""
    if not awaits_placement(pod, cluster.policy) or cluster.ledger.holds(pod.ref.uid):
        return None
    fault, line = pod.request.fault, pod.request.line
    if fault is not None:
        return _put_off(pod, _NoFit(fault, frozenset()))
    if line is None:
        return _by_strategy(pod, pod.request.count, cluster)
    if line.slot is None:
        return _any_line(pod, line.workload, line.map, cluster)
    look = _LineFit(pod, line.workload, cluster, by_field=bool(pod.gpu_limits))
    found = look.at(line.slot)
    return _put_off(pod, found) if isinstance(found, _NoFit) else _bind(pod, found, f"index {found.index}")


def _by_strategy(pod: Pod, request: CountRequest, cluster: Cluster) -> Decision:
    """The best of the nodes that fit, as far as the pod's volumes can be reached from there; else why there is none."""
    fault = environment_complete(pod, None, by_field=True)
    if fault is not None:
        return _put_off(pod, _NoFit(fault, fault.cured_by))
    namespace = pod.ref.namespace
    limit, usage = cluster.limits.of(namespace), cluster.ledger.devices.usage
    over = None if pod.request.observer else quota.too_many(request.count, namespace, limit)
    if over is not None:
        return _put_off(pod, _NoFit(over, over.cured_by))
    ranking = cluster.candidates.ranking(pod, request, cluster.strategy)
    short = None if pod.request.observer else quota.too_many_more(request.count, namespace, limit, cluster.ledger)
    choices = ranking.choices() if short is None else ranking.beside(usage.cards(namespace))
    barred: list[Unschedulable] = []
    for choice in choices:
        placement = _chosen(pod, choice)
        left = None if limit.devices is None else quota.quota_left(assumed_hold(pod, placement), cluster.ledger, limit)
        if left is not None:
            short = short or left
            continue
        found = cluster.volumes.look(pod, choice.node)
        if found is None:
            how = f"{request.strategy or cluster.strategy}: {ranking.reason(choice, next(choices, None))}"
            return _bind(pod, placement, how + _bounded(pod, request, cluster))
        if isinstance(found, Selection):
            # Its volumes are made for this node: who takes another would leave them behind.
            return _wait(pod, _NoFit(found.unschedulable, found.unschedulable.cured_by, found))
        barred.append(found)
    if short is not None and not ranking.lacks_for_good:
        return _put_off(pod, _NoFit(short, short.cured_by | {cluster.candidates.wait(ranking)}))
    unschedulable = cluster.candidates.shortfall(ranking) if not barred else diagnosis.barred(barred[0], len(barred))
    # What storage asks of a node is news about the ranking.
    cured_by = {wake for each in barred for wake in each.cured_by if not isinstance(wake, NodeChanged)}
    return _put_off(pod, _NoFit(unschedulable, frozenset({cluster.candidates.wait(ranking), *cured_by})))


def _bounded(pod: Pod, request: CountRequest, cluster: Cluster) -> str:
    """What to add where the pod's priority counts for less than it says."""
    counts = cluster.limits.priority(pod.ref.namespace, request.priority)
    if counts == request.priority or (request.strategy or cluster.strategy) is not Strategy.PRIORITY:
        return ""
    return f"; priority {request.priority} counts as {counts}, the maximum of namespace {pod.ref.namespace}"


def _any_line(pod: Pod, workload: WorkloadKey, placement_map: PlacementMap, cluster: Cluster) -> Decision:
    """The lowest line that nobody has and that can be had now; else what is in the way of the lowest."""
    ledger = cluster.ledger
    look = _LineFit(pod, workload, cluster, by_field=True)
    first: _NoFit | None = None
    cured_by: set[ClusterEvent] = {AnyIndexFreed(workload)}
    kept = ledger.reserved(pod.ref.uid)
    with closing(ledger.indices.free(workload, placement_map)) as free:
        lines = map(placement_map.get, chain(() if kept is None else (kept,), free))
        for slot in filter(None, lines):
            found = look.out_of(slot.node) or look.at(slot)
            if isinstance(found, Placement):
                return _bind(pod, found, f"index {found.index}")
            first = first or found
            cured_by |= found.cured_by
            if found.selection is not None:
                # Its volumes are made for this line: who takes another would leave them behind.
                return _wait(pod, found, (workload, slot.index))
    if first is None:
        none_left = gpu_filters.no_line_left(workload, placement_map, ledger, cluster.nodes)
        first = _NoFit(none_left, none_left.cured_by)
    reserve = None if kept is None else (workload, kept)
    return _wait(pod, _NoFit(first.unschedulable, first.cured_by | cured_by), reserve)


class _LineFit:
    """One pod's look at lines; what it asks of a node is asked once, however many lines name the node."""

    def __init__(self, pod: Pod, workload: WorkloadKey, cluster: Cluster, *, by_field: bool) -> None:
        self._pod = pod
        self._workload = workload
        self._cluster = cluster
        self._by_field = by_field
        self._nodes: dict[str, Unschedulable | Selection | None] = {}
        self._out: dict[str, _NoFit] = {}

    def out_of(self, name: str) -> _NoFit | None:
        """What an earlier line met that no line of this node (by the map's name for it) can pass."""
        return self._out.get(name)

    def at(self, slot: Slot) -> Placement | _NoFit:
        """The place that the line gives the pod, or what is in the way."""
        pod, node = self._pod, self._cluster.nodes.resolve(slot.node)
        if isinstance(node, Unschedulable):
            # The pod's own faults first: their cure is a new pod, and that can be had before the node is there.
            fault = limit_fits(pod.gpu_limits, slot) or environment_complete(pod, slot.value, by_field=self._by_field)
            return _NoFit(fault or node, node.cured_by)
        placement = _placement(pod, node, slot.devices, slot.index)
        found = (
            limit_fits(pod.gpu_limits, slot)
            or environment_complete(pod, placement.value, by_field=self._by_field)
            or self._cards(placement, slot, node)
            or self._node(node)
        )
        if found is None:
            return placement
        unschedulable = found.unschedulable if isinstance(found, Selection) else found
        asked = {NodeChanged(name, Aspect.IDENTITY) for name in (slot.node, node.name)}
        blocked = _NoFit(unschedulable, unschedulable.cured_by | asked, found if isinstance(found, Selection) else None)
        if found is self._nodes.get(node.name):
            self._out[slot.node] = blocked
        return blocked

    def _cards(self, placement: Placement, slot: Slot, node: Node) -> Unschedulable | None:
        """Who holds it before what ails the node: of a dead node, the pod that still ends there is the better story."""
        pod, ledger, nodes = self._pod, self._cluster.ledger, self._cluster.nodes
        claim = assumed_hold(pod, placement)
        plugin = node.advertised is not None and claim.limit > 0
        limit = self._cluster.limits.of(pod.ref.namespace)
        return (
            (None if plugin else gpu_filters.cards_exist((*slot.devices, *pod.request.kept), node))
            or quota.within_limit(claim, ledger, limit)
            or gpu_filters.index_free(self._workload, slot.index, ledger, nodes)
            or quota.quota_left(claim, ledger, limit)
            or (None if plugin else gpu_filters.gpu_free(claim, ledger, nodes, self._cluster.policy))
            or gpu_filters.gpu_healthy(claim, node)
            or gpu_filters.plugin_apart(claim, node, ledger)
            or gpu_filters.cards_left(pod, node, nodes, ledger.occupancy)
        )

    def _node(self, node: Node) -> Unschedulable | Selection | None:
        if node.name not in self._nodes:
            pod, occupancy = self._pod, self._cluster.ledger.occupancy
            self._nodes[node.name] = (
                node_filters.node_usable(pod, node)
                or node_filters.taints_tolerated(pod, node)
                or node_filters.node_selected(pod, node)
                or node_filters.room_left(pod, node, occupancy)
                or node_filters.ports_free(pod, node, occupancy)
                or self._cluster.volumes.look(pod, node)
            )
        return self._nodes[node.name]


def _placement(pod: Pod, node: Node, devices: tuple[str, ...], index: int | None) -> Placement:
    """These devices there; where a device plugin chooses the cards, they are numbered from the container."""
    if node.advertised is not None and pod.gpu_limits:
        # A limit beyond all cards is refused by another question; here it must not fill the memory.
        return Placement(node.name, tuple(map(str, range(min(pod.gpu_limit, MAX_DEVICES)))), index)
    return Placement(node.name, devices, index, None if node.inventory is None else node.inventory.uuids(devices))


def _chosen(pod: Pod, choice: Choice) -> Placement:
    """CUDA is to number the cards as their node does."""
    devices = map(str, sorted(card.index for card in choice.cards))
    return _placement(pod, choice.node, tuple(devices), None)


def _bind(pod: Pod, placement: Placement, how: str) -> Bind:
    """As Kubernetes says it, and what Kubernetes does not know."""
    devices = {0: "no GPU", 1: f"GPU {placement.value}"}.get(len(placement.devices), f"GPUs {placement.value}")
    return Bind(pod.ref, placement, f"Successfully assigned {pod.ref} to {placement.node} with {devices} ({how})")


def _put_off(pod: Pod, blocked: _NoFit) -> Wait | Refuse:
    """Refuse for a fault of the pod's text, else wait."""
    unschedulable = blocked.unschedulable
    if unschedulable.reason in REFUSED_AT_ADMISSION:
        return Refuse(pod.ref, unschedulable.reason, unschedulable.message, unschedulable.topic)
    return _wait(pod, blocked)


def _wait(pod: Pod, blocked: _NoFit, reserve: tuple[WorkloadKey, int] | None = None) -> Wait:
    unschedulable = blocked.unschedulable
    return Wait(
        pod.ref,
        unschedulable.reason,
        unschedulable.message,
        blocked.cured_by,
        unschedulable.topic,
        blocked.selection,
        reserve,
    )
