"""Why no node fits the pods of one equivalence class: how many nodes fail for which reason, and the message.

LAW: a node has one failure. The numbers and the named node may change every minute. The topic of the message is
therefore only what was requested.
"""

from collections import Counter
from dataclasses import replace
from itertools import islice
from operator import indexOf
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.device_pools import UUIDS_KNOWN
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import RankedReason, Reason, Unschedulable, rank_of
from gpu_scheduler.core.strategies.class_filter import ClassFilter
from gpu_scheduler.core.strategies.equivalence import EquivalenceClass
from gpu_scheduler.core.strategies.filter_failure import FilterFailure
from gpu_scheduler.core.text import number_of, quote

_NODES: Final = "kubectl gpu-scheduler nodes"
_NO_NODE: Final[RankedReason] = (Reason.GPU_NOT_FOUND, False)


@immutable
class FailureCount:
    """How many nodes fail for one reason, the highest offer among them, and the first node with that offer."""

    nodes: int
    offer: int
    node: str


class Diagnosis:
    """Why each node fails that does not fit, and how many nodes have the same failure."""

    __slots__ = ("_failures", "_nodes")

    def __init__(self) -> None:
        self._failures: dict[str, FilterFailure | None] = {}
        """By node; None if the node fits. A node keeps its position, so that messages name the same node each time."""
        self._nodes: Counter[FilterFailure] = Counter()

    def put(self, name: str, failure: FilterFailure | None) -> None:
        """Record why the node fails; None if it fits."""
        before = self._failures.get(name)
        self._failures[name] = failure
        if failure != before:
            self._count(before, -1)
            self._count(failure, 1)

    def forget(self, name: str) -> None:
        """Remove the node."""
        self._count(self._failures.pop(name, None), -1)

    def reason(self) -> RankedReason:
        """Return why the nodes fail that are closest to fitting: the lowest ranked failure of all nodes."""
        if not self._nodes:
            return _NO_NODE
        return max([failure.ranked_reason for failure in self._nodes], key=rank_of)

    def count(self, reason: RankedReason) -> FailureCount:
        """Count the nodes that fail for this reason."""
        failures = [failure for failure in self._nodes if failure.ranked_reason == reason]
        if not failures:
            return FailureCount(0, 0, "")
        most = max(failures)
        position = indexOf(self._failures.values(), most)
        name = next(islice(self._failures, position, None))
        return FailureCount(sum([self._nodes[failure] for failure in failures]), most.offer, name)

    def _count(self, failure: FilterFailure | None, change: int) -> None:
        if failure is not None:
            self._nodes[failure] += change
            if not self._nodes[failure]:
                del self._nodes[failure]


def unschedulable(
    class_filter: ClassFilter, ranked_reason: RankedReason, count: FailureCount, node: Node
) -> Unschedulable:
    """Return why the nodes fail that `count` counts. `node` is the node that the message names."""
    (reason, beyond), equivalence_class = ranked_reason, class_filter.equivalence_class
    of_node = _of_node(class_filter, ranked_reason, count, node)
    why, remedy = of_node or _of_devices(class_filter, reason, count, node)
    several = " on one node" if equivalence_class.gpus > 1 else ""
    what = f"cannot get {_requested(equivalence_class)}{several}"
    return Unschedulable(reason, what, remedy, detail=f": {why}", beyond=beyond)


def volumes_unreachable(first: Unschedulable, nodes: int) -> Unschedulable:
    """Return why a pod cannot use its volumes on the nodes that fit its class.

    `first` is the failure of the first node.
    """
    what, detail = "cannot reach the pod's volumes from a node that fits", f": {first.what}{_and_more(nodes)}"
    return replace(first, what=what, detail=detail)


def _of_node(
    class_filter: ClassFilter, ranked_reason: RankedReason, count: FailureCount, node: Node
) -> tuple[str, str] | None:
    """Return message and remedy if the nodes have the GPUs but fail for another reason, otherwise None."""
    cordoned = ranked_reason[0] is Reason.GPU_CORDONED
    found = class_filter.devices.cordoned(node) if cordoned else class_filter.node.unschedulable(node)
    if found is None or found.ranked_reason != ranked_reason:
        return None
    return found.what + found.detail + _and_more(count.nodes), found.remedy


def _and_more(nodes: int) -> str:
    return f" (and so on {number_of(nodes - 1, 'more node')} with such GPUs)" if nodes > 1 else ""


def _of_devices(class_filter: ClassFilter, reason: Reason, count: FailureCount, node: Node) -> tuple[str, str]:
    """Return message and remedy if the GPUs of the nodes do not suffice."""
    equivalence_class, devices, _ = class_filter
    several, offer = equivalence_class.gpus > 1, count.offer
    there = f"{number_of(count.nodes, 'node')} {'has' if count.nodes == 1 else 'have'} such GPUs"
    match reason:
        case Reason.GPU_UNHEALTHY:
            what = f"{there} free, but {devices.health_problem(node)}"
            repair = f"bring the monitor of {node.name} back" if node.stale else "repair it and wait for the monitor"
            remedy = f"{repair}; why: kubectl gpu-scheduler health"
        case Reason.NOT_ENOUGH_GPUS:
            most = f"no more than {offer} on a node" if offer else "none"
            fewer = f", or {made_anew('ask for fewer')}"
            goal = f"at most {devices.utilization_goal} % utilized"
            what = f"{there}, but {most} is both free and {goal}"
            wait = f"wait until more are{fewer}" if several else "wait until one is"
            remedy = f"{wait}; what holds and uses them: {_NODES} -o wide"
        case Reason.INSUFFICIENT_GPU_MEMORY:
            most = f"with {offer} MiB{' each' if several else ''} at most" if offer else "of unknown memory"
            what = f"{there}, but {most}"
            remedy = f"{made_anew(f'ask for less in annotation {names.MEMORY}')}, or add nodes with larger GPUs"
        case _:
            most = f"more than {number_of(offer, 'such GPU')}" if offer else "such a GPU"
            what = f"no node has {most}"
            others = made_anew(f"ask for {'fewer or ' if several else ''}other GPUs")
            found = f"; {UUIDS_KNOWN}" if equivalence_class.of_devices.by_uuid else ""
            remedy = f"{others}, or add nodes; which there are: {_NODES}{found}"
    return what, remedy


def _requested(equivalence_class: EquivalenceClass) -> str:
    """Return what is requested: `2 GPUs of type "A100" with 8192 MiB each`."""
    gpus, requirements = equivalence_class.gpus, equivalence_class.of_devices
    of_type = f" of type {quote(requirements.gpu_type)}" if requirements.gpu_type else ""
    each = " each" if gpus > 1 else ""
    memory = f" with {requirements.memory} MiB{each}" if requirements.memory else ""
    known = " of known UUID" if requirements.by_uuid else ""
    wanted = str(requirements.selector)
    selected = f" that the pod's ResourceClaim selects ({wanted})" if wanted else ""
    return f"{number_of(gpus, 'GPU')}{of_type}{memory}{known}{selected}"
