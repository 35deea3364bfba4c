"""What pods that ask for a count have in common with all that are placed alike.

LAW: whatever a node is asked for them stands here; their volumes alone are their own.
"""

from typing import NamedTuple

from gpu_scheduler import names
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorTerm, Toleration
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.pods.pod import HostPort, Pod


class PlacementRequirements(NamedTuple):
    """All that decides which cards of a node a pod can have, and in which order."""

    memory: int
    exclusive: bool
    gpu_type: str
    strategy: Strategy
    sharing_any: bool
    observer: bool
    limited: bool
    """It has a limit of cards: a device plugin chooses them where there is one."""
    selector: frozenset[tuple[str, str]]
    affinity: tuple[NodeSelectorTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    requests: frozenset[tuple[str, int]]
    """Those for other things than cards."""
    ports: frozenset[HostPort]

    def by_number(self, node: Node) -> bool:
        """Whether a device plugin chooses the cards there, so that only their number counts."""
        return node.advertised is not None and self.limited


class EquivalenceClass(NamedTuple):
    """All that decides which nodes fit a pod, and in which order."""

    gpus: int
    """How many."""
    kind: PlacementRequirements


def equivalence_class_of(pod: Pod, request: CountRequest, strategy: Strategy) -> EquivalenceClass:
    """That of a pod; `strategy` counts where it names none."""
    constraints, resource_request = pod.constraints, pod.resource_request
    kind = PlacementRequirements(
        request.memory,
        request.exclusive,
        request.gpu_type,
        request.strategy or strategy,
        pod.request.sharing_any,
        pod.request.observer,
        bool(pod.gpu_limits),
        frozenset(constraints.selector.items()),
        constraints.affinity,
        constraints.tolerations,
        frozenset([each for each in resource_request.requests.items() if each[0] != names.GPU_RESOURCE]),
        resource_request.ports,
    )
    return EquivalenceClass(request.count, kind)
