"""Filters of nodes: does a node take a pod, apart from GPUs? Each returns None or an Unschedulable.

LAW: a filter changes nothing and calls no other filter. A new check is one more function here. A filter does not know
what else is in the way, so a remedy edits the pod's own text or says what to wait for; what changes the node is a
command, which only an explanation prints.
"""

import shlex
from collections.abc import Mapping
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, NodeChanged, ResourceFreed
from gpu_scheduler.core.ledger.used_resources import PODS, PORTS, UsedResources
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm, SchedulingConstraints, Taint
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import number_of, quote

_CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_CONDITIONS: Final = frozenset(
    {
        _CORDON,
        Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
        Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),
    }
)
"""Ignored taints. A controller derives them from fields that `node_ready` and
`node_schedulable` read, and sets and removes them later."""

_OTHER_NODE: Final = made_anew("name another node")
_BLOCKING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
_NOT_USERS_OWN: Final = frozenset({names.NODE_ALIAS, "accelerator", "agentpool", "storageprofile", "storagetier"})
"""Keys without a domain that are not for the users of a node to change: maps name nodes by the alias, and AKS writes
the others."""
_UNITS: Final = ("B", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def failures(pod: Pod, node: Node, used_resources: UsedResources) -> tuple[Unschedulable | None, ...]:
    """Run all filters of this module. Return what each says."""
    return *closed(pod, node), resources_left(pod, node, used_resources), ports_free(pod, node, used_resources)


def closed(pod: Pod, node: Node) -> tuple[Unschedulable | None, ...]:
    """Run the filters that do not depend on the pods of the node. Return what each says."""
    return (
        node_selected(pod, node),
        resources_exist(pod, node),
        taints_tolerated(pod, node),
        node_schedulable(pod, node),
        node_ready(pod, node),
    )


def node_ready(_: Pod, node: Node) -> Unschedulable | None:
    """Check that the node is Ready."""
    if node.ready:
        return None
    return Unschedulable(
        Reason.NODE_NOT_READY,
        f"cannot use node {node.name}: it is not Ready",
        f"wait until it is Ready; why it is not: kubectl describe node {node.name}",
        frozenset({NodeChanged(node.name, Aspect.READY)}),
    )


def node_schedulable(pod: Pod, node: Node) -> Unschedulable | None:
    """Check that the node is not cordoned for this pod."""
    if not node.unschedulable or pod.constraints.tolerates(_CORDON):
        return None
    return Unschedulable(
        Reason.NODE_UNSCHEDULABLE,
        f"cannot use node {node.name}: it is cordoned",
        f"wait until it is uncordoned{'' if pod.request.line is None else f', or {_OTHER_NODE}'}",
        frozenset({NodeChanged(node.name, Aspect.UNSCHEDULABLE)}),
        command=f"kubectl uncordon {node.name}",
    )


def taints_tolerated(pod: Pod, node: Node) -> Unschedulable | None:
    """Check that the pod tolerates every taint that keeps pods off the node."""
    found = [
        taint
        for taint in node.taints
        if taint.effect in _BLOCKING_EFFECTS and taint not in _CONDITIONS and not pod.constraints.tolerates(taint)
    ]
    if not found:
        return None
    removed = " ".join([f"{taint.key}:{taint.effect}-" for taint in found])
    return Unschedulable(
        Reason.TAINT_NOT_TOLERATED,
        f"cannot use node {node.name}: the pod does not tolerate its taint {quote(str(found[0]))}",
        _anew(pod, "add a toleration"),
        frozenset({NodeChanged(node.name, Aspect.TAINTS)}),
        command=f"kubectl taint node {node.name} {removed}" if all(_users_own(taint.key) for taint in found) else "",
    )


def node_selected(pod: Pod, node: Node) -> Unschedulable | None:
    """Check that the pod's node selector and required node affinity match the node."""
    for key, value in pod.constraints.selector.items():
        if node.labels.get(key) != value:
            why = f"nodeSelector asks for {quote(f'{key}={value}')}, {_label(node, key)}"
            return _mismatch(pod, node, why, "nodeSelector", NodeSelectorRequirement(key, "In", (value,)))
    if _allows(pod.constraints, node.labels, node.name):
        return None
    unmet, why = _closest(node, pod.constraints.affinity or ())
    return _mismatch(pod, node, f"required node affinity does not allow it, {why}", "the affinity", unmet)


def resources_exist(pod: Pod, node: Node) -> Unschedulable | None:
    """Check that the node has as much of each resource as the pod requests, if it were empty."""
    for resource, asked, there in requested_of(pod, node):
        if asked > there:
            return Unschedulable(
                Reason.INSUFFICIENT_RESOURCES,
                f"cannot fit on node {node.name}: asks for {_called(asked, resource)}, and the node has "
                f"{_shown(there, resource)} in all",
                f"no waiting helps: {_anew(pod, 'lower the request')}",
                frozenset({NodeChanged(node.name, Aspect.ALLOCATABLE)}),
                beyond=True,
            )
    return None


def resources_left(pod: Pod, node: Node, used_resources: UsedResources) -> Unschedulable | None:
    """Check that the node has enough left of each resource that the pod requests, except devices of a device plugin."""
    for resource, asked, there in requested_of(pod, node):
        used = used_resources.used(node.name, resource)
        if there - used < asked <= there:
            return _insufficient(pod, node, resource, (asked, used, there))
    return None


def requested_of(pod: Pod, node: Node) -> list[tuple[str, int, int]]:
    """Return each resource that the pod requests and the node counts, with the requested and the allocatable amount."""
    pods = node.allocatable.get(PODS)
    # A Node that no kubelet has written yet does not count pods.
    found = [] if pods is None else [(PODS, 1, pods)]
    for resource, asked in pod.resource_request.requests.items():
        if asked and resource != names.GPU_RESOURCE:
            found.append((resource, asked, node.allocatable.get(resource, 0)))
    return found


def ports_free(pod: Pod, node: Node, used_resources: UsedResources) -> Unschedulable | None:
    """Check that no pod of the node has a host port that this pod needs."""
    asked = sorted(pod.resource_request.ports, key=str)
    held = [(port, *holder) for port in asked if (holder := used_resources.port_holder(node.name, port)) is not None]
    if not held:
        return None
    port, ref, taken = held[0]
    how = "" if taken == port else f" as {taken}"
    return Unschedulable(
        Reason.PORT_IN_USE,
        f"cannot use host port {port} of node {node.name}: {ref} has it{how}",
        f"wait until that pod ends, or {_anew(pod, 'take another hostPort')}",
        frozenset({ResourceFreed(node.name, PORTS)}),
        blockers=tuple(dict.fromkeys([holder for _, holder, _ in held])),
    )


def _anew(pod: Pod, edit: str) -> str:
    """Return a remedy that edits the pod's text. If the pod has a map, another node is a remedy too."""
    return made_anew(edit if pod.request.line is None else f"{edit} or name another node")


def _mismatch(pod: Pod, node: Node, why: str, field: str, unmet: NodeSelectorRequirement | None) -> Unschedulable:
    """Return why the labels of the node do not match, which a label cures if `unmet` is about one of the users."""
    return Unschedulable(
        Reason.NODE_AFFINITY_MISMATCH,
        f"cannot use node {node.name}: the pod's {why}",
        _anew(pod, f"correct {field}"),
        frozenset({NodeChanged(node.name, Aspect.LABELS)}),
        command="" if unmet is None or not _users_own(unmet.key) else _labelling(pod.constraints, node, unmet),
    )


def _allows(constraints: SchedulingConstraints, labels: Mapping[str, str], name: str) -> bool:
    """Whether selector and required affinity match the node of this name if it has these labels."""
    if any(labels.get(key) != value for key, value in constraints.selector.items()):
        return False
    terms = constraints.affinity
    return terms is None or any(term.matches(labels, name) for term in terms)


def _users_own(key: str) -> bool:
    """Whether users may change the label or taint: its key has no domain.

    Those with one are of the kubelet, the cloud, the control plane or a component that writes them again.
    """
    return "/" not in key and key not in _NOT_USERS_OWN


def _labelling(constraints: SchedulingConstraints, node: Node, unmet: NodeSelectorRequirement) -> str:
    """Return the command after which the node matches; empty if none does, or a reader would have to choose the value.

    A pod's author wrote the expression. It is quoted, so that it gives whoever copies the command no other command.
    """
    key, labels = unmet.key, dict(node.labels)
    if unmet.operator in {"NotIn", "DoesNotExist"}:
        labels.pop(key, None)
        change = shlex.quote(f"{key}-")
    elif unmet.operator == "In" and unmet.values:
        change = shlex.quote(f"{key}={unmet.values[0]}") + (" --overwrite" if key in labels else "")
        labels[key] = unmet.values[0]
    else:
        return ""
    return f"kubectl label node {node.name} {change}" if _allows(constraints, labels, node.name) else ""


def _label(node: Node, key: str) -> str:
    value = node.labels.get(key)
    return "which it does not have" if value is None else f"and it has {quote(f'{key}={value}')}"


def _closest(node: Node, terms: tuple[NodeSelectorTerm, ...]) -> tuple[NodeSelectorRequirement | None, str]:
    """Return why the first term that has expressions does not match: its first unmet one, if about a label, and why."""
    for term in terms:
        unmet = term.unmet(node.labels, node.name)
        if unmet is not None:
            others = f", and none of its other {len(terms) - 1} matches" if len(terms) > 1 else ""
            return unmet if unmet in term.labels else None, f"{quote(str(unmet))} does not hold{others}"
    return None, "it has no term that could match"


def _insufficient(pod: Pod, node: Node, resource: str, amounts: tuple[int, int, int]) -> Unschedulable:
    """Return why too little of a resource is free. `amounts` are requested, used and allocatable."""
    asked, used, there = amounts
    return Unschedulable(
        Reason.INSUFFICIENT_RESOURCES,
        f"cannot fit on node {node.name}: asks for {_called(asked, resource)}",
        f"wait until pods of that node end{_less(pod, resource)}",
        frozenset({ResourceFreed(node.name, resource), NodeChanged(node.name, Aspect.ALLOCATABLE)}),
        detail=f", {_shown(used, resource, up=True)} of {_shown(there, resource)} are used, "
        f"{_shown(max(there - used, 0), resource)} are free",
    )


def _less(pod: Pod, resource: str) -> str:
    """Return what else helps a pod that asks for too much. No pod can ask for less than to be one pod."""
    if resource != PODS:
        return f", or {_anew(pod, 'lower the request')}"
    return "" if pod.request.line is None else f", or {_OTHER_NODE}"


def _called(asked: int, resource: str) -> str:
    shown = _shown(asked, resource, up=True)
    if resource == PODS:
        return f"room for {number_of(asked, 'pod')}"
    return f"{shown} of {resource}" if _in_bytes(resource) else f"{shown} {resource}"


def _shown(amount: int, resource: str, *, up: bool = False) -> str:
    """Return an amount in units for people.

    `up` rounds up, for requested and used amounts. Others are rounded down, so that the numbers never look as if the
    pod would fit.
    """
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
