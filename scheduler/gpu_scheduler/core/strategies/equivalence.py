"""Equivalence classes of pods that ask for a count. All pods of a class fit the same nodes.

LAW: everything that a filter reads of such a pod is part of its class, except its volumes.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from gpu_scheduler import names
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorTerm, SchedulingConstraints, Toleration
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.pods.device_selector import ANY_DEVICE, DeviceSelector
from gpu_scheduler.core.pods.pod import NOTHING, HostPort, Pod

EVERYWHERE: Final = SchedulingConstraints(tolerations=(Toleration("", "Exists", "", ""),))


class DeviceRequirements(NamedTuple):
    """Everything that decides which devices of a node a pod can have, and in which order."""

    memory: int
    exclusive: bool
    gpu_type: str
    strategy: Strategy
    sharing_any: bool
    observer: bool
    limited: bool
    """Whether the pod has a limit of devices. Then the node's device plugin, if any, chooses them."""
    by_uuid: bool
    """Whether the pod has ResourceClaims, which name devices by their UUIDs."""
    selector: DeviceSelector
    """What each device must be, as the pod's own ResourceClaim says."""

    @property
    def of_sharing(self) -> "DeviceRequirements":
        """Return the few that decide which devices are free for a pod, without how many and which ones.

        A node that fits pods fits a pod for one such device that may go to every node.
        """
        return self._replace(memory=0, gpu_type="", strategy=Strategy.LEAST_UTILIZED, selector=ANY_DEVICE)

    def plugin_chooses(self, node: Node) -> bool:
        """Whether a device plugin chooses the devices on `node`, so that only their number counts."""
        return node.advertised is not None and self.limited


class NodeRequirements(NamedTuple):
    """Everything else that decides whether a node takes a pod."""

    selector: frozenset[tuple[str, str]] = frozenset()
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = EVERYWHERE.tolerations
    requests: frozenset[tuple[str, int]] = frozenset()
    """The requests for resources other than devices."""
    ports: frozenset[HostPort] = frozenset()


class EquivalenceClass(NamedTuple):
    """Everything that decides which nodes fit a pod, and in which order."""

    gpus: int
    """How many devices the pod asks for."""
    of_devices: DeviceRequirements
    of_node: NodeRequirements


def equivalence_class_of(pod: Pod, request: CountRequest, strategy: Strategy) -> EquivalenceClass:
    """Return the equivalence class of a pod. `strategy` is the default if the pod names none."""
    constraints, resource_request = pod.constraints, pod.resource_request
    of_devices = DeviceRequirements(
        request.memory,
        request.exclusive,
        request.gpu_type,
        request.strategy or strategy,
        pod.request.sharing_any,
        pod.request.observer,
        bool(pod.gpu_limits),
        pod.isolated,
        request.selector,
    )
    of_node = NodeRequirements(
        frozenset(constraints.selector.items()),
        constraints.affinity,
        constraints.tolerations,
        frozenset([each for each in resource_request.requests.items() if each[0] != names.GPU_RESOURCE]),
        resource_request.ports,
    )
    return EquivalenceClass(request.count, of_devices, of_node)


def unconstrained(pod: Pod) -> Pod:
    """Return the pod as one that may go to every node and takes nothing but devices."""
    return replace(pod, constraints=EVERYWHERE, resource_request=NOTHING)
