"""Changes the cluster of a dry run as the options ask: nodes are drained, devices are broken, pods are gone.

LAW: pure. Each function returns the pods that lose their place by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpu_scheduler import names
from gpu_scheduler.cli.options import RefusedInputError
from gpu_scheduler.core.nodes.inventory import UNREAD, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.text import natural, quote
from gpu_scheduler.scheduler.ports import InputKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.scheduler.dry_run import DryRun

_STAYS: Final = "DaemonSet"
"""The kind of controller whose pods a drain leaves where they are, as kubectl does."""
_SHOWN: Final = 8
"""Most names that a message lists."""


def drain(dry_run: DryRun, name: str) -> list[Pod]:
    """Cordon the node and evict its pods. RefusedInputError if there is no such node, or several."""
    node = _node(dry_run, name, "--drain", name)
    dry_run.apply(InputKind.NODE, replace(node, unschedulable=True))
    of_node = [pod for pod in dry_run.pods if pod.node == node.name]
    return _evicted(dry_run, [pod for pod in of_node if pod.owner is None or pod.owner.kind != _STAYS])


def break_devices(dry_run: DryRun, name: str, devices: Iterable[str]) -> list[Pod]:
    """Make devices of a node unhealthy, and evict the pods that hold them.

    RefusedInputError if it is not known which devices the node has, or if it has no such device.
    """
    given = tuple(devices)
    shown = f"{name}:{','.join(given)}"
    node = _node(dry_run, name, "--without", shown)
    inventory = node.inventory
    if inventory is None:
        raise RefusedInputError(
            f"cannot use --without {quote(shown)}: no monitor and no device plugin lists the GPUs of {node.name}; "
            f"drain it instead (example: --drain {node.name})"
        )
    parts = {device: inventory.find(device) for device in given}
    unknown = next((device for device, part in parts.items() if part is None), None)
    if unknown is not None:
        raise RefusedInputError(
            f"cannot use --without {quote(shown)}: {node.name} has no GPU {quote(unknown)}; its GPUs are {inventory} "
            f"(example: gpu-scheduler nodes -o wide)"
        )
    broken = {part.index for part in parts.values() if part is not None}
    readings = {index: replace(node.readings.get(index, UNREAD), health=Health.UNHEALTHY) for index in broken}
    left = node.allocatable.get(names.GPU_RESOURCE)
    fewer = {} if left is None else {names.GPU_RESOURCE: max(0, left - len(broken))}
    changed = replace(node, readings={**node.readings, **readings}, allocatable={**node.allocatable, **fewer})
    dry_run.apply(InputKind.NODE, changed)
    holds = [hold for hold in dry_run.cluster.ledger if hold.node == node.name]
    named = ((hold.ref.uid, map(inventory.find, hold.devices)) for hold in holds)
    holders = {uid for uid, found in named if any(part is not None and part.index in broken for part in found)}
    return _evicted(dry_run, [pod for pod in dry_run.pods if pod.ref.uid in holders])


def forget_pod(dry_run: DryRun, namespace: str, name: str) -> None:
    """Remove a pod: its index, devices and resources are free. RefusedInputError if it does not exist."""
    pod = next((pod for pod in dry_run.pods if (pod.ref.namespace, pod.ref.name) == (namespace, name)), None)
    if pod is None:
        raise RefusedInputError(
            f"cannot use --assume-gone {quote(name)}: namespace {namespace} has no such pod of this scheduler; "
            "name one that it has (example: gpu-scheduler workloads -A)"
        )
    dry_run.evict(pod)


def _evicted(dry_run: DryRun, pods: list[Pod]) -> list[Pod]:
    """Remove these pods. Return those that have not finished, in the order of their names."""
    for pod in pods:
        dry_run.evict(pod)
    alive = [pod for pod in pods if not pod.finished]
    return sorted(alive, key=lambda pod: (pod.ref.namespace, natural(pod.ref.name)))


def _node(dry_run: DryRun, name: str, option: str, shown: str) -> Node:
    nodes = dry_run.cluster.nodes
    found = nodes.resolve(name)
    if isinstance(found, Node):
        return found
    known = sorted((node.name for node in nodes), key=natural)
    more = ", …" if len(known) > _SHOWN else ""
    raise RefusedInputError(
        f"cannot use {option} {quote(shown)}: it must name one node, and {quote(name)} does not; "
        f"the nodes are {', '.join(known[:_SHOWN]) or 'none'}{more} (example: kubectl get nodes)"
    )
