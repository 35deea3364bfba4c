"""The places that a pod could have, each with all its obstacles: lines of its map, or nodes for a count.

LAW: of all lines or nodes only as many as asked for are explained in full. The others are counted.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from gpu_scheduler.core.claim_allocation import gpus_asked
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.explanation.devices import Ends, of_line, of_node
from gpu_scheduler.core.explanation.explanation import DeviceAnswer, DeviceUse, Place
from gpu_scheduler.core.filters import gpu_filters, node_filters, quota
from gpu_scheduler.core.filters.environment import environment_complete
from gpu_scheduler.core.filters.volumes import Selection
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.line_fit import LineFit
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import NO_COUNT, CountRequest
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import LineRequest
from gpu_scheduler.core.reasons import RANKING, Reason, Unschedulable, is_permanent, rank_of
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.start_together import other_lines
from gpu_scheduler.core.strategies.class_filter import ClassFilter
from gpu_scheduler.core.strategies.device_fit import DeviceFit
from gpu_scheduler.core.strategies.diagnosis import FailureCount, unschedulable
from gpu_scheduler.core.strategies.filter_failure import FilterFailure
from gpu_scheduler.core.text import natural

_NO_LINE: Final = frozenset({Reason.INDEX_UNKNOWN, Reason.INDEX_NOT_IN_MAP})
"""Faults of a text that has a map and names none of its lines."""


@immutable
class Places:
    """The places that a pod could have, the nearest first."""

    of_pod: tuple[Unschedulable, ...] = ()
    """What is in the way at every place."""
    nearest: tuple[Place, ...] = ()
    others: tuple[tuple[Reason, int], ...] = ()
    """How many further places there are, by the reason of each."""


def places_of(pod: Pod, cluster: Cluster, ends: Ends, most: int) -> Places:
    """Return at most `most` places; none if the pod's own text says neither a line nor a count."""
    line = pod.request.line
    if line is None:
        return Places() if pod.request.count is NO_COUNT else _by_count(pod, cluster, ends, most)
    if pod.request.fault is not None and pod.request.fault.reason in _NO_LINE:
        return Places()
    fit = LineFit(pod, line.workload, cluster, by_field=line.slot is None or bool(pod.gpu_limits))
    of_others = () if pod.request.fault is not None else tuple(islice(other_lines(pod, line, cluster), most))
    if line.slot is not None:
        return Places(of_others, (_place(pod, line.slot, fit, cluster, ends),))
    of_lines, slots = _open_lines(pod, line, cluster)
    found = sorted((_place(pod, slot, fit, cluster, ends) for slot in slots[:most]), key=_effort)
    answers = map(fit.at, slots[most:])
    others = Counter(Reason(each.unschedulable.reason) for each in answers if not isinstance(each, Placement))
    return Places((*of_lines, *of_others), tuple(found), tuple(others.most_common()))


def _effort(place: Place) -> tuple[bool, int, int, int]:
    """Return how far a place is: whether something is in the way that no waiting cures, then how many obstacles.

    Of places with as many, the one is nearer that more commands open, then the one whose first obstacle is reported
    last.
    """
    obstacles = place.obstacles
    if not obstacles:
        return False, 0, 0, 0
    first, commands = obstacles[0].ranked_reason, sum(bool(each.command or each.blockers) for each in obstacles)
    return is_permanent(first), len(obstacles), -commands, -rank_of(first)


def _open_lines(pod: Pod, line: LineRequest, cluster: Cluster) -> tuple[tuple[Unschedulable, ...], Sequence[Slot]]:
    """Return the free lines of the map, in the order in which a decision tries them.

    If none is free, return the reason, and all lines.
    """
    ledger = cluster.ledger
    kept = ledger.reserved(pod.ref.uid)
    with closing(ledger.indices.free(line.workload, line.map)) as free:
        found = list(filter(None, map(line.map.get, chain(() if kept is None else (kept,), free))))
    if found:
        return (), found
    return (gpu_filters.no_line_left(line.workload, line.map, ledger, cluster.nodes),), line.map.slots


def _place(pod: Pod, slot: Slot, fit: LineFit, cluster: Cluster, ends: Ends) -> Place:
    found = fit.obstacles(slot)
    node = cluster.nodes.resolve(slot.node)
    return Place(
        node.name if isinstance(node, Node) else slot.node,
        slot.index,
        tuple(of_line(pod, slot, found.candidate, cluster, ends)),
        # A fault of the pod's own text is in the way at every place.
        tuple(each for each in found.of_pod if each != pod.request.fault),
        found.of_devices,
        found.of_node,
        found.of_volumes,
    )


