"""Whether a pod can have a line of its map, and all that is in the way.

LAW: a line is checked by the same filters for a decision, for an explanation and for a proposed line.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from gpu_scheduler.core.claim_allocation import claims_allocatable
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.filters import gpu_filters, node_filters, quota
from gpu_scheduler.core.filters.environment import environment_complete
from gpu_scheduler.core.filters.volumes import Selection
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import MAX_DEVICES
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import limit_fits
from gpu_scheduler.core.reasons import Fault, Reason, Unschedulable, highest_ranked
from gpu_scheduler.core.refs import WorkloadKey

_OF_THE_MOMENT: Final = frozenset({Reason.QUOTA_EXCEEDED, Reason.INDEX_HELD})
"""The reasons that do not depend on the line's node alone."""


@immutable
class NoFit:
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
    candidate: Hold | None
    """What the pod would hold; None if there is no such node."""


class LineFit:
    """Checks lines of the map for one pod. Each node is checked once, even if many lines name it."""

    def __init__(self, pod: Pod, workload: WorkloadKey, cluster: Cluster, *, by_field: bool) -> None:
        """Check nothing yet. `by_field`: the containers read the devices from our annotation."""
        self._pod = pod
        self._workload = workload
        self._cluster = cluster
        self._by_field = by_field
        self._nodes: dict[str, _NodeFindings] = {}
        self._out: dict[str, NoFit] = {}

    def out_of(self, name: str) -> NoFit | None:
        """Return the failure of an earlier line that excludes all lines of this node, if any.

        `name` is the map's name for it.
        """
        return self._out.get(name)

    def at(self, slot: Slot) -> Placement | NoFit:
        """Return the placement that the line gives the pod, or the highest ranked of all that is in the way."""
        pod, node = self._pod, self._cluster.nodes.resolve(slot.node)
        if isinstance(node, Unschedulable):
            fault = highest_ranked((*self._faults(slot, slot.value), node))
            return NoFit(fault or node, node.cured_by)
        placement = placement_on(pod, node, slot.devices, slot.index)
        _, _, of_node, selection = self._node(node)
        found = highest_ranked((*self._faults(slot, placement.value), *self._devices(placement, slot, node), of_node))
        if of_node is not None:
            self._out[slot.node] = _no_fit(of_node, slot, node)
        if found is not None:
            return _no_fit(found, slot, node)
        return placement if selection is None else _no_fit(selection.unschedulable, slot, node, selection)

    def asks(self, slot: Slot) -> tuple[int, int] | None:
        """Return what the pod would ask of its namespace's limit if it can have the line; otherwise None.

        That limit, the pod's volumes, and who has the index are not checked. The text of a held GPU is not made.
        """
        pod, cluster = self._pod, self._cluster
        node = cluster.nodes.find(slot.node)
        if node is None or self._node(node).failing:
            return None
        placement = placement_on(pod, node, slot.devices, slot.index)
        candidate = assumed_hold(pod, placement)
        if not self._by_plugin(candidate, node) and gpu_filters.blocking_holds(
            candidate, cluster.ledger, cluster.nodes, cluster.policy
        ):
            return None
        found = (*self._faults(slot, placement.value), *self._devices(placement, slot, node))
        if any(each is not None and each.reason not in _OF_THE_MOMENT for each in found):
            return None
        return cluster.ledger.devices.asks(candidate)

    def of_another_pod(self, slot: Slot, node: Node) -> Unschedulable | None:
        """Return the highest ranked that keeps another pod of the workload from the line, which is on this node.

        What is known of that pod is this one, except for its environment and its volumes.
        """
        placement = placement_on(self._pod, node, slot.devices, slot.index)
        found = highest_ranked((*self._devices(placement, slot, node), *self._node(node).failing))
        return None if found is None else replace(found, cured_by=_no_fit(found, slot, node).cured_by)

    def obstacles(self, slot: Slot) -> LineObstacles:
        """Return all that is in the way where `at` returns the highest ranked."""
        node = self._cluster.nodes.resolve(slot.node)
        if isinstance(node, Unschedulable):
            return LineObstacles(_found(self._faults(slot, slot.value)), (), (node,), None, None)
        placement = placement_on(self._pod, node, slot.devices, slot.index)
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
        candidate = assumed_hold(pod, placement)
        plugin = self._by_plugin(candidate, node)
        limit = self._cluster.limits.of(pod.ref.namespace)
        return (
            None if plugin else gpu_filters.devices_exist((*slot.devices, *pod.request.kept), node),
            claims_allocatable(pod, placement, node, self._cluster),
            quota.within_limit(candidate, ledger, limit) or quota.quota_left(candidate, ledger, limit),
            gpu_filters.index_free(self._workload, slot.index, ledger, nodes),
            None if plugin else gpu_filters.gpu_free(candidate, ledger, nodes, self._cluster.policy),
            gpu_filters.gpu_in_service((*slot.devices, *pod.request.kept), node, plugin_chooses=plugin),
            gpu_filters.gpu_healthy(candidate, node),
            gpu_filters.plugin_apart(candidate, node, ledger),
            gpu_filters.plugin_devices_left(pod, node, nodes, ledger.used_resources),
        )

    @staticmethod
    def _by_plugin(candidate: Hold, node: Node) -> bool:
        """Whether a device plugin chooses the devices."""
        return node.advertised is not None and candidate.limit > 0

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


def _no_fit(unschedulable: Unschedulable, slot: Slot, node: Node, selection: Selection | None = None) -> NoFit:
    """Return why a line does not fit. A change of what its name for the node means requeues the pod too."""
    asked = {NodeChanged(name, Aspect.IDENTITY) for name in (slot.node, node.name)}
    return NoFit(unschedulable, unschedulable.cured_by | asked, selection)


def placement_on(pod: Pod, node: Node, devices: tuple[str, ...], index: int | None) -> Placement:
    """Return the placement of `pod` on `node`. If a device plugin chooses the devices, they are numbered from 0.

    The container sees only the devices that the plugin gives it, and CUDA numbers these from 0. If the pod has
    ResourceClaims, it sees only the devices of these, and CUDA finds them by their UUIDs.
    """
    if node.advertised is not None and pod.gpu_limits:
        # A filter refuses a limit that is too large. The bound here keeps such a limit from filling the memory.
        return Placement(node.name, tuple(map(str, range(min(pod.gpu_limit, MAX_DEVICES)))), index)
    uuids = None if node.inventory is None else node.inventory.uuids(devices)
    if pod.isolated and uuids is not None:
        devices = uuids
    line = pod.request.line if pod.request.together else None
    return Placement(node.name, devices, index, uuids, "" if line is None else line.workload.map)
