"""Cluster, nodes, devices and workloads as plain data: the verbs' JSON, field for field.

The functions are pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpu_scheduler import names
from gpu_scheduler.core.decision import BY_MAP
from gpu_scheduler.core.namespace_limits import EVERY_OTHER, NO_LIMITS, parse_limits
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES
from gpu_scheduler.core.nodes.inventory import Health
from gpu_scheduler.core.pods.request import COUNT_IGNORED
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpu_scheduler.cli.installation import Installation, Leader
    from gpu_scheduler.cli.snapshot import ListedNode, Snapshot
    from gpu_scheduler.controller.objects import GpuWorkloadObject
    from gpu_scheduler.core.ledger.availability import DeviceState, NodeDevices
    from gpu_scheduler.core.ledger.conflicts import Conflict
    from gpu_scheduler.core.ledger.hold import Hold
    from gpu_scheduler.core.ledger.namespace_usage import NamespaceUsage
    from gpu_scheduler.core.nodes.inventory import Device, DeviceReading
    from gpu_scheduler.core.pods.count_request import Strategy
    from gpu_scheduler.core.pods.pod import Pod

View = dict[str, Any]

POD: Final = "Pod"
CLAIM: Final = "ResourceClaim"


def node_views(snapshot: Snapshot) -> list[View]:
    """Return each node, with its devices and their holders and observers."""
    nodes = snapshot.node_devices
    observers = _observers_of(nodes, snapshot.pods)
    return [_node_view(each, snapshot, observers.get(each.node.name, {})) for each in nodes]


def _node_view(states: NodeDevices, snapshot: Snapshot, observers: Mapping[str, Sequence[View]]) -> View:
    """Return one node. `observers` are those of the node, by device."""
    listed, objects = snapshot.listed[states.node.name], snapshot.objects
    renewed = objects.silent.get(states.node.name, "")
    node = states.node
    # If the Leases may not be listed, nobody knows whether monitors are silent.
    stale = None if objects.no_leases else node.stale
    silence = f"its monitor has not renewed its Lease{f' since {renewed}' if renewed else ''}" if stale else ""
    views = [
        {
            **device_view(states, state, listed, stale=stale, silence=silence),
            "observers": list(observers.get(state.name, ())),
        }
        for state in states.devices
    ]
    memory = [device["memoryTotalMiB"] for device in views if device["memoryTotalMiB"] is not None]
    return {
        "name": node.name,
        "alias": node.alias,
        "ready": node.ready,
        "cordoned": node.unschedulable,
        "stale": stale,
        "gpus": {"total": states.total, "held": states.held, "available": states.available, "unnamed": states.unnamed},
        "models": sorted({device["model"] for device in views if device["model"]}),
        "memoryTotalMiB": sum(memory) if memory else None,
        "memoryUsedMiB": sum(device["memoryUsedMiB"] or 0 for device in views) if memory else None,
        "utilization": states.utilization,
        "health": states.health,
        "tier": node.labels.get(names.TIER),
        "taints": [{"key": each.key, "value": each.value or None, "effect": each.effect} for each in node.taints],
        "why": "; ".join(_limits_of(states, views, silence)) or None,
        "cards": views,
    }


def _limits_of(states: NodeDevices, devices: Sequence[View], silence: str) -> Iterator[str]:
    """Yield why the next pod cannot have each device of the node."""
    node = states.node
    if not node.ready:
        yield "it is not Ready"
    if node.unschedulable:
        yield f"it is cordoned (kubectl uncordon {node.name})"
    if silence:
        yield silence
    if states.total is None:
        yield "nothing lists its GPUs"
    for cordon in node.cordons:
        which = "all its GPUs are" if cordon.device == ALL_DEVICES else f"GPU {cordon.device} is"
        yield f"{which} cordoned {cordon.by_whom}"
    for device in devices:
        if device["health"] not in {None, Health.HEALTHY}:
            yield f"GPU {device['device']} is {device['health']}: {device['why']}"
    if states.total and states.held >= states.total:
        yield "each GPU is held"
    if states.unnamed:
        yield f"a device plugin handed out {number_of(states.unnamed, 'GPU')}"


def _observers_of(nodes: Iterable[NodeDevices], pods: Iterable[Pod]) -> dict[str, dict[str, list[View]]]:
    """Return by node and device the observers that see the device. They hold none."""
    by_name = {states.node.name: states.node for states in nodes}
    found: dict[str, dict[str, list[View]]] = {}
    for pod in pods:
        node = by_name.get(pod.node or "") if pod.request.observer and not pod.finished else None
        for name in () if node is None else devices_of(pod):
            part = None if node is None or node.inventory is None else node.inventory.find(name)
            device = name if part is None else str(part.index)
            observer = {"namespace": pod.ref.namespace, "name": pod.ref.name}
            found.setdefault(pod.node or "", {}).setdefault(device, []).append(observer)
    return found


def device_view(
    states: NodeDevices, state: DeviceState, listed: ListedNode, *, stale: bool | None, silence: str
) -> View:
    """Return one device; values that no monitor reads are None. `silence` says why its node is stale, if it is."""
    device, reading = state.device, state.reading if states.monitored and state.device is not None else None
    details = None if device is None else listed.devices.get(device.index)
    cordoned = "" if state.cordon is None else f"cordoned {state.cordon.by_whom}"
    return {
        "node": states.node.name,
        "device": state.name,
        "uuid": None if device is None else device.uuid,
        "model": None if device is None else device.model or None,
        "memoryTotalMiB": None if device is None else device.memory,
        "memoryUsedMiB": None if reading is None else reading.used,
        "utilization": None if reading is None else reading.utilization,
        "temperature": None if details is None else details.temperature,
        "power": None if details is None else details.power,
        "health": None if reading is None else reading.health,
        "why": "; ".join(filter(None, (cordoned, _fault(reading, device, listed), silence))) or None,
        "stale": stale,
        "cordoned": state.cordon is not None,
        "available": state.available,
        "holders": [
            {**_holder_view(each), "memoryMiB": each.memory or None, "since": each.assigned_at or None}
            for each in state.holders
        ],
    }


def _fault(reading: DeviceReading | None, device: Device | None, listed: ListedNode) -> str:
    """Return what is wrong with the device; empty if it is healthy or no monitor reads it."""
    if reading is None or device is None or reading.health is Health.HEALTHY:
        return ""
    return listed.faults.get(device.index) or f"annotation {names.DEVICES} of its node says {reading.health}"


def pod_view(pod: Pod, strategy: Strategy | None) -> View:
    """Return one pod; `strategy` is the strategy of pods that name none, None if it is unknown."""
    request = pod.request
    count = None if request.fault is not None or request.line is not None else request.count
    reason, message = waits_for(pod)
    chosen = (count.strategy or strategy) if count else None if request.fault is not None else BY_MAP
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
        "why": "; ".join(filter(None, (message, COUNT_IGNORED if request.count_ignored else None))) or None,
        "since": _since(pod, reason),
        "workload": pod.owner.name if pod.owner is not None and pod.owner.kind == names.WORKLOAD_KIND else None,
        "createdAt": pod.created or None,
    }


def _since(pod: Pod, reason: str | None) -> str | None:
    """Return since when a pod has its devices, or waits for its reason (RFC 3339)."""
    if pod.bound:
        return pod.assignment.at or None
    condition = pod.scheduled_condition
    return condition.since if reason is not None and condition is not None else None


def workload_view(workload: GpuWorkloadObject, strategy: Strategy | None) -> View:
    """Return one GPUWorkload; `strategy` is the strategy of workloads that name none, None if it is unknown."""
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
        "why": (status and status.message) or None,
        "since": None,
        "workload": None,
        "createdAt": meta.creation_timestamp,
    }


def phase_of(pod: Pod) -> str:
    """Return the pod's phase in Kubernetes, or "Terminating", or "Scheduled" if it is bound but has not started."""
    if pod.deleting_since is not None and not pod.finished:
        return "Terminating"
    return "Scheduled" if pod.bound and pod.phase == "Pending" else pod.phase


