"""What there is to say of cluster, nodes, cards and workloads, as plain facts: the JSON of the verbs, field for field.

Pure: from values to values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.core.namespace_limits import EVERY_OTHER, NO_LIMITS, parse_limits
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpu_scheduler.cli.installation import Installation, Leader
    from gpu_scheduler.cli.snapshot import ListedPod
    from gpu_scheduler.controller.objects import GpuWorkloadObject
    from gpu_scheduler.core.ledger.availability import DeviceState, NodeDevices
    from gpu_scheduler.core.ledger.devices import Conflict
    from gpu_scheduler.core.ledger.namespace_usage import NamespaceUsage
    from gpu_scheduler.core.pods.count_request import Strategy
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.kube.objects.agentaflow import GpuDevice

View = dict[str, Any]

POD: Final = "Pod"
MAP: Final = "map"
"""What stands for the strategy of a pod whose map says where it goes."""


def node_view(states: NodeDevices, devices: Mapping[int, GpuDevice]) -> View:
    """One node; `devices` is what its monitor lists."""
    node = states.node
    cards = [device_view(states, state, devices) for state in states.seats]
    memory = [card["memoryTotalMiB"] for card in cards if card["memoryTotalMiB"] is not None]
    return {
        "name": node.name,
        "alias": node.alias,
        "ready": node.ready,
        "cordoned": node.unschedulable,
        "stale": node.stale,
        "gpus": {"total": states.total, "held": states.held, "available": states.available, "unnamed": states.unnamed},
        "models": sorted({card["model"] for card in cards if card["model"]}),
        "memoryTotalMiB": sum(memory) if memory else None,
        "memoryUsedMiB": sum(card["memoryUsedMiB"] or 0 for card in cards) if memory else None,
        "utilization": states.utilization,
        "health": states.health,
        "tier": node.labels.get(names.TIER),
        "cards": cards,
    }


def device_view(states: NodeDevices, state: DeviceState, devices: Mapping[int, GpuDevice]) -> View:
    """One card; what nobody reads is None."""
    card, reading = state.card, state.reading if states.monitored and state.card is not None else None
    device = None if card is None else devices.get(card.index)
    return {
        "node": states.node.name,
        "device": state.name,
        "uuid": None if card is None else card.uuid,
        "model": None if card is None else card.model or None,
        "memoryTotalMiB": None if card is None else card.memory,
        "memoryUsedMiB": None if reading is None else reading.used,
        "utilization": None if reading is None else reading.utilization,
        "temperature": None if device is None else device.temperature,
        "power": None if device is None else device.power,
        "health": None if reading is None else reading.health,
        "stale": states.node.stale,
        "available": state.available,
        "holders": [
            {"namespace": each.ref.namespace, "name": each.ref.name, "memoryMiB": each.memory or None}
            for each in state.holders
        ],
    }


def pod_view(seen: ListedPod, strategy: Strategy) -> View:
    """One pod; `strategy` is that of pods that name none."""
    pod = seen.pod
    request = pod.request
    count = None if request.fault is not None or request.line is not None else request.count
    reason, message = waits_for(pod)
    chosen = (count.strategy or strategy) if count else None if request.fault is not None else MAP
    return {
        "namespace": pod.ref.namespace,
        "name": pod.ref.name,
        "uid": pod.ref.uid,
        "objectKind": POD,
        "phase": phase_of(pod),
        "node": pod.node,
        "devices": list(devices_of(pod)),
        "observer": pod.request.observer,
        "strategy": chosen,
        "priority": count.priority if count else None,
        "reason": reason,
        "message": message,
        "workload": pod.owner.name if pod.owner is not None and pod.owner.kind == names.WORKLOAD_KIND else None,
        "createdAt": seen.created or None,
    }


def workload_view(workload: GpuWorkloadObject, strategy: Strategy) -> View:
    """One GPUWorkload."""
    meta, spec, status = workload.metadata, workload.spec, workload.status
    template = spec.pod_template.metadata
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "objectKind": names.WORKLOAD_KIND,
        "phase": (status and status.phase) or "Pending",
        "node": (status and status.node) or None,
        "devices": list((status and status.devices) or ()),
        "observer": ((template and template.annotations) or {}).get(names.OBSERVER) == "true",
        "strategy": spec.scheduling_strategy or strategy,
        "priority": spec.priority,
        "reason": (status and status.reason) or None,
        "message": (status and status.message) or None,
        "workload": None,
        "createdAt": meta.creation_timestamp,
    }


def phase_of(pod: Pod) -> str:
    """As Kubernetes says it, but for the two that matter here: bound and not started, and on its way out."""
    if pod.deleting_since is not None and not pod.finished:
        return "Terminating"
    return "Scheduled" if pod.bound and pod.phase == "Pending" else pod.phase


def waits_for(pod: Pod) -> tuple[str | None, str | None]:
    """The word and the whole text of why a pod has no node; None where it has one, or nobody has looked yet."""
    condition = pod.scheduled_condition
    if pod.bound or pod.finished or condition is None or condition.status == "True":
        return None, None
    word = condition.message.partition(":")[0]
    return (word if word in tuple(Reason) else condition.reason or None), condition.message or None


def devices_of(pod: Pod) -> tuple[str, ...]:
    """What a bound pod sees, whether or not it holds it: what its Binding says, else what its containers say."""
    if not pod.bound:
        return ()
    assigned = pod.assignment.devices
    return (pod.environment.own_devices or ()) if assigned is None else assigned


def limits_view(text: str, usage: NamespaceUsage, namespace: str | None) -> View:
    """What each namespace with a line may have and what its pods hold, or of `namespace` alone; and what is wrong."""
    limits, faults = parse_limits(text)
    told = limits.lines if namespace is None else {namespace: limits.of(namespace)}
    lines = [
        {"namespace": name, "devices": limit.devices, "held": usage.used(name), "priority": limit.priority}
        for name, limit in sorted(told.items())
    ]
    others = limits.others
    every = [{"namespace": EVERY_OTHER, "devices": others.devices, "held": None, "priority": others.priority}]
    return {
        "lines": lines + (every if namespace is None and others != NO_LIMITS.others else []),
        "faults": list(faults),
    }


def status_view(  # noqa: PLR0913 - the parts of the screen
    *,
    api: tuple[str, str],
    installation: Installation,
    leader: Leader | None,
    racks: Sequence[NodeDevices],
    pods: Iterable[Pod],
    conflicts: Iterable[Conflict],
    limits: View,
) -> View:
    """The cluster as a whole; `api` is the context and the address."""
    alive = [pod for pod in pods if not pod.finished]
    waiting = [(pod, *waits_for(pod)) for pod in alive if not pod.bound]
    equipped = [states for states in racks if states.total]
    return {
        "context": api[0] or None,
        "server": api[1],
        "leader": None if leader is None else {"holder": leader.holder, "since": leader.since},
        "strategy": {"name": installation.strategy, "source": installation.source},
        "gpus": {
            "total": sum(states.total or 0 for states in racks),
            "held": sum(states.held for states in racks),
            "available": sum(states.available for states in racks),
            "unhealthy": sum(state.reading.health is Health.UNHEALTHY for states in racks for state in states.seats),
        },
        "nodes": {
            "total": len(racks),
            "ready": sum(states.node.ready for states in racks),
            "withGpus": len(equipped),
            "stale": [states.node.name for states in racks if states.node.stale],
        },
        "workloads": {
            "pending": len(waiting),
            "running": len(alive) - len(waiting),
            "waiting": [
                {
                    "namespace": pod.ref.namespace,
                    "name": pod.ref.name,
                    "observer": pod.request.observer,
                    "reason": reason,
                    "message": message,
                }
                for pod, reason, message in waiting
            ],
        },
        "limits": limits,
        "conflicts": [
            {"node": each.node, "device": each.device, "pods": [str(each.first.ref), str(each.second.ref)]}
            for each in conflicts
        ],
    }
