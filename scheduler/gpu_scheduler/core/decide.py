"""One pod in, one decision out: the file to read first.

LAW: this module reads values and returns a value. Event, condition, log line and metric are all rendered from it. It
changes nothing: the caller assumes the placement with `Ledger.assume`.
"""

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from gpu_scheduler.core.cluster_events import AnyIndexFreed, Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.decision import BY_MAP, Bind, Decision, Refuse, Wait, awaits_placement
from gpu_scheduler.core.filters import gpu_filters, node_filters, quota
from gpu_scheduler.core.filters.environment import environment_complete
from gpu_scheduler.core.filters.volumes import Selection, Volumes
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.namespace_limits import NO_LIMITS, NamespaceLimits
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.count_request import MAX_DEVICES, CountRequest, Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import limit_fits
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Fault, Unschedulable, highest_ranked
from gpu_scheduler.core.refs import WorkloadKey
from gpu_scheduler.core.strategies import diagnosis
from gpu_scheduler.core.strategies.candidates import Candidates
from gpu_scheduler.core.strategies.orderings import Choice


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything that a decision reads in addition to the pod."""

    ledger: Ledger
    nodes: Nodes
    volumes: Volumes
    policy: Policy
    strategy: Strategy = Strategy.LEAST_UTILIZED
    """The default for pods that ask for a count and name no strategy."""
    limits: NamespaceLimits = NO_LIMITS
    candidates: Candidates = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", Candidates(self.ledger, self.nodes, self.policy))

    def limited(self, limits: NamespaceLimits) -> "Cluster":
        """Return a copy with these limits.

        The copy shares `candidates`, so that waiting pods still get their events.
        """
        cluster = replace(self, limits=limits)
        object.__setattr__(cluster, "candidates", self.candidates)
        return cluster


@dataclass(frozen=True, slots=True)
class _NoFit:
    """Why the pod cannot have a line or a node now."""

    unschedulable: Fault
    cured_by: frozenset[ClusterEvent]
    selection: Selection | None = None


class _NodeFindings(NamedTuple):
    """What the node filters say about a node for one pod."""

    failing: tuple[Unschedulable, ...]
    unreachable: Unschedulable | None
    """Why the pod cannot use its volumes there."""
    first: Unschedulable | None
    """The highest ranked of these."""
    selection: Selection | None
    """Volumes that must be made there first."""


class LineObstacles(NamedTuple):
    """All that keeps a pod from a line of its map."""

    of_pod: tuple[Unschedulable, ...]
    """What is wrong with the pod's own text, if it is to have this line."""
    of_devices: tuple[Unschedulable, ...]
    """What keeps it from the devices and the index."""
    of_node: tuple[Unschedulable, ...]
    """What keeps it from the node."""
    of_volumes: Unschedulable | None
    """What keeps its volumes from the node."""
    claim: Hold | None
    """What the pod would hold; None if there is no such node."""


def decide(pod: Pod, cluster: Cluster) -> Decision | None:
    """Decide what to do with `pod`.

    Return None if it needs no placement, or if the ledger already has its placement.
    """
    if not awaits_placement(pod, cluster.policy) or cluster.ledger.holds(pod.ref.uid):
        return None
    fault, line = pod.request.fault, pod.request.line
    if fault is not None:
        return _wait_or_refuse(pod, _NoFit(fault, frozenset()))
    if line is None:
        return _by_strategy(pod, pod.request.count, cluster)
    if line.slot is None:
        return _any_line(pod, line.workload, line.map, cluster)
    line_fit = LineFit(pod, line.workload, cluster, by_field=bool(pod.gpu_limits))
    found = line_fit.at(line.slot)
    return _wait_or_refuse(pod, found) if isinstance(found, _NoFit) else _bind_to_line(pod, found)


