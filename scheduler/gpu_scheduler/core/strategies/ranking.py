"""The nodes that fit pods of one equivalence class, in the order of their strategy, and why all others fail.

LAW: only a node that changed is filtered, and the best node is found without reading the others. The alternative, to
keep the fits and take the minimum over all nodes for each decision, costs 16 times as much at 5,000 nodes
(docs/performance.md).
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple
from weakref import ReferenceType, ref

from gpu_scheduler.core.cluster_events import ClassChanged
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.reasons import RankedReason, is_permanent
from gpu_scheduler.core.strategies.class_filter import ClassFilter
from gpu_scheduler.core.strategies.device_fit import DeviceFit
from gpu_scheduler.core.strategies.diagnosis import Diagnosis
from gpu_scheduler.core.strategies.orderings import ORDERINGS, Choice, FreeDevice, LastAssigned
from gpu_scheduler.core.text import natural

_Key = tuple[int | str, ...]


class _RankedNode(NamedTuple):
    """A node that fits, and its sort key."""

    key: _Key
    fit: DeviceFit
    choice: Choice


class Ranking:
    """The ranking of one class.

    It starts without nodes: `update` must be called for every node, and again for each change.
    """

    __slots__ = (
        "_any_change",
        "_event",
        "_newly_fits",
        "_nodes",
        "_order",
        "_ordering",
        "_reported",
        "class_filter",
        "diagnosis",
        "equivalence_class",
        "generation",
        "last_assigned",
    )

    def __init__(self, class_filter: ClassFilter, *, any_change: bool = False) -> None:
        """Start without nodes. `any_change`: each change of a node that fits requeues the pods that wait."""
        self._any_change = any_change
        self.equivalence_class = class_filter.equivalence_class
        self.class_filter = class_filter
        self.last_assigned: LastAssigned | None = None
        """The device after which round robin continues."""
        self._ordering = ORDERINGS[self.equivalence_class.of_devices.strategy]
        self._event: ReferenceType[ClassChanged] | None = None
        self._reported: RankedReason | None = None
        """Why no node fitted when the first pod began to wait; None if a node fitted."""
        self._newly_fits = False
        """Whether a node began to fit since then."""
        self.clear()

    def clear(self) -> None:
        """Remove all nodes."""
        self.generation = -1
        """The number of the last change that the ranking includes."""
        self._nodes: dict[str, _RankedNode] = {}
        self._order: list[_Key] = []
        self.diagnosis = Diagnosis()

    @property
    def round_robin(self) -> bool:
        """Whether the order depends on the device that was assigned last."""
        return self._ordering.reported is None

    def update(self, name: str, node: Node | None) -> None:
        """Filter the node again and store its position; None if it is gone."""
        before = self._nodes.pop(name, None)
        if before is not None:
            del self._order[bisect_left(self._order, before.key)]
        if node is None:
            self.class_filter.forget(name)
            self.diagnosis.forget(name)
            return
        fit, failure = self.class_filter.filter(node)
        if failure is None:
            ranked = self._nodes[name] = self._ranked(fit)
            insort(self._order, ranked.key)
            # A node with new labels counts as well: labels decide which volumes it can reach, and a ranking does not
            # check volumes, because they differ from pod to pod.
            self._newly_fits |= before is None or self._any_change or _relabelled(before.fit.node, node)
        self.diagnosis.put(name, failure)

    def choices(self) -> Iterator[Choice]:
        """Return what a pod could have, the best choice first."""
        if self.last_assigned is not None:
            return self._after_last(self.last_assigned)
        return (self._nodes[str(key[-1])].choice for key in self._order)

    def beside(self, devices: Mapping[str, Collection[int]]) -> Iterator[Choice]:
        """Yield what a pod could have on the nodes of `devices`, the best node first.

        `devices` come before the node's others.
        """
        if self.class_filter.devices.exclusive:
            return
        nodes = [self._nodes[name] for name in devices if name in self._nodes]
        for _, fit, _ in sorted(nodes, key=attrgetter("key")):
            first = devices[fit.node.name]
            yield self._choice(fit, sorted(fit.devices, key=lambda device: device.index not in first))

    def reason(self, choice: Choice, next_best: Choice | None) -> str:
        """Return, as text for people, why this choice comes before the next."""
        return self._ordering.reason(choice, next_best, self.last_assigned)

    @property
    def permanent(self) -> bool:
        """Whether no node fits, and waiting for other pods to end is no remedy."""
        return not self._order and is_permanent(self.diagnosis.reason())

    def wait(self) -> ClassChanged:
        """Return the event that requeues the pods that wait.

        A pod that joins them does not reset what `pop_change` compares with.
        """
        event = self.waiting
        if event is None:
            event = ClassChanged(self.equivalence_class)
            self._event, self._reported, self._newly_fits = ref(event), self._reason(), False
        return event

    @property
    def waiting(self) -> ClassChanged | None:
        """Return the event that requeues the pods that wait; None if no pod waits."""
        return None if self._event is None else self._event()

    def pop_change(self) -> bool:
        """Whether the waiting pods must be requeued: a node fits, or the reason has changed.

        True once for each `wait`.
        """
        if not self._newly_fits and self._reason() == self._reported:
            return False
        self._event = None
        return True

    def _reason(self) -> RankedReason | None:
        return None if self._order else self.diagnosis.reason()

    def _ranked(self, fit: DeviceFit) -> _RankedNode:
        choice, name = self._choice(fit, fit.devices), fit.node.name
        return _RankedNode((*self._ordering.score(choice), natural(name), name), fit, choice)

    def _choice(self, fit: DeviceFit, devices: Sequence[FreeDevice]) -> Choice:
        """Return the choice of the first of these devices, as many as the class asks for."""
        chosen = tuple(devices[: self.equivalence_class.gpus])
        return Choice(fit.node, chosen, fit.unheld - sum([not device.holders for device in chosen]), fit.busy)

    def _after_last(self, last: LastAssigned) -> Iterator[Choice]:
        """Yield the choices of round robin.

        Nodes with the fewest degraded devices come first. Among equals, the order starts after the last assigned
        device.
        """
        order, here, first = self._order, (natural(last.node), last.node), 0
        while first < len(order):
            degraded = order[first][0]
            end = bisect_left(order, (int(degraded) + 1,), first)
            at = bisect_left(order, (degraded, *here), first, end)
            wrapped: list[Choice] = []
            if at < end and order[at][1:] == here:
                wrapped.append(self._after(self._nodes[last.node].fit, last.index))
                if all(device.index > last.index for device in wrapped[0].devices):
                    yield wrapped.pop()
            after = bisect_left(order, (degraded, *here, ""), at, end)
            for position in chain(range(after, end), range(first, at)):
                yield self._nodes[str(order[position][-1])].choice
            yield from wrapped
            first = end

    def _after(self, fit: DeviceFit, index: int) -> Choice:
        """Return the node's choice if devices after `index` come first."""
        order = sorted(fit.devices, key=lambda device: (device.degraded, device.index <= index, device.index))
        return self._choice(fit, order)


def _relabelled(before: Node, node: Node) -> bool:
    return before is not node and before.labels != node.labels
