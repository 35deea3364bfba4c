"""Whether all lines of a map can be had at once, for pods that start together (docs/together.md).

LAW: nothing is held before the first pod is bound, so that two workloads which wait for each other's GPUs cannot block
one another. One decision looks at all lines; from then on the ledger keeps them (core/ledger/kept_lines.py).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import WorkloadStarted
from gpu_scheduler.core.filters import gpu_filters, quota
from gpu_scheduler.core.ledger.conflicts import may_share
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.ledger.used_resources import PODS
from gpu_scheduler.core.line_fit import LineFit, NoFit, placement_on
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.pods.request import LineRequest
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Reason, Unschedulable
from gpu_scheduler.core.text import number_of

_OTHER_GPUS: Final = made_anew("name other GPUs")
_COUNTED: Final = frozenset({Reason.INSUFFICIENT_RESOURCES, Reason.PORT_IN_USE})
"""Reasons that depend on how many lines name the node."""


def waits_for_others(pod: Pod, line: LineRequest, cluster: Cluster) -> NoFit | None:
    """Return why the pod waits although it could have its own line, or None."""
    found = next(other_lines(pod, line, cluster), None) if pod.request.together else None
    return None if found is None else NoFit(found, found.cured_by | {WorkloadStarted(line.workload)})


def comes_late(pod: Pod, line: LineRequest, found: NoFit, cluster: Cluster) -> NoFit:
    """Return `found`, which keeps the pod from its own line; its message says if other pods have started already."""
    fault = found.unschedulable
    started = pod.request.together and cluster.ledger.kept_lines.started(line.workload)
    if not started or fault.reason in REFUSED_AT_ADMISSION:
        return found
    what = f"cannot follow the pods with which it starts together, and which are bound: {fault.what}"
    return replace(found, unschedulable=replace(fault, what=what))


def other_lines(pod: Pod, line: LineRequest, cluster: Cluster) -> Iterator[Unschedulable]:
    """Yield what keeps the other pods of a workload from starting with this one, in the order of the map's lines.

    Yield nothing if they do not start together, or have started. A line that a pod of the workload has already counts
    as had. Neither the environment nor the volumes of the other pods are known, so only their GPUs and their nodes are
    checked.
    """
    if not pod.request.together or cluster.ledger.kept_lines.started(line.workload):
        return
    open_slots = [slot for slot in line.map.slots if cluster.ledger.index_holder(line.workload, slot.index) is None]
    found: list[tuple[Slot, Node]] = []
    for slot in open_slots:
        node = cluster.nodes.resolve(slot.node)
        if isinstance(node, Node):
            found.append((slot, node))
        else:
            yield _because_of(f"index {slot.index}", node)
    number = Counter(node.name for _, node in found)
    fits = {name: LineFit(_times(pod, count), line.workload, cluster, by_field=True) for name, count in number.items()}
    for slot, node in found:
        if slot.index == line.index:
            # Its own line is checked already, with its environment and its volumes.
            continue
        alone = number[node.name] == 1
        missing = fits[node.name].of_another_pod(slot, node) or (None if alone else _port_twice(pod))
        if missing is not None:
            counted = not alone and missing.reason in _COUNTED
            beside = f", one of {number[node.name]} lines of {node.name}" if counted else ""
            yield _because_of(f"index {slot.index}{beside}", missing)
    yield from _beside_each_other(pod, found, cluster)
    yield from _quota(pod, found, cluster)


def _because_of(line: str, found: Unschedulable) -> Unschedulable:
    return replace(found, what=f"cannot start together, because of {line}: {found.what}")


def _beside_each_other(pod: Pod, slots: Sequence[tuple[Slot, Node]], cluster: Cluster) -> Iterator[Unschedulable]:
    """Check that no line is in the way of another one: the filter of held GPUs is asked in a ledger of these lines.

    Each device is held there by the first line that names it. The others differ in nothing on which sharing depends.
    """
    lines = Ledger(cluster.policy)
    for node in {node.name: node for _, node in slots}.values():
        lines.apply_node(node)
    holds = [assumed_hold(pod, placement_on(pod, node, slot.devices, slot.index)) for slot, node in slots]
    if len(holds) > 1 and may_share(holds[0], holds[1], cluster.policy.sharing):
        # They may share every device.
        return
    held: set[tuple[str, str]] = set()
    for (slot, node), hold in zip(slots, holds, strict=True):
        claim = replace(hold, ref=replace(hold.ref, uid=str(slot.index)), kept=True)
        found = gpu_filters.gpu_free(claim, lines, cluster.nodes, cluster.policy)
        if found is not None:
            yield replace(_because_of(f"index {slot.index} and another line of the map", found), remedy=_OTHER_GPUS)
        of_line = frozenset(claim.named)
        for device in claim.devices:
            if (node.name, device) not in held:
                held.add((node.name, device))
                ref = replace(claim.ref, uid=f"{slot.index} {device}")
                named = (device,) if device in of_line else ()
                lines.devices.put(replace(claim, ref=ref, devices=(device,), named=named, uuids=()))


def _quota(pod: Pod, slots: Sequence[tuple[Slot, Node]], cluster: Cluster) -> Iterator[Unschedulable]:
    """Check that the pod's namespace may hold the devices of all lines at once."""
    namespace, ledger = pod.ref.namespace, cluster.ledger
    limit = cluster.limits.of(namespace)
    if limit.devices is None:
        return
    devices: dict[str, dict[str, None]] = {}
    for slot, node in slots:
        devices.setdefault(node.name, {}).update(dict.fromkeys(slot.devices))
    asked = more = 0
    for node in {node.name: node for _, node in slots}.values():
        claim = assumed_hold(pod, placement_on(pod, node, tuple(devices[node.name]), None))
        of_node, more_of_node = ledger.devices.asks(claim)
        asked, more = asked + of_node, more + more_of_node
    whom = f"the {number_of(len(slots), 'line')} of its map, which start together"
    found = quota.too_many(asked, namespace, limit, whom) or quota.too_many_more(more, namespace, limit, ledger, whom)
    if found is not None:
        yield found


def _port_twice(pod: Pod) -> Unschedulable | None:
    """Check that the pod needs no port of the host, which another pod of its node could not have."""
    if not pod.resource_request.ports:
        return None
    port = min(map(str, pod.resource_request.ports))
    what = f"each pod needs port {port} of its node"
    remedy = made_anew("leave out the host port or name other nodes")
    return Unschedulable(Reason.PORT_IN_USE, what, remedy)


def _times(pod: Pod, number: int) -> Pod:
    """Return the pod with what this number of such pods requests."""
    if number == 1:
        return pod
    each = {PODS: 1, **pod.resource_request.requests}
    requests = {resource: number * amount for resource, amount in each.items()}
    return replace(pod, resource_request=replace(pod.resource_request, requests=requests))
