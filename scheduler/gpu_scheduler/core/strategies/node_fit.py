"""Whether one node takes pods that ask for a count, apart from its devices.

LAW: this module reads one node and what its pods use, never its devices and never another node. What depends on the
node alone is kept until the node changes.
"""

from typing import NamedTuple

from gpu_scheduler.core.filters import node_filters
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason, Unschedulable, highest_ranked
from gpu_scheduler.core.strategies.filter_failure import FilterFailure, filter_failure


class _Static(NamedTuple):
    """What does not depend on the pods of the node."""

    node: Node
    failure: FilterFailure | None
    limits: tuple[tuple[str, int], ...]
    """By resource: the highest used amount that leaves enough for one more pod."""


class NodeFilter:
    """Filters nodes for pods that are equal in all that they need of a node besides devices."""

    __slots__ = ("__weakref__", "_nodes", "_used_resources", "sample")

    def __init__(self, sample: Pod, used_resources: UsedResources) -> None:
        """Filter for pods like `sample`."""
        self.sample = sample
        self._used_resources = used_resources
        self._nodes: dict[str, _Static] = {}

    def failure(self, node: Node) -> FilterFailure | None:
        """Return the failure that `unschedulable` gives, without its text.

        All failures that do not depend on the pods of the node rank higher than those that do.
        """
        static = self._nodes.get(node.name)
        if static is None or static.node is not node:
            static = self._nodes[node.name] = self._static(node)
        if static.failure is not None:
            return static.failure
        for resource, most in static.limits:
            if self._used_resources.used(node.name, resource) > most:
                return filter_failure(Reason.INSUFFICIENT_RESOURCES)
        ports = self.sample.resource_request.ports
        port = node_filters.ports_free(self.sample, node, self._used_resources) if ports else None
        return None if port is None else filter_failure(port.reason)

    def unschedulable(self, node: Node) -> Unschedulable | None:
        """Return why the pods cannot use the node."""
        return highest_ranked(node_filters.failures(self.sample, node, self._used_resources))

    def forget(self, name: str) -> None:
        """Remove the node."""
        self._nodes.pop(name, None)

    def keep(self, nodes: set[str]) -> None:
        """Remove all nodes except these."""
        for name in self._nodes.keys() - nodes:
            del self._nodes[name]

    def _static(self, node: Node) -> _Static:
        closed = highest_ranked(node_filters.closed(self.sample, node))
        return _Static(
            node,
            None if closed is None else filter_failure(closed.reason, beyond=closed.beyond),
            tuple([(name, there - asked) for name, asked, there in node_filters.requested_of(self.sample, node)]),
        )
