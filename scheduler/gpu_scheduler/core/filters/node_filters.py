"""Whether a node takes a pod, apart from GPUs: one function a question, which answers None or an Obstacle.

LAW: a question reads and answers; it changes nothing and knows no other question. A new check is one more function
here.
"""

from collections.abc import Iterator
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, NodeChanged, ResourceFreed
from gpu_scheduler.core.ledger.used_resources import PODS, PORTS, UsedResources
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorTerm, Taint
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_CONDITIONS: Final = frozenset(
    {
        _CORDON,
        Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
        Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),
    }
)
"""Taints that a controller derives from what `node_usable` reads itself: they only come and go later."""

_BARRING: Final = frozenset({"NoSchedule", "NoExecute"})
_COMMON: Final = (PODS, "cpu", "memory", "ephemeral-storage")
_UNITS: Final = ("B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_ELSEWHERE: Final = "let the map name another node"


def node_usable(pod: Pod, node: Node) -> Unschedulable | None:
    """The node is Ready, and pods may be put on it."""
    if not node.ready:
        return Unschedulable(
            Reason.NODE_NOT_READY,
            f"cannot use node {node.name}: it is not Ready",
            f"see why: kubectl describe node {node.name}",
            frozenset({NodeChanged(node.name, Aspect.READY)}),
        )
    if node.unschedulable and not pod.constraints.tolerates(_CORDON):
        return Unschedulable(
            Reason.NODE_UNSCHEDULABLE,
            f"cannot use node {node.name}: it is cordoned",
            f"kubectl uncordon {node.name}",
            frozenset({NodeChanged(node.name, Aspect.UNSCHEDULABLE)}),
        )
    return None


def taints_tolerated(pod: Pod, node: Node) -> Unschedulable | None:
    """The pod tolerates every taint that keeps pods off the node."""
    for taint in node.taints:
        if taint.effect in _BARRING and taint not in _CONDITIONS and not pod.constraints.tolerates(taint):
            return Unschedulable(
                Reason.TAINT_NOT_TOLERATED,
                f"cannot use node {node.name}: the pod does not tolerate its taint {quote(str(taint))}",
                "add a toleration for it to the pod's template, "
                f"or remove the taint: kubectl taint node {node.name} {taint.key}:{taint.effect}-",
                frozenset({NodeChanged(node.name, Aspect.TAINTS)}),
            )
    return None


def node_selected(pod: Pod, node: Node) -> Unschedulable | None:
    """The pod's node selector and required node affinity mean the node that its map line names."""
    for key, value in pod.constraints.selector.items():
        if node.labels.get(key) != value:
            return _mismatch(node, f"nodeSelector asks for {quote(f'{key}={value}')}, {_label(node, key)}")
    terms = pod.constraints.affinity
    if terms is None or any(term.matches(node.labels, node.name) for term in terms):
        return None
    return _mismatch(node, f"required node affinity does not allow it, {_closest(node, terms)}")


def room_left(pod: Pod, node: Node, occupancy: UsedResources) -> Unschedulable | None:
    """What the pod asks for is there beside what all pods of the node take; cards of a plugin are not asked here."""
    for resource, asked, there in requested_of(pod, node):
        used = occupancy.used(node.name, resource)
        if asked > there - used:
            return _short(node, resource, (asked, used, there))
    return None


def requested_of(pod: Pod, node: Node) -> Iterator[tuple[str, int, int]]:
    """Each resource that the pod asks for and the node counts: how much is asked, and how much is there in all."""
    requests = {PODS: 1, **pod.resource_request.requests}
    for resource in (*_COMMON, *sorted(requests.keys() - {*_COMMON, names.GPU_RESOURCE})):
        asked, there = requests.get(resource, 0), _allocatable(node, resource)
        if asked and there is not None:
            yield resource, asked, there


def ports_free(pod: Pod, node: Node, occupancy: UsedResources) -> Unschedulable | None:
    """No pod of the node has a host port that this one needs."""
    for port in sorted(pod.resource_request.ports, key=str):
        holder = occupancy.port_holder(node.name, port)
        if holder is not None:
            ref, taken = holder
            how = "" if taken == port else f" as {taken}"
            return Unschedulable(
                Reason.PORT_IN_USE,
                f"cannot use host port {port} of node {node.name}: {ref} has it{how}",
                f"wait until that pod ends, take another hostPort, or {_ELSEWHERE}",
                frozenset({ResourceFreed(node.name, PORTS)}),
            )
    return None


def _mismatch(node: Node, why: str) -> Unschedulable:
    return Unschedulable(
        Reason.NODE_AFFINITY_MISMATCH,
        f"cannot use node {node.name}: the pod's {why}",
        f"{_ELSEWHERE}, correct the pod's template, or label the node: kubectl label node {node.name} KEY=VALUE",
        frozenset({NodeChanged(node.name, Aspect.LABELS)}),
    )


def _label(node: Node, key: str) -> str:
    value = node.labels.get(key)
    return "which it does not have" if value is None else f"and it has {quote(f'{key}={value}')}"


def _closest(node: Node, terms: tuple[NodeSelectorTerm, ...]) -> str:
    """Why the first term that says anything does not match."""
    for term in terms:
        unmet = term.unmet(node.labels, node.name)
        if unmet is not None:
            others = f", and none of its other {len(terms) - 1} matches" if len(terms) > 1 else ""
            return f"{quote(str(unmet))} does not hold{others}"
    return "it has no term that could match"


def _allocatable(node: Node, resource: str) -> int | None:
    """How much of it the node gives to pods; None when it does not count that."""
    return node.allocatable.get(PODS) if resource == PODS else node.allocatable.get(resource, 0)


def _short(node: Node, resource: str, amounts: tuple[int, int, int]) -> Unschedulable:
    """Too little of a resource is free; `amounts` are asked, used and there in all."""
    asked, used, there = amounts
    left = max(there - used, 0)
    if asked > there:
        remedy = f"no waiting helps: lower the request in the pod's template, or {_ELSEWHERE}"
    else:
        remedy = f"wait until pods of that node end, delete some, lower the request, or {_ELSEWHERE}"
    thing = _called(asked, resource)
    return Unschedulable(
        Reason.INSUFFICIENT_RESOURCES,
        f"cannot fit on node {node.name}: asks for {thing}, {_shown(used, resource, up=True)} of "
        f"{_shown(there, resource)} are used, {_shown(left, resource)} are free",
        remedy,
        frozenset({ResourceFreed(node.name, resource), NodeChanged(node.name, Aspect.ALLOCATABLE)}),
        about=f"{thing} on node {node.name}",
    )


def _called(asked: int, resource: str) -> str:
    shown = _shown(asked, resource, up=True)
    if resource == PODS:
        return "room for 1 pod"
    return f"{shown} of {resource}" if _in_bytes(resource) else f"{shown} {resource}"


def _shown(amount: int, resource: str, *, up: bool = False) -> str:
    """An amount in people's units; what is asked and used is rounded up, the rest down: it never seems to fit."""
    if resource == "cpu":
        return _decimal(amount, 1000, 3)
    if not amount or not _in_bytes(resource):
        return str(amount)
    power = min((amount.bit_length() - 1) // 10, len(_UNITS) - 1)
    tenths, rest = divmod(amount * 10, 1024**power)
    return _decimal(tenths + bool(up and rest), 10, 1) + _UNITS[power]


def _decimal(amount: int, scale: int, places: int) -> str:
    number, rest = divmod(amount, scale)
    return f"{number}.{rest:0{places}}".rstrip("0").rstrip(".") if rest else str(number)


def _in_bytes(resource: str) -> bool:
    return resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
