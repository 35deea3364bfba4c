"""The smallest remedy of a wait: the steps that open the nearest place, and a line of a map that is open now.

LAW: steps are the remedies of the obstacles, word for word. A line is proposed only if all filters pass there. A
command changes what is of others, so commands are proposed only if all of them together open the place.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.explanation.explanation import Place, Remedy, Step
from gpu_scheduler.core.explanation.places import Places
from gpu_scheduler.core.line_fit import LineFit
from gpu_scheduler.core.nodes.inventory import UNREAD, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import Slot, device_kind
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Fault, Reason, Unschedulable, is_permanent
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.text import natural


def remedy_of(pod: Pod, faults: tuple[Fault, ...], places: Places, cluster: Cluster) -> Remedy:
    """Return the smallest remedy of a pod that waits. `faults` are those of its own text."""
    nearest = next(iter(places.nearest), None)
    obstacles: list[Fault] = [*faults, *places.of_pod]
    if nearest is not None and nearest.obstacles:
        # The obstacles of the nearest line say more than that no line is free.
        obstacles = [each for each in obstacles if each.reason is not Reason.NO_FREE_INDEX]
        obstacles += nearest.of_devices if _useless(nearest) else nearest.obstacles
    steps = _steps(obstacles, nearest)
    if nearest is None or _useless(nearest):
        return Remedy("", None, steps, "")
    line = "" if faults or not nearest.obstacles else _open_line(pod, nearest, cluster)
    return Remedy(nearest.node, nearest.index, steps, line)


def _useless(place: Place) -> bool:
    """Whether a pod that asks for a count cannot have the node's GPUs, whatever else is done to the node."""
    return place.index is None and any(is_permanent(each.ranked_reason) for each in place.of_devices)


def _steps(obstacles: Sequence[Fault], place: Place | None) -> tuple[Step, ...]:
    """Return one step for each obstacle. Obstacles with the same command share one.

    If one of them has no command, none is given: the others would not suffice.
    """
    steps: dict[str, Step] = {}
    suffice = all(map(_command, obstacles))
    for each in obstacles:
        command = _command(each) if suffice else ""
        known = steps.get(command or each.message)
        steps[command or each.message] = (
            Step((each.reason,), each.remedy, command, "" if place is None else _until(each, place))
            if known is None
            else replace(known, reasons=(*known.reasons, each.reason))
        )
    return tuple(steps.values())


def _command(fault: Fault) -> str:
    if not isinstance(fault, Unschedulable):
        return ""
    return fault.command or _deleting(fault.blockers)


def _deleting(pods: Iterable[PodRef]) -> str:
    """Return the command that deletes the pods, one `kubectl` for each namespace; empty if there are none."""
    by_namespace: dict[str, list[str]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.namespace, []).append(pod.name)
    return " && ".join(f"kubectl delete pod -n {name} {' '.join(pods)}" for name, pods in by_namespace.items())


def _until(fault: Fault, place: Place) -> str:
    """Return when the last of the pods that block ends; empty unless all of them say when."""
    blockers = fault.blockers if isinstance(fault, Unschedulable) else ()
    ends = {holder.ref: holder.until for device in place.devices for holder in device.holders}
    found = [ends.get(pod, "") for pod in blockers]
    return max(found) if found and all(found) else ""


def _open_line(pod: Pod, place: Place, cluster: Cluster) -> str:
    """Return a line with as many devices that the pod could have now, on the nearest node; empty if there is none."""
    line = pod.request.line
    slot = None if line is None or place.index is None else line.slot_of(place.index)
    if line is None or slot is None or any(device_kind(device) == "MIG" for device in slot.devices):
        return ""
    fit = LineFit(pod, line.workload, cluster, by_field=True)
    for candidate in _candidates(slot, place, cluster):
        found = fit.obstacles(candidate)
        if not (found.of_devices or found.of_node or found.of_volumes):
            return str(candidate)
    return ""


def _candidates(slot: Slot, place: Place, cluster: Cluster) -> Iterator[Slot]:
    """Yield lines to try: on the place's node, else on nodes whose name is similar, then on the others.

    If the author probably misspelt the node, the devices may be right.
    """
    known = {node.name: node for node in cluster.nodes}
    similar = [] if place.node in known else get_close_matches(slot.node, known)
    first = {name: position for position, name in enumerate((place.node, *similar))}
    for node in sorted(known.values(), key=lambda each: (first.get(each.name, len(first)), natural(each.name))):
        if node.name in similar:
            yield replace(slot, node=node.name)
        free = tuple(_free_devices(node, cluster))[: len(slot.devices)]
        if len(free) == len(slot.devices):
            yield Slot(slot.index, node.name, free)


def _free_devices(node: Node, cluster: Cluster) -> Iterator[str]:
    """Yield the devices of the node that no pod holds and that are not unhealthy, lowest first."""
    held = cluster.ledger.devices.held(node.name)
    for device in () if node.inventory is None else node.inventory.devices:
        healthy = node.readings.get(device.index, UNREAD).health is not Health.UNHEALTHY
        if healthy and str(device.index) not in held and not device.mig_devices:
            yield str(device.index)
