"""Checks of nodes and pods: monitors, GPUs that are handed out in two ways, pods without their GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_scheduler.cli.doctor.findings import CheckFinding, listed
from gpu_scheduler.core.text import number_of
from gpu_scheduler.names import ASSIGNED_DEVICES, GPU_RESOURCE, MONITOR

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.cli.doctor.facts import Facts


def check_monitors(facts: Facts) -> Iterator[CheckFinding]:
    """The monitors run on all their nodes."""
    monitors = facts.monitors.value
    if monitors is not None and monitors.available < monitors.wanted:
        yield CheckFinding(
            f"DaemonSet {MONITOR} has {monitors.available} of {monitors.wanted} monitors available",
            f"kubectl describe pods -n {MONITOR}",
            f"daemonset/{MONITOR}",
        )


def check_monitor_leases(facts: Facts) -> Iterator[CheckFinding]:
    """Each monitor renews its Lease."""
    silent = [node for node, lease in facts.monitor_leases.value.items() if lease.expired]
    if silent:
        yield CheckFinding(
            f"the monitors of nodes are silent, so that no strategy uses these nodes: {listed(silent)}",
            f"kubectl get pods -n {MONITOR} -o wide",
            f"daemonset/{MONITOR}",
        )


def check_mixed_nodes(facts: Facts) -> Iterator[CheckFinding]:
    """On no node do pods of a device plugin and pods with named GPUs share the GPUs."""
    for use in facts.gpus.value.mixed:
        pods = listed(map(str, use.by_name))
        yield CheckFinding(
            f"on {use.node} the device plugin has handed out {number_of(use.by_plugin, 'GPU')}, and pods hold GPUs by "
            f"name: {pods}; nobody knows whether they are the same GPUs",
            f"give all pods there a limit of {GPU_RESOURCE}, or none (kubectl get pods -A --field-selector "
            f"spec.nodeName={use.node})",
            f"node/{use.node}",
        )


def check_drift(facts: Facts) -> Iterator[CheckFinding]:
    """Each bound pod that reads its GPUs from our annotation has it."""
    for pod in facts.gpus.value.drifting:
        yield CheckFinding(
            f"pod {pod} reads its GPUs from annotation {ASSIGNED_DEVICES}, which it does not have: it sees no GPU",
            f"kubectl delete pod {pod.name} -n {pod.namespace}",
            f"pod/{pod.name}",
        )


def check_moved(facts: Facts) -> Iterator[CheckFinding]:
    """Each GPU that a pod was given by index still has this index."""
    for hold, moved in facts.gpus.value.moved:
        for each in moved:
            yield CheckFinding(
                f"on {hold.node}, {each}: pod {hold.ref} may use either",
                f"kubectl delete pod {hold.ref.name} -n {hold.ref.namespace}",
                f"pod/{hold.ref.name}",
            )


def check_conflicts(facts: Facts) -> Iterator[CheckFinding]:
    """No GPU is held twice against the rules."""
    for conflict in facts.gpus.value.conflicts:
        # Of a claim and a pod, the pod can be deleted.
        pod = (conflict.first if conflict.second.is_claim else conflict.second).ref
        yield CheckFinding(
            f"GPU {conflict.device} of {conflict.node} is held by {conflict.first.holder} and {conflict.second.holder}",
            f"kubectl delete pod {pod.name} -n {pod.namespace}",
            f"pod/{pod.name}",
        )
