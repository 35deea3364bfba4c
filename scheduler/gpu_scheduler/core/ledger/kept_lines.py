"""The lines that are kept for a workload whose pods start together: those that none of its pods has yet, or any more.

LAW: everything is derived from the workload's bound and assumed pods, and from the nodes. Nobody else gets the devices
of a kept line. With the last of these pods, no line is kept any more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from gpu_scheduler.core.cluster_events import NO_EVENTS, ClusterEvent, WorkloadStarted
from gpu_scheduler.core.ledger.devices import Devices
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot
from gpu_scheduler.core.refs import PodRef, WorkloadKey


@dataclass(slots=True)
class _Workload:
    """A workload that has started together, while one of its pods is bound or assumed."""

    map: PlacementMap
    indices: dict[str, int] = field(default_factory=dict)
    """The indices of its bound and assumed pods, by uid."""
    taken: Counter[int] = field(default_factory=Counter)
    """How many of these pods have an index."""
    kept: dict[int, Hold] = field(default_factory=dict)
    """What it keeps, by index. A line whose node does not exist keeps nothing."""


class KeptLines:
    """The kept lines of all workloads that start together."""

    __slots__ = ("_by_name", "_devices", "_generations", "_nodes", "_of", "_workloads")

    def __init__(self, devices: Devices, generations: NodeGenerations) -> None:
        """Start empty. What is kept is recorded in `devices`, and its nodes are marked in `generations`."""
        self._devices = devices
        self._generations = generations
        self._of: dict[str, WorkloadKey] = {}
        """The workload of each recorded pod, by uid."""
        self._workloads: dict[WorkloadKey, _Workload] = {}
        self._nodes = Nodes()
        """The nodes by their names alone: what else changes of a node does not move a line."""
        self._by_name: dict[str, dict[WorkloadKey, None]] = {}
        """By a name of a node: the workloads whose maps have that name."""

    def started(self, workload: WorkloadKey) -> bool:
        """Whether a pod of the workload is bound or assumed, so that the others do not wait for each other any more."""
        return workload in self._workloads

    def put(self, workload: WorkloadKey, placement_map: PlacementMap, uid: str, index: int) -> frozenset[ClusterEvent]:
        """Record a bound or assumed pod, after `drop`. With the first of its workload, all other lines are kept.

        Return the cluster events of the start, and of what became free: the pod need not be where its line is now.
        """
        found = self._workloads.get(workload)
        lines: tuple[Slot, ...] = ()
        started: frozenset[ClusterEvent] = NO_EVENTS
        if found is None:
            started = frozenset({WorkloadStarted(workload)})
            found = self._workloads[workload] = _Workload(placement_map)
            lines = placement_map.slots
            for slot in lines:
                self._by_name.setdefault(slot.node, {})[workload] = None
        self._of[uid] = workload
        found.indices[uid] = index
        found.taken[index] += 1
        return started | self._update_all(workload, found, lines or _slots(found.map, index))

    def drop(self, uid: str) -> frozenset[ClusterEvent]:
        """Remove a pod. With the last one no line is kept any more. Return the cluster events of what became free."""
        workload = self._of.pop(uid, None)
        if workload is None:
            return NO_EVENTS
        found = self._workloads[workload]
        index = found.indices.pop(uid)
        found.taken[index] -= 1
        freed = self._update_all(workload, found, _slots(found.map, index) if found.indices else found.map.slots)
        if not found.indices:
            del self._workloads[workload]
            for name in {slot.node for slot in found.map.slots}:
                named = self._by_name[name]
                del named[workload]
                if not named:
                    del self._by_name[name]
        return freed

    def apply_node(self, node: Node) -> frozenset[ClusterEvent]:
        """Store the node's names. Return the cluster events of lines that are not kept there any more."""
        before = self._named(node.name)
        if before is not None and before.alias == node.alias:
            return NO_EVENTS
        named = Node(node.name, alias=node.alias)
        self._nodes.apply(named)
        return self._move(before, named)

    def forget_node(self, name: str) -> frozenset[ClusterEvent]:
        """Remove the node. Return the cluster events of the lines that were kept there."""
        before = self._named(name)
        self._nodes.forget(name)
        return self._move(before)

    def __iter__(self) -> Iterator[Hold]:
        """Iterate over all kept lines."""
        return (kept for found in self._workloads.values() for kept in found.kept.values())

    def entries(self) -> Iterator[tuple[object, object]]:
        """List the entries of this moment as pairs of key and value, also if they are read after later changes."""
        workloads = [(key, {**found.indices}, {**found.kept}) for key, found in self._workloads.items()]
        return chain(
            ((("together", workload), frozenset(indices.items())) for workload, indices, _ in workloads),
            (
                (("kept", workload, index), (kept.node, kept.devices))
                for workload, _, lines in workloads
                for index, kept in lines.items()
            ),
        )

    def _named(self, name: str) -> Node | None:
        """Return the node with this real name."""
        node = self._nodes.resolve(name)
        return node if isinstance(node, Node) and node.name == name else None

    def _move(self, *views: Node | None) -> frozenset[ClusterEvent]:
        """Keep the lines where their names for a node lead now. `views` are the node before and after."""
        called = {name for view in filter(None, views) for name in (view.name, view.alias) if name is not None}
        freed = NO_EVENTS
        for name in called:
            for workload in self._by_name.get(name, ()):
                found = self._workloads[workload]
                freed |= self._update_all(workload, found, [slot for slot in found.map.slots if slot.node == name])
        return freed

    def _resolve(self, name: str) -> str | None:
        """Return the real name of the node that a map calls `name`; None unless there is exactly one."""
        node = self._nodes.resolve(name)
        return node.name if isinstance(node, Node) else None

    def _update_all(self, workload: WorkloadKey, found: _Workload, slots: Iterable[Slot]) -> frozenset[ClusterEvent]:
        return NO_EVENTS.union(*(self._update(workload, found, slot) for slot in slots))

    def _update(self, workload: WorkloadKey, found: _Workload, slot: Slot) -> frozenset[ClusterEvent]:
        """Keep the line, or keep it no longer. Return the cluster events of what became free."""
        before = found.kept.get(slot.index)
        node = self._resolve(slot.node) if found.indices and not found.taken[slot.index] else None
        if before is not None and before.node == node:
            return NO_EVENTS
        events = NO_EVENTS
        if before is not None:
            del found.kept[slot.index]
            events = self._devices.drop(before)
            self._generations.mark(before.node)
        if node is not None:
            self._generations.mark(node)
            kept = found.kept[slot.index] = _kept(workload, slot, node)
            self._devices.put(kept)
        return events


def _slots(placement_map: PlacementMap, index: int) -> tuple[Slot, ...]:
    slot = placement_map.get(index)
    return () if slot is None else (slot,)


def _kept(workload: WorkloadKey, slot: Slot, node: str) -> Hold:
    """Return the hold of a line that no pod has. Its name is that of the workload's controller."""
    # Kind and name of an owner may have any character, so no character separates them.
    uid = repr((workload.namespace, workload.owner_kind, workload.owner_name, workload.map, slot.index))
    return Hold(
        PodRef(workload.namespace, workload.owner_name, uid),
        node,
        slot.devices,
        slot.devices,
        0,
        workload,
        slot.index,
        sharing_any=False,
        deleting_since=None,
        assumed=False,
        kept=True,
    )