def _by_strategy(pod: Pod, request: CountRequest, cluster: Cluster) -> Decision:
    """Bind to the best node that fits and from which the pod's volumes can be reached.

    Otherwise say why no node fits.
    """
    fault = environment_complete(pod, None, by_field=True)
    if fault is not None:
        return _wait_or_refuse(pod, _NoFit(fault, fault.cured_by))
    namespace = pod.ref.namespace
    limit, usage = cluster.limits.of(namespace), cluster.ledger.devices.usage
    over = None if pod.request.observer else quota.too_many(request.count, namespace, limit)
    if over is not None:
        return _wait_or_refuse(pod, _NoFit(over, over.cured_by))
    ranking = cluster.candidates.ranking(pod, request, cluster.strategy)
    short = None if pod.request.observer else quota.too_many_more(request.count, namespace, limit, cluster.ledger)
    choices = ranking.choices() if short is None else ranking.beside(usage.devices_of(namespace))
    unreachable: list[Unschedulable] = []
    for choice in choices:
        placement = _chosen(pod, choice)
        left = None if limit.devices is None else quota.quota_left(assumed_hold(pod, placement), cluster.ledger, limit)
        if left is not None:
            short = short or left
            continue
        found = cluster.volumes.filter(pod, choice.node)
        if found is None:
            reason = ranking.reason(choice, next(choices, None)) + _priority_note(pod, request, cluster)
            return _bind(pod, placement, request.strategy or cluster.strategy, reason)
        if isinstance(found, Selection):
            # The pod's volumes are provisioned for this node. On another node the pod could not use them.
            return _wait(pod, _NoFit(found.unschedulable, found.unschedulable.cured_by, found))
        unreachable.append(found)
    if short is not None and not ranking.permanent:
        return _wait_or_refuse(pod, _NoFit(short, short.cured_by | {cluster.candidates.wait(ranking)}))
    unschedulable = (
        diagnosis.volumes_unreachable(unreachable[0], len(unreachable))
        if unreachable
        else cluster.candidates.unschedulable(ranking)
    )
    # NodeChanged is left out: a node that changes updates the ranking, and the ranking requeues the pod.
    cured_by = {event for each in unreachable for event in each.cured_by if not isinstance(event, NodeChanged)}
    return _wait_or_refuse(pod, _NoFit(unschedulable, frozenset({cluster.candidates.wait(ranking), *cured_by})))


def _priority_note(pod: Pod, request: CountRequest, cluster: Cluster) -> str:
    """Return what to add to the message if the namespace limits the pod's priority, otherwise an empty text."""
    counts = cluster.limits.priority(pod.ref.namespace, request.priority)
    if counts == request.priority or (request.strategy or cluster.strategy) is not Strategy.PRIORITY:
        return ""
    return f"; priority {request.priority} counts as {counts}, the maximum of namespace {pod.ref.namespace}"


def _any_line(pod: Pod, workload: WorkloadKey, placement_map: PlacementMap, cluster: Cluster) -> Decision:
    """Bind to the lowest free line that the pod can have now.

    Otherwise wait, for the reason of the lowest free line.
    """
    ledger = cluster.ledger
    line_fit = LineFit(pod, workload, cluster, by_field=True)
    first: _NoFit | None = None
    cured_by: set[ClusterEvent] = {AnyIndexFreed(workload)}
    kept = ledger.reserved(pod.ref.uid)
    with closing(ledger.indices.free(workload, placement_map)) as free:
        lines = map(placement_map.get, chain(() if kept is None else (kept,), free))
        for slot in filter(None, lines):
            found = line_fit.out_of(slot.node) or line_fit.at(slot)
            if isinstance(found, Placement):
                return _bind_to_line(pod, found)
            first = first or found
            cured_by |= found.cured_by
            if found.selection is not None:
                # The pod's volumes are provisioned for the node of this line. On another node it could not use them.
                return _wait(pod, found, (workload, slot.index))
    if first is None:
        none_left = gpu_filters.no_line_left(workload, placement_map, ledger, cluster.nodes)
        first = _NoFit(none_left, none_left.cured_by)
    reserve = None if kept is None else (workload, kept)
    return _wait(pod, _NoFit(first.unschedulable, first.cured_by | cured_by), reserve)


