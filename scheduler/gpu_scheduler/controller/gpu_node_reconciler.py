"""Keeps every GPUNode's status at what is the case: which of its cards are taken, by whom, and whether it is ready.

LAW: level-triggered, as workloads.py; the monitor makes the objects and tells of the cards, and goes its own way.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.controller.gpu_node_status import derive_allocations
from gpu_scheduler.controller.reconcile_loop import ReconcileError
from gpu_scheduler.core.ledger.hold import Hold, hold_of
from gpu_scheduler.kube.resource import EventHandlerFuncs

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.controller.gpu_node_status import GpuNode
    from gpu_scheduler.controller.ports import NodeWriter
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod

# On a busy node pods come and go all the time: it is told of at most so often, in seconds.
QUIET = 1.0


class GpuNodeReconciler:
    """Its feeds may be filled at any time; `reconcile` looks at one GPUNode."""

    def __init__(
        self,
        writer: NodeWriter,
        add: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`add` is told the name of every node that is worth a look."""
        self._writer = writer
        self._add = add
        self._clock = clock
        self._wall = wall
        self._told: dict[str, GpuNode] = {}
        self._nodes: dict[str, Node] = {}
        self._holders: dict[str, dict[str, Hold]] = {}
        self._wrote: dict[str, float] = {}
        self.gpu_nodes = EventHandlerFuncs(self._told_applied, self._told_forgotten)
        self.nodes = EventHandlerFuncs(self._node_applied, self._node_forgotten)
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)

    async def reconcile(self, name: str) -> float | None:
        """Look at one node; answers the seconds to wait where it was told of just now."""
        told = self._told.get(name)
        if told is None:
            self._wrote.pop(name, None)
            return None
        now = self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")
        found = derive_allocations(told, self._nodes.get(name), self._holders.get(name, {}).values(), now)
        if found == told.occupied:
            return None
        rest = self._wrote.get(name, -QUIET) + QUIET - self._clock()
        if rest > 0:
            return rest
        self._wrote[name] = self._clock()
        if not await self._writer.write(name, found):
            raise ReconcileError("its status could not be written")
        return None

    def _told_applied(self, told: GpuNode) -> None:
        self._told[told.name] = told
        self._add(told.name)

    def _told_forgotten(self, told: GpuNode) -> None:
        self._told.pop(told.name, None)

    def _node_applied(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._add(node.name)

    def _node_forgotten(self, node: Node) -> None:
        self._nodes.pop(node.name, None)
        self._add(node.name)

    def _pod_applied(self, pod: Pod) -> None:
        if pod.node is None:
            return
        holder = hold_of(pod, pod.node)
        if pod.finished or not (holder.devices or holder.limit):
            self._drop(pod.node, pod.ref.uid)
            return
        there = self._holders.setdefault(pod.node, {})
        if there.get(pod.ref.uid) != holder:
            there[pod.ref.uid] = holder
            self._add(pod.node)

    def _pod_forgotten(self, pod: Pod) -> None:
        if pod.node is not None:
            self._drop(pod.node, pod.ref.uid)

    def _drop(self, node: str, uid: str) -> None:
        there = self._holders.get(node, {})
        if there.pop(uid, None) is not None:
            self._add(node)
        if not there:
            self._holders.pop(node, None)
