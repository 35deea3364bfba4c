"""One pod in, one decision out: the file to read first.

LAW: this module reads values and returns a value. Event, condition, log line and metric are all rendered from it. It
changes nothing: the caller assumes the placement with `Ledger.assume`.
"""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from gpu_scheduler.core.claim_allocation import allocations, claims_allocatable, gpus_asked
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import (
    AnyIndexFreed,
    ClusterEvent,
    NodeChanged,
    QuotaChanged,
    ResourceClaimChanged,
)
from gpu_scheduler.core.decision import BY_MAP, Bind, Decision, Refuse, Wait, awaits_placement
from gpu_scheduler.core.filters import gpu_filters, quota
from gpu_scheduler.core.filters.environment import environment_complete
from gpu_scheduler.core.filters.volumes import Selection
from gpu_scheduler.core.ledger.hold import assumed_hold
from gpu_scheduler.core.line_classes import Asks
from gpu_scheduler.core.line_fit import LineFit, NoFit, placement_on
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import Slot
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import LineRequest
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Unschedulable
from gpu_scheduler.core.refs import WorkloadKey
from gpu_scheduler.core.start_together import comes_late, waits_for_others
from gpu_scheduler.core.strategies import diagnosis
from gpu_scheduler.core.strategies.orderings import Choice


def decide(pod: Pod, cluster: Cluster) -> Decision | None:
    """Decide what to do with `pod`.

    Return None if it needs no placement, or if the ledger already has its placement.
    """
    if not awaits_placement(pod, cluster.policy) or cluster.ledger.holds(pod.ref.uid):
        return None
    fault, line = pod.request.fault, pod.request.line
    if fault is not None:
        return _wait_or_refuse(pod, NoFit(fault, frozenset()))
    if line is None:
        asked = gpus_asked(pod, cluster)
        return _by_strategy(pod, asked, cluster) if isinstance(asked, CountRequest) else _without_claim(pod, asked)
    if line.slot is None:
        return _any_line(pod, line, cluster)
    line_fit = LineFit(pod, line.workload, cluster, by_field=bool(pod.gpu_limits))
    found = line_fit.at(line.slot)
    if isinstance(found, Placement):
        others = waits_for_others(pod, line, cluster)
        return _bind_to_line(pod, found, cluster) if others is None else _wait(pod, others)
    return _wait_or_refuse(pod, comes_late(pod, line, found, cluster))


def filtering(pod: Pod, cluster: Cluster) -> Iterator[None]:
    """Filter the nodes if the pod is the first of its class, and yield after each, so that `decide` takes less time."""
    if awaits_placement(pod, cluster.policy) and pod.request.fault is None and pod.request.line is None:
        asked = gpus_asked(pod, cluster)
        if isinstance(asked, CountRequest):
            yield from cluster.candidates.filtering(pod, asked, cluster.strategy)


def _without_claim(pod: Pod, unschedulable: Unschedulable) -> Wait:
    """Wait for the pod's own claim, also if the one that is there is refused: its user may make it anew."""
    return _wait(pod, NoFit(unschedulable, unschedulable.cured_by))


def _by_strategy(pod: Pod, request: CountRequest, cluster: Cluster) -> Decision:
    """Bind to the best node that fits and from which the pod's volumes can be reached.

    Otherwise say why no node fits.
    """
    fault = environment_complete(pod, None, by_field=True)
    if fault is not None:
        return _wait_or_refuse(pod, NoFit(fault, fault.cured_by))
    namespace = pod.ref.namespace
    limit, usage = cluster.limits.of(namespace), cluster.ledger.devices.usage
    over = None if pod.request.observer else quota.too_many(request.count, namespace, limit)
    if over is not None:
        return _wait_or_refuse(pod, NoFit(over, over.cured_by))
    ranking = cluster.candidates.ranking(pod, request, cluster.strategy)
    short = None if pod.request.observer else quota.too_many_more(request.count, namespace, limit, cluster.ledger)
    choices = ranking.choices() if short is None else ranking.beside(usage.devices_of(namespace))
    unreachable: list[Unschedulable] = []
    unpublished: list[Unschedulable] = []
    for choice in choices:
        placement = _chosen(pod, choice)
        left = None if limit.devices is None else quota.quota_left(assumed_hold(pod, placement), cluster.ledger, limit)
        if left is not None:
            short = short or left
            continue
        hidden = claims_allocatable(pod, placement, choice.node, cluster, request.selector)
        if hidden is not None:
            unpublished.append(hidden)
            continue
        found = cluster.volumes.filter(pod, choice.node)
        if found is None:
            notes = _priority_note(pod, request, cluster) + _claim_note(pod)
            reason = ranking.reason(choice, next(choices, None)) + notes
            return _bind(pod, placement, cluster, request.strategy or cluster.strategy, reason)
        if isinstance(found, Selection):
            # The pod's volumes are provisioned for this node. On another node the pod could not use them.
            return _wait(pod, NoFit(found.unschedulable, found.unschedulable.cured_by, found))
        unreachable.append(found)
    if short is not None and not ranking.permanent:
        return _wait_or_refuse(pod, NoFit(short, short.cured_by | {cluster.candidates.wait(ranking)}))
    if unreachable:
        unschedulable = diagnosis.volumes_unreachable(unreachable[0], len(unreachable))
    else:
        unschedulable = unpublished[0] if unpublished else cluster.candidates.unschedulable(ranking)
    # NodeChanged is left out: a node that changes updates the ranking, and the ranking requeues the pod.
    cured_by = {event for each in unreachable for event in each.cured_by if not isinstance(event, NodeChanged)}
    published = {event for each in unpublished for event in each.cured_by}
    wait = cluster.candidates.wait(ranking)
    return _wait_or_refuse(pod, NoFit(unschedulable, frozenset({wait, *cured_by, *published})))