def waits_for(pod: Pod) -> tuple[str | None, str | None]:
    """Return reason and message of why a pod has no node.

    Both are None if the pod has a node, has finished, or the scheduler has not tried it yet.
    """
    condition = pod.scheduled_condition
    if pod.bound or pod.finished or condition is None or condition.status == "True":
        return None, None
    word = condition.message.partition(":")[0]
    return (word if word in tuple(Reason) else condition.reason or None), condition.message or None


def devices_of(pod: Pod) -> tuple[str, ...]:
    """Return the devices that a bound pod sees, even if it holds none: from its Binding, else from its containers."""
    if not pod.bound:
        return ()
    assigned = pod.assignment.devices
    return (pod.environment.own_devices or ()) if assigned is None else assigned


def leader_view(leader: Leader | None) -> View | None:
    """Return the leader, or None if there is none."""
    return None if leader is None else {"holder": leader.holder, "since": leader.since}


def limits_view(text: str | None, usage: NamespaceUsage, namespace: str | None) -> View:
    """Return limit and use of each namespace with a line in the limits, or of `namespace` only.

    `faults` lists what is wrong in `text`. If it is None, the limits are unknown.
    """
    if text is None:
        return {"lines": None, "faults": []}
    limits, faults = parse_limits(text)
    shown = limits.lines if namespace is None else {namespace: limits.of(namespace)}
    lines = [
        {"namespace": name, "devices": limit.devices, "held": usage.used(name), "priority": limit.priority}
        for name, limit in sorted(shown.items())
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
    node_devices: Sequence[NodeDevices],
    pods: Iterable[Pod],
    conflicts: Iterable[Conflict],
    limits: View,
    leases_read: bool,
) -> View:
    """Return the state of the whole cluster; `api` is the context and the API server's address.

    Without `leases_read` nobody knows whether monitors are silent.
    """
    unfinished = [pod for pod in pods if not pod.finished]
    waiting = [(pod, *waits_for(pod)) for pod in unfinished if not pod.bound]
    with_gpus = [states for states in node_devices if states.total]
    return {
        "context": api[0] or None,
        "server": api[1],
        "leader": leader_view(leader),
        "strategy": {"name": installation.strategy, "source": installation.source},
        "gpus": {
            "total": sum(states.total or 0 for states in node_devices),
            "held": sum(states.held for states in node_devices),
            "available": sum(states.available for states in node_devices),
            "unhealthy": sum(
                state.reading.health is Health.UNHEALTHY for states in node_devices for state in states.devices
            ),
        },
        "nodes": {
            "total": len(node_devices),
            "ready": sum(states.node.ready for states in node_devices),
            "withGpus": len(with_gpus),
            "stale": [states.node.name for states in node_devices if states.node.stale] if leases_read else None,
        },
        "workloads": {
            "pending": len(waiting),
            "running": len(unfinished) - len(waiting),
            "waiting": [
                {
                    "namespace": pod.ref.namespace,
                    "name": pod.ref.name,
                    "observer": pod.request.observer,
                    "reason": reason,
                    "message": message,
                    "since": _since(pod, reason),
                }
                for pod, reason, message in waiting
            ],
        },
        "limits": limits,
        "conflicts": [
            {
                "node": each.node,
                "device": each.device,
                "pods": [str(each.first.ref), str(each.second.ref)],
                "kinds": [each.first.kind, each.second.kind],
            }
            for each in conflicts
        ],
        "grid": [grid_view(states) for states in node_devices if states.devices],
    }


