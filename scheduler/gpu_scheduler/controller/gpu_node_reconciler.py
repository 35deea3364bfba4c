"""Reconciles the status of every GPUNode: which of its devices are held, by which pods, and whether the node is ready.

LAW: level-triggered, as workload_reconciler.py. The monitor creates the GPUNodes and writes their devices. This module
must do neither. It deletes the GPUNode of a node that is gone, unless operators have cordoned devices of that node.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gpu_scheduler.controller.gpu_node_status import derive_allocations
from gpu_scheduler.controller.reconcile_loop import ReconcileError
from gpu_scheduler.core.ledger.hold import Hold, hold_of
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.kube.timestamps import time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.controller.gpu_node_status import GpuNode
    from gpu_scheduler.controller.ports import NodeWriter
    from gpu_scheduler.core.nodes.nodes import Node
    from gpu_scheduler.core.pods.pod import Pod

# Seconds between two writes of one status: on a busy node pods start and end all the time.
WRITE_INTERVAL = 1.0


class GpuNodeReconciler:
    """Its event handlers may be called at any time; `reconcile` reconciles one GPUNode."""

    def __init__(
        self,
        writer: NodeWriter,
        add: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`add` is called with the name of every node to reconcile."""
        self._writer = writer
        self._add = add
        self._clock = clock
        self._wall = wall
        self._gpu_nodes: dict[str, GpuNode] = {}
        self._nodes: dict[str, Node] = {}
        self._holders: dict[str, dict[str, Hold]] = {}
        self._wrote: dict[str, float] = {}
        self.gpu_nodes = EventHandlerFuncs(self._gpu_node_applied, self._gpu_node_forgotten)
        self.nodes = EventHandlerFuncs(self._node_applied, self._node_forgotten)
        self.pods = EventHandlerFuncs(self._pod_applied, self._pod_forgotten)

    async def reconcile(self, name: str) -> float | None:
        """Reconcile one node. Return the seconds to wait if its status was written less than WRITE_INTERVAL ago.

        ReconcileError if the write or the deletion fails.
        """
        gpu_node = self._gpu_nodes.get(name)
        if gpu_node is None:
            self._wrote.pop(name, None)
            return None
        node = self._nodes.get(name)
        if node is None and not gpu_node.cordoned:
            if not await self._writer.delete(gpu_node):
                raise ReconcileError("it could not be deleted after its node")
            return None
        now = time_of(self._wall())
        found = derive_allocations(gpu_node, node, self._holders.get(name, {}).values(), now)
        if found == gpu_node.occupied:
            return None
        rest = self._wrote.get(name, -WRITE_INTERVAL) + WRITE_INTERVAL - self._clock()
        if rest > 0:
            return rest
        self._wrote[name] = self._clock()
        if not await self._writer.write(name, found):
            raise ReconcileError("its status could not be written")
        return None

    def _gpu_node_applied(self, gpu_node: GpuNode) -> None:
        self._gpu_nodes[gpu_node.name] = gpu_node
        self._add(gpu_node.name)

    def _gpu_node_forgotten(self, gpu_node: GpuNode) -> None:
        self._gpu_nodes.pop(gpu_node.name, None)

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