def _priority_note(pod: Pod, request: CountRequest, cluster: Cluster) -> str:
    """Return what to add to the message if the namespace limits the pod's priority, otherwise an empty text."""
    counts = cluster.limits.priority(pod.ref.namespace, request.priority)
    if counts == request.priority or (request.strategy or cluster.strategy) is not Strategy.PRIORITY:
        return ""
    return f"; priority {request.priority} counts as {counts}, the maximum of namespace {pod.ref.namespace}"


def _claim_note(pod: Pod) -> str:
    """Return what to add to the message if the pod has a ResourceClaim of its own, otherwise an empty text."""
    own = pod.request.own_claim
    return "" if own is None else f"; by ResourceClaim {own.name}"


def _any_line(pod: Pod, line: LineRequest, cluster: Cluster) -> Decision:
    """Bind to the lowest free line that the pod can have now.

    Otherwise wait, for the reason of the lowest free line.
    """
    ledger, workload, placement_map = cluster.ledger, line.workload, line.map
    kept = ledger.reserved(pod.ref.uid)
    with closing(ledger.indices.free(workload, placement_map)) as free:
        lowest = next(free, None)
    named = [slot for index in (kept, lowest) if index is not None and (slot := placement_map.get(index)) is not None]
    if not named:
        none_left = gpu_filters.no_line_left(workload, placement_map, ledger, cluster.nodes)
        return _wait(pod, comes_late(pod, line, NoFit(none_left, none_left.cured_by), cluster))
    line_fit = LineFit(pod, workload, cluster, by_field=True)
    failures: list[NoFit] = []
    for slot in named:
        found = _line(pod, line, slot, line_fit, cluster)
        if not isinstance(found, NoFit):
            return found
        failures.append(found)
    line_class = cluster.lines.of(pod, line, partial(_asks_of, line, cluster))
    with closing(line_class.feasible(cluster.limits.of(pod.ref.namespace), cluster.line_checks)) as feasible:
        for slot in feasible:
            if line_fit.out_of(slot.node) is not None:
                # An earlier line of this node has failed for a reason that all its lines have.
                continue
            found = _line(pod, line, slot, line_fit, cluster)
            if not isinstance(found, NoFit):
                return found
            failures.append(found)
    cured_by: set[ClusterEvent] = {AnyIndexFreed(workload), cluster.lines.wait(line_class)}
    if line_class.over_limit:
        cured_by.add(QuotaChanged(pod.ref.namespace))
    first = comes_late(pod, line, failures[0], cluster)
    reserve = None if kept is None else (workload, kept)
    cured_by.update(*[each.cured_by for each in failures])
    return _wait(pod, NoFit(first.unschedulable, frozenset(cured_by)), reserve)


def _line(pod: Pod, line: LineRequest, slot: Slot, line_fit: LineFit, cluster: Cluster) -> Decision | NoFit:
    """Return the decision if the pod gets this line, or waits for it alone; otherwise why it cannot have the line."""
    found = line_fit.at(slot)
    if isinstance(found, Placement):
        others = waits_for_others(pod, line, cluster)
        return _bind_to_line(pod, found, cluster) if others is None else _wait(pod, others)
    if found.selection is not None:
        # The pod's volumes are provisioned for the node of this line. On another node it could not use them.
        return _wait(pod, found, (line.workload, slot.index))
    return found


def _asks_of(line: LineRequest, cluster: Cluster, pod: Pod) -> Asks:
    return LineFit(pod, line.workload, cluster, by_field=True).asks


def _chosen(pod: Pod, choice: Choice) -> Placement:
    """Return the placement of a choice. Devices are sorted by index, so that CUDA numbers them in the node's order."""
    devices = map(str, sorted(device.index for device in choice.devices))
    return placement_on(pod, choice.node, tuple(devices), None)


def _bind_to_line(pod: Pod, placement: Placement, cluster: Cluster) -> Bind:
    return _bind(pod, placement, cluster, BY_MAP, f"index {placement.index}")


def _bind(pod: Pod, placement: Placement, cluster: Cluster, strategy: str, reason: str) -> Bind:
    """Return a Bind. Its message has the words of kube-scheduler's event, then the devices and how they were chosen."""
    devices = {0: "no GPU", 1: f"GPU {placement.value}"}.get(len(placement.devices), f"GPUs {placement.value}")
    how = reason if strategy == BY_MAP else f"{strategy}: {reason}"
    message = f"Successfully assigned {pod.ref} to {placement.node} with {devices} ({how})"
    claims = allocations(pod, placement, cluster)
    return Bind(pod.ref, placement, message, strategy, reason, claims)


def _wait_or_refuse(pod: Pod, blocked: NoFit) -> Wait | Refuse:
    """Refuse if the pod's own text is at fault, otherwise wait."""
    unschedulable = blocked.unschedulable
    if unschedulable.reason in REFUSED_AT_ADMISSION:
        return Refuse(pod.ref, unschedulable.reason, unschedulable.message, unschedulable.topic)
    return _wait(pod, blocked)


def _wait(pod: Pod, blocked: NoFit, reserve: tuple[WorkloadKey, int] | None = None) -> Wait:
    unschedulable = blocked.unschedulable
    reserved = {ResourceClaimChanged(f"{pod.ref.namespace}/{name}") for name in pod.resource_claims}
    return Wait(
        pod.ref,
        unschedulable.reason,
        unschedulable.message,
        blocked.cured_by | reserved,
        unschedulable.topic,
        blocked.selection,
        reserve,
    )