def _holder_view(holder: Hold) -> View:
    """Return which object holds a device."""
    ref = holder.ref
    return {"kind": holder.kind or None, "namespace": ref.namespace, "name": ref.name, "line": holder.kept_line}


def holder_name(holder: View) -> str:
    """Return a pod or a ResourceClaim that holds a device, or the workload for which a line of its map is kept."""
    shown = "/".join(filter(None, (holder["namespace"], holder["name"])))
    if holder["kind"] == CLAIM:
        return f"{CLAIM} {shown}"
    return shown if holder["line"] is None else f"{shown} (line {holder['line']})"


def grid_view(states: NodeDevices) -> View:
    """Return the holders of each device of a node, and why the next pod cannot have a device that nobody holds."""
    return {
        "node": states.node.name,
        "unnamed": states.unnamed,
        "devices": [
            {
                "device": state.name,
                "state": _state_of(states, state),
                "holders": [holder_name(_holder_view(each)) for each in state.holders],
            }
            for state in states.devices
        ],
    }


def _state_of(states: NodeDevices, state: DeviceState) -> str:
    """Return "held", "free", or the one word that says why the next pod cannot have the device."""
    node = states.node
    if state.holders:
        return "held"
    if not node.ready:
        return "NotReady"
    if node.unschedulable or state.cordon is not None:
        return "cordoned"
    if state.reading.health is Health.UNHEALTHY:
        return "unhealthy"
    return "stale" if node.stale else "plugin" if states.unnamed else "free"
