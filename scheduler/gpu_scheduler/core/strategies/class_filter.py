"""The filters of one equivalence class: one of a node's devices, one of the node.

LAW: classes that need the same of devices share what is known of them, however many different requests for CPU they
have; classes that need the same of a node share that.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.strategies.device_fit import DeviceFilter, DeviceFit
from gpu_scheduler.core.strategies.equivalence import EquivalenceClass
from gpu_scheduler.core.strategies.filter_failure import FilterFailure, highest
from gpu_scheduler.core.strategies.node_fit import NodeFilter


class ClassFilter(NamedTuple):
    """Filters nodes for the pods of one class."""

    equivalence_class: EquivalenceClass
    devices: DeviceFilter
    node: NodeFilter

    def filter(self, node: Node) -> tuple[DeviceFit, FilterFailure | None]:
        """Return what devices the node has for the pods, and the highest ranked reason why it does not fit."""
        fit = self.devices.fit(node)
        return fit, highest(self.devices.failure(fit, self.equivalence_class.gpus), self.node.failure(node))

    def forget(self, name: str) -> None:
        """Remove the node."""
        self.devices.forget(name)
        self.node.forget(name)

    def keep(self, nodes: Iterable[str]) -> None:
        """Remove all nodes except these."""
        kept = set(nodes)
        self.devices.keep(kept)
        self.node.keep(kept)