def _by_count(pod: Pod, cluster: Cluster, ends: Ends, most: int) -> Places:
    """Return the nodes for a pod that asks for a count, or why the count of its own claim is unknown."""
    asked = gpus_asked(pod, cluster)
    return Places((asked,)) if isinstance(asked, Unschedulable) else _nodes(pod, asked, cluster, ends, most)


def _nodes(pod: Pod, request: CountRequest, cluster: Cluster, ends: Ends, most: int) -> Places:
    """Return the nodes that are nearest to fitting a pod that asks for a count."""
    ranking = cluster.candidates.ranking(pod, request, cluster.strategy)
    answers = sorted(map(ranking.class_filter.filter, cluster.nodes), key=_distance)
    others = Counter(failure.reason for _, failure in answers[most:] if failure is not None)
    nearest = tuple(_node_place(pod, fit, ranking.class_filter, cluster, ends) for fit, _ in answers[:most])
    return Places(_of_count(pod, request.count, cluster), nearest, tuple(others.most_common()))


def _of_count(pod: Pod, count: int, cluster: Cluster) -> tuple[Unschedulable, ...]:
    """Return what keeps a pod that asks for a count from every node: its environment, and its namespace's limit."""
    namespace = pod.ref.namespace
    limit = cluster.limits.of(namespace)
    unset = environment_complete(pod, None, by_field=True)
    over = None if pod.request.observer else quota.too_many(count, namespace, limit)
    short = None if pod.request.observer else quota.too_many_more(count, namespace, limit, cluster.ledger)
    return tuple(each for each in (unset, over or short) if each is not None)


def _distance(answer: tuple[DeviceFit, FilterFailure | None]) -> tuple[int, int, str, str]:
    """Return the sort key of a node: those that fit, then those whose failure is reported last and offers most."""
    fit, failure = answer
    name = fit.node.name
    if failure is None:
        return -len(RANKING), 0, natural(name), name
    return -rank_of(failure.ranked_reason), -failure.offer, natural(name), name


def _node_place(pod: Pod, fit: DeviceFit, class_filter: ClassFilter, cluster: Cluster, ends: Ends) -> Place:
    node, gpus = fit.node, class_filter.equivalence_class.gpus
    devices = tuple(of_node(pod, node, class_filter.devices, cluster, ends))
    failure = class_filter.devices.failure(fit, gpus)
    of_devices: tuple[Unschedulable, ...] = ()
    if failure is not None:
        count = FailureCount(1, failure.offer, node.name)
        found = unschedulable(class_filter, failure.ranked_reason, count, node)
        missing = gpus - fit.available if failure.reason is Reason.NOT_ENOUGH_GPUS else 0
        # Pods of the other kind keep all GPUs of the node, whoever else holds some.
        apart = gpu_filters.plugin_apart(assumed_hold(pod, Placement(node.name, ("0",), None)), node, cluster.ledger)
        of_devices = (replace(found, blockers=_fewest_holders(devices, missing) if apart is None else ()),)
    failing = tuple(filter(None, node_filters.failures(pod, node, cluster.ledger.used_resources)))
    volumes = cluster.volumes.filter(pod, node)
    of_volumes = volumes.unschedulable if isinstance(volumes, Selection) else volumes
    return Place(node.name, None, devices, (), of_devices, failing, of_volumes)


def _fewest_holders(devices: Sequence[DeviceAnswer], missing: int) -> tuple[PodRef, ...]:
    """Return pods whose end would free `missing` devices: those of the devices with the fewest holders.

    Return none if they are too few. No pod's end frees what a line or a claim without pods of ours keeps, and of a pod
    that may hold another device it is unknown.
    """
    held = [
        device
        for device in devices
        if device.use is DeviceUse.HELD and all(holder.is_pod and holder.certain for holder in device.holders)
    ]
    held.sort(key=lambda device: len(device.holders))
    if missing <= 0 or len(held) < missing:
        return ()
    holders = [holder for device in held[:missing] for holder in device.holders]
    return tuple(dict.fromkeys(holder.ref for holder in holders if not holder.deleting_since))
