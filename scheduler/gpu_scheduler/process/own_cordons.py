"""The cordons of one node, for a program that runs on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gpu_scheduler.core.nodes.cordons import Cordons
from gpu_scheduler.kube.objects.agentaflow import API
from gpu_scheduler.kube.objects.cordons import read_node_cordons
from gpu_scheduler.kube.resource import NOT_SERVED, EventHandler, Resource
from gpu_scheduler.process.reflectors import by_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons


def own_gpu_node(node: str) -> Resource[NodeCordons]:
    """Return the node's GPUNode as a resource to watch. If the kind is not installed, there are no cordons."""
    path, selector = f"{API}/gpunodes", f"metadata.name={node}"
    return Resource("cordons", path, selector, read_node_cordons, by_name, empty_if=NOT_SERVED)


class OwnCordons(EventHandler["NodeCordons"]):
    """The cordons of the node that this program runs on, as its GPUNode has them."""

    def __init__(self, node: str, wall: Callable[[], float] = time.time) -> None:
        """Start without cordons. `wall` returns the seconds since the epoch, by which cordons end."""
        self._node = node
        self._wall = wall
        self._cordons = Cordons()

    def applied(self, value: NodeCordons) -> None:
        """Store the cordons of a GPUNode."""
        self._cordons.put(value.node, value.cordons, self._wall())

    def forgotten(self, value: NodeCordons) -> None:
        """Remove the cordons of a GPUNode that is gone."""
        self._cordons.put(value.node, (), self._wall())

    def in_force(self) -> tuple[Cordon, ...]:
        """Return the cordons of the node that are in force now."""
        return self._cordons.in_force(self._node, self._wall())