class LineFit:
    """Checks lines of the map for one pod. Each node is checked once, even if many lines name it."""

    def __init__(self, pod: Pod, workload: WorkloadKey, cluster: Cluster, *, by_field: bool) -> None:
        """Check nothing yet. `by_field`: the containers read the devices from our annotation."""
        self._pod = pod
        self._workload = workload
        self._cluster = cluster
        self._by_field = by_field
        self._nodes: dict[str, _NodeFindings] = {}
        self._out: dict[str, _NoFit] = {}

    def out_of(self, name: str) -> _NoFit | None:
        """Return the failure of an earlier line that excludes all lines of this node, if any.

        `name` is the map's name for it.
        """
        return self._out.get(name)

    def at(self, slot: Slot) -> Placement | _NoFit:
        """Return the placement that the line gives the pod, or the highest ranked of all that is in the way."""
        pod, node = self._pod, self._cluster.nodes.resolve(slot.node)
        if isinstance(node, Unschedulable):
            fault = highest_ranked((*self._faults(slot, slot.value), node))
            return _NoFit(fault or node, node.cured_by)
        placement = _placement(pod, node, slot.devices, slot.index)
        _, _, of_node, selection = self._node(node)
        found = highest_ranked((*self._faults(slot, placement.value), *self._devices(placement, slot, node), of_node))
        if of_node is not None:
            self._out[slot.node] = _no_fit(of_node, slot, node)
        if found is not None:
            return _no_fit(found, slot, node)
        return placement if selection is None else _no_fit(selection.unschedulable, slot, node, selection)

    def obstacles(self, slot: Slot) -> LineObstacles:
        """Return all that is in the way where `at` returns the highest ranked."""
        node = self._cluster.nodes.resolve(slot.node)
        if isinstance(node, Unschedulable):
            return LineObstacles(_found(self._faults(slot, slot.value)), (), (node,), None, None)
        placement = _placement(self._pod, node, slot.devices, slot.index)
        failing, unreachable, _, selection = self._node(node)
        return LineObstacles(
            _found(self._faults(slot, placement.value)),
            _found(self._devices(placement, slot, node)),
            failing,
            unreachable if selection is None else selection.unschedulable,
            assumed_hold(self._pod, placement),
        )

    def _faults(self, slot: Slot, value: str) -> tuple[Unschedulable | None, ...]:
        """Return what is wrong with the pod itself: its limit of devices, and the environment of its containers."""
        pod = self._pod
        return limit_fits(pod.gpu_limits, slot), environment_complete(pod, value, by_field=self._by_field)

    def _devices(self, placement: Placement, slot: Slot, node: Node) -> tuple[Unschedulable | None, ...]:
        """Return what each device filter says."""
        pod, ledger, nodes = self._pod, self._cluster.ledger, self._cluster.nodes
        claim = assumed_hold(pod, placement)
        plugin = node.advertised is not None and claim.limit > 0
        limit = self._cluster.limits.of(pod.ref.namespace)
        return (
            None if plugin else gpu_filters.devices_exist((*slot.devices, *pod.request.kept), node),
            quota.within_limit(claim, ledger, limit) or quota.quota_left(claim, ledger, limit),
            gpu_filters.index_free(self._workload, slot.index, ledger, nodes),
            None if plugin else gpu_filters.gpu_free(claim, ledger, nodes, self._cluster.policy),
            gpu_filters.gpu_in_service((*slot.devices, *pod.request.kept), node, plugin_chooses=plugin),
            gpu_filters.gpu_healthy(claim, node),
            gpu_filters.plugin_apart(claim, node, ledger),
            gpu_filters.plugin_devices_left(pod, node, nodes, ledger.used_resources),
        )

    def _node(self, node: Node) -> _NodeFindings:
        """Run the node filters, once for each node."""
        if node.name not in self._nodes:
            volumes = self._cluster.volumes.filter(self._pod, node)
            selection = volumes if isinstance(volumes, Selection) else None
            unreachable = volumes if isinstance(volumes, Unschedulable) else None
            failing = _found(node_filters.failures(self._pod, node, self._cluster.ledger.used_resources))
            first = highest_ranked((*failing, unreachable))
            self._nodes[node.name] = _NodeFindings(failing, unreachable, first, selection)
        return self._nodes[node.name]


def _found(answers: Iterable[Unschedulable | None]) -> tuple[Unschedulable, ...]:
    """Return what is in the way, without the answers of filters that pass."""
    return tuple([each for each in answers if each is not None])


def _no_fit(unschedulable: Unschedulable, slot: Slot, node: Node, selection: Selection | None = None) -> _NoFit:
    """Return why a line does not fit. A change of what its name for the node means requeues the pod too."""
    asked = {NodeChanged(name, Aspect.IDENTITY) for name in (slot.node, node.name)}
    return _NoFit(unschedulable, unschedulable.cured_by | asked, selection)


def _placement(pod: Pod, node: Node, devices: tuple[str, ...], index: int | None) -> Placement:
    """Return the placement of `pod` on `node`. If a device plugin chooses the devices, they are numbered from 0.

    The container sees only the devices that the plugin gives it, and CUDA numbers these from 0.
    """
    if node.advertised is not None and pod.gpu_limits:
        # A filter refuses a limit that is too large. The bound here keeps such a limit from filling the memory.
        return Placement(node.name, tuple(map(str, range(min(pod.gpu_limit, MAX_DEVICES)))), index)
    return Placement(node.name, devices, index, None if node.inventory is None else node.inventory.uuids(devices))


def _chosen(pod: Pod, choice: Choice) -> Placement:
    """Return the placement of a choice. Devices are sorted by index, so that CUDA numbers them in the node's order."""
    devices = map(str, sorted(device.index for device in choice.devices))
    return _placement(pod, choice.node, tuple(devices), None)


def _bind_to_line(pod: Pod, placement: Placement) -> Bind:
    return _bind(pod, placement, BY_MAP, f"index {placement.index}")


def _bind(pod: Pod, placement: Placement, strategy: str, reason: str) -> Bind:
    """Return a Bind. Its message has the words of kube-scheduler's event, then the devices and how they were chosen."""
    devices = {0: "no GPU", 1: f"GPU {placement.value}"}.get(len(placement.devices), f"GPUs {placement.value}")
    how = reason if strategy == BY_MAP else f"{strategy}: {reason}"
    message = f"Successfully assigned {pod.ref} to {placement.node} with {devices} ({how})"
    return Bind(pod.ref, placement, message, strategy, reason)


def _wait_or_refuse(pod: Pod, blocked: _NoFit) -> Wait | Refuse:
    """Refuse if the pod's own text is at fault, otherwise wait."""
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
