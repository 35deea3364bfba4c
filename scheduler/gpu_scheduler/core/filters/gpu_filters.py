"""Filters of devices and indices: can a pod have what its map line asks for? Each returns None or an Unschedulable.

LAW: a filter changes nothing and calls no other filter. node_filters.py has the filters of everything except GPUs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import (
    AnyIndexFreed,
    Aspect,
    ClusterEvent,
    DeviceChanged,
    IndexChanged,
    NodeChanged,
    ResourceFreed,
)
from gpu_scheduler.core.ledger.hold import Hold, in_order, without_claims_of_pods
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.nodes.cordons import ALL_DEVICES, Cordon
from gpu_scheduler.core.nodes.inventory import UNREAD, Health
from gpu_scheduler.core.nodes.nodes import ANY_NODE, Node, Nodes
from gpu_scheduler.core.pods.placement_map import NUMBER, PlacementMap, device_kind
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.refs import PodRef, WorkloadKey
from gpu_scheduler.core.text import number_of

_ROLLING: Final = (
    "in a rolling update the old pod must go first: maxUnavailable of at least 1, "
    "OnDelete or Recreate where lines swap GPUs, or a spare line in the map"
)
_NEW_MAP: Final = "scale to 0 before a change of the map: pods that start together keep all lines of the old one"
_SPARE_LINE: Final = made_anew("add a line to the map")
_OTHER_GPU: Final = made_anew("name another GPU")
_OTHER_GPUS: Final = made_anew("name other GPUs")
_OTHER_NODE: Final = made_anew("name another node")

_KINDS: Final = {NUMBER: "number", "GPU": "UUID", "MIG": "MIG UUID"}
"""The kinds of names of a device, in words."""

_MOST_HOLDERS: Final = 3
"""Of the pods that hold what a pod waits for, this many are named. The others are counted."""


def devices_exist(devices: Iterable[str], node: Node) -> Unschedulable | None:
    """Check that the node's inventory has these devices. A node without an inventory passes."""
    inventory = node.inventory
    if inventory is None:
        return None
    for device in devices:
        if device_missing(device, node):
            have = f"GPUs 0 to {len(inventory.devices) - 1}" if inventory.devices else "no GPUs"
            return Unschedulable(
                Reason.GPU_NOT_FOUND,
                f"cannot find GPU {device} on node {node.name}: its inventory has {have}",
                f"{made_anew('name one that it has')}; which there are: kubectl gpu-scheduler nodes -o wide",
                frozenset({NodeChanged(node.name, Aspect.INVENTORY)}),
            )
    return None


def device_missing(device: str, node: Node) -> bool:
    """Whether the node's inventory says that there is no such device."""
    inventory = node.inventory
    if inventory is None or inventory.find(device) is not None:
        return False
    return inventory.has_uuids or device_kind(device) == NUMBER


def index_free(workload: WorkloadKey, index: int, ledger: Ledger, nodes: Nodes) -> Unschedulable | None:
    """Check that no other pod of the workload has this index. Terminating pods count too."""
    holder = ledger.index_holder(workload, index)
    if holder is None:
        return None
    remedy = f"wait until it ends, or {made_anew('write another index')}"
    if workload.owner_kind:
        remedy += "; a rolling update needs maxUnavailable of at least 1"
    thing = f"index {index} of this workload"
    found = _held(Reason.INDEX_HELD, thing, holder, remedy, nodes, IndexChanged(workload, index))
    # A controller makes the pod that is deleted anew.
    return replace(found, blockers=()) if workload.owner_kind else found


def no_line_left(workload: WorkloadKey, placement_map: PlacementMap, ledger: Ledger, nodes: Nodes) -> Unschedulable:
    """Return why a pod that would take any line of the map finds none."""
    lines = len(placement_map.indices)
    every = f"every index of the map ({number_of(lines, 'line')}) is held or claimed"
    held = ((index, ledger.index_holder(workload, index)) for index in placement_map.indices)
    shown = list(islice(((index, holder) for index, holder in held if holder is not None), _MOST_HOLDERS))
    owned = "run fewer replicas than the map has lines" if workload.owner_kind else "run fewer pods with this map"
    if not shown:
        remedy = f"wait until the pods that wait for these indices are gone, {owned}, or {_SPARE_LINE}"
        return Unschedulable(Reason.NO_FREE_INDEX, every, remedy, frozenset({AnyIndexFreed(workload)}))
    (index, first), *others = shown
    found = _held(
        Reason.NO_FREE_INDEX,
        f"{every}, and index {index}",
        first,
        f"{owned}; {_ROLLING}" if workload.owner_kind else f"wait until one ends, {owned}, or {_SPARE_LINE}",
        nodes,
        AnyIndexFreed(workload),
    )
    more = f", and {lines - len(shown)} more" if lines > len(shown) else ""
    detail = "".join(f", index {index} by {holder.ref}" for index, holder in others) + more
    # A controller makes the pod that is deleted anew.
    return replace(found, detail=detail, blockers=() if workload.owner_kind else found.blockers)


def blocking_holds(candidate: Hold, ledger: Ledger, nodes: Nodes, policy: Policy) -> dict[str, tuple[str, Hold]]:
    """Return by uid who holds one of the devices and may not share it, and the device.

    Of a device that the node does not have, a pod that names its device in another way is no holder.
    """
    rivals = [(device, ledger.devices.rivals(candidate.node, device)) for device in candidate.devices]
    blocking: dict[str, tuple[str, Hold]] = {}
    if not any(holders for _, holders in rivals):
        return blocking
    shared = ledger.devices.shared_by(candidate, policy.sharing)
    node = nodes.resolve(candidate.node)
    for device, holders in rivals:
        missing = isinstance(node, Node) and device_missing(device, node)
        apart = []
        for holder in without_claims_of_pods(holders):
            uid = holder.ref.uid
            if uid == candidate.ref.uid or uid in blocking or shared.allows(holder, device):
                continue
            if not missing or ledger.devices.certainly_holds(holder, device):
                apart.append(holder)
        blocking.update((holder.ref.uid, (device, holder)) for holder in in_order(apart))
    return blocking


def gpu_free(candidate: Hold, ledger: Ledger, nodes: Nodes, policy: Policy) -> Unschedulable | None:
    """Check that no other pod holds the devices, except pods that may share them."""
    blocking = blocking_holds(candidate, ledger, nodes, policy)
    if not blocking:
        return None
    (device, first), *others = blocking.values()
    thing = f"GPU {device} of {candidate.node}"
    was = _name_before(first, device, ledger)
    same_kind = bool(was) or device in first.devices
    if was:
        thing += f", GPU {was} until it moved,"
    elif not same_kind:
        thing += f", as {','.join(first.devices)},"
    key = ledger.devices.key(candidate.node, device) if device in first.devices else ""
    freed = DeviceChanged(candidate.node, key)
    remedy = _remedy(candidate, list(blocking.values()), policy, same_kind=same_kind)
    found = _held(Reason.GPU_HELD, thing, first, remedy, nodes, freed)
    shown = others[: _MOST_HOLDERS - 1]
    rest = [holder for _, holder in others[len(shown) :]]
    kind = "more holder" if any(holder.is_claim for holder in rest) else "more pod"
    more = f", and {number_of(len(rest), kind)}" if rest else ""
    detail = "".join(f", GPU {device} by {holder.holder}" for device, holder in shown) + more
    return replace(found, detail=detail, blockers=_whose_end_frees(candidate, blocking.values(), ledger))


def gpu_healthy(candidate: Hold, node: Node) -> Unschedulable | None:
    """Check that the monitor reports no device of the candidate as unhealthy.

    A monitor that reports nothing does not stop a pod that names its devices.
    """
    plugin_chooses = node.advertised is not None and candidate.limit
    if node.inventory is None or plugin_chooses:
        return None
    for device in candidate.devices:
        part = node.inventory.find(device)
        if part is not None and node.readings.get(part.index, UNREAD).health is Health.UNHEALTHY:
            return Unschedulable(
                Reason.GPU_UNHEALTHY,
                f"cannot use GPU {device} of {node.name}: its monitor reports it unhealthy",
                f"repair it and wait for the monitor, or {_OTHER_GPU}; why: kubectl gpu-scheduler health",
                frozenset({NodeChanged(node.name, Aspect.HEALTH)}),
            )
    return None


def gpu_in_service(devices: Iterable[str], node: Node, *, plugin_chooses: bool) -> Unschedulable | None:
    """Check that no device is cordoned. Observers are checked too: an operator wants nobody to use the device.

    If a device plugin chooses the devices, it may choose a cordoned one, so all devices must be in service.
    """
    if not node.cordons:
        return None
    if plugin_chooses:
        return _out_of_service(f"GPUs of {node.name} that its device plugin chooses", "", node.cordons, node)
    cordons = [(device, each) for device in devices for each in node.cordons if each.covers(device, node.inventory)]
    if not cordons:
        return None
    device = cordons[0][0]
    return _out_of_service(f"GPU {device} of {node.name}", device, [cordon for _, cordon in cordons], node)


def plugin_apart(candidate: Hold, node: Node, ledger: Ledger) -> Unschedulable | None:
    """Check that a node has no pods of both kinds: devices by name, and devices from a device plugin.

    The plugin does not know which devices are held by name.
    """
    if node.advertised is None:
        return None
    by_name = ledger.devices.named_holder(node.name) if candidate.limit else None
    plugin_user = ledger.used_resources.plugin_user(node.name) if candidate.devices and not candidate.limit else None
    other = plugin_user if by_name is None else by_name.holder
    if other is None:
        return None
    held, edit = ("by name", "leave out the") if candidate.limit else ("of the device plugin's choice", "add a")
    return Unschedulable(
        Reason.GPU_HELD,
        f"GPUs of {node.name} are held by {other} {held}, and it is unknown whether these are the pod's",
        "wait until it ends, or " + made_anew(f"{edit} limit of {names.GPU_RESOURCE} or name another node"),
        frozenset({DeviceChanged(node.name, "")}),
    )


def plugin_devices_left(pod: Pod, node: Node, nodes: Nodes, used_resources: UsedResources) -> Unschedulable | None:
    """Check that the device plugin has as many devices left as the pod's limit asks for."""
    asked = pod.gpu_limit
    if not asked or (node.advertised is None and (node.inventory is not None or not nodes.advertising)):
        # No device plugin hands out devices here: the limit is only a count.
        return None
    total = node.allocatable.get(names.GPU_RESOURCE, 0)
    used = used_resources.used(node.name, names.GPU_RESOURCE)
    if asked <= total - used:
        return None
    # Without any, its device plugin may be starting.
    beyond = asked > total > 0
    if beyond:
        first = "no waiting helps: ask for fewer GPUs"
    else:
        first = "wait until pods there end," if total else "start its device plugin,"
    return Unschedulable(
        Reason.NOT_ENOUGH_GPUS,
        f"cannot get {asked} {names.GPU_RESOURCE} on node {node.name}",
        f"{first} or {_OTHER_NODE}",
        frozenset(
            {
                ResourceFreed(node.name, names.GPU_RESOURCE),
                NodeChanged(node.name, Aspect.ALLOCATABLE),
                NodeChanged(node.name, Aspect.INVENTORY),
                NodeChanged(ANY_NODE, Aspect.INVENTORY),
            }
        ),
        detail=f": {used} of {total} are used, {max(total - used, 0)} are free",
        beyond=beyond,
    )


def _out_of_service(thing: str, device: str, cordons: Sequence[Cordon], node: Node) -> Unschedulable:
    """Return an Unschedulable that says who cordoned the device, why and until when: the first of the cordons."""
    cordon = cordons[0]
    whole = cordon.device == ALL_DEVICES
    cordoned = (
        "it is" if cordon.device == device else "all GPUs of the node are" if whole else f"GPU {cordon.device} is"
    )
    what = f"cannot use {thing}: {cordoned} cordoned"
    command = f"kubectl gpu-scheduler uncordon {node.name}{'' if whole else f':{cordon.device}'}"
    return Unschedulable(
        Reason.GPU_CORDONED,
        what,
        f"when it may be used again: {command}",
        frozenset({NodeChanged(node.name, Aspect.CORDONS), NodeChanged(node.name, Aspect.INVENTORY)}),
        detail=f" {cordon.by_whom}",
        command=command if all(each == cordon for each in cordons) else "",
    )


def _name_before(holder: Hold, device: str, ledger: Ledger) -> str:
    """Return by which name the pod was given a GPU that has moved and is `device` now; empty if it is no such GPU."""
    if device in holder.devices:
        return ""
    key = ledger.devices.key(holder.node, device)
    return next((each.device for each in ledger.devices.moved_of(holder) if str(each.index) == key), "")


def _held(  # noqa: PLR0913, PLR0917 - one sentence, six words
    reason: Reason, thing: str, holder: Hold, remedy: str, nodes: Nodes, freed: ClusterEvent
) -> Unschedulable:
    """Return an Unschedulable that says which pod holds `thing`, and the remedy."""
    what = f"{thing} is held by {holder.holder}"
    if holder.kept or holder.is_claim:
        return Unschedulable(reason, what, remedy, frozenset({freed}))
    if holder.deleting_since is None:
        return Unschedulable(reason, what, remedy, frozenset({freed}), blockers=(holder.ref,))
    what = f"{what}, terminating since {holder.deleting_since}"
    cured_by = frozenset(
        {freed, NodeChanged(holder.node, Aspect.IDENTITY), NodeChanged(holder.node, Aspect.READY)},
    )
    node = nodes.resolve(holder.node)
    if isinstance(node, Node) and node.ready:
        remedy = (
            f"it is free when that pod is gone; if it hangs, see its finalizers and events: "
            f"kubectl describe pod -n {holder.ref.namespace} {holder.ref.name}"
        )
        return Unschedulable(reason, what, remedy, cured_by)
    if isinstance(node, Node):
        state = "is not Ready"
        remedy = f"bring {holder.node} back, so that its kubelet ends that pod, or {_OTHER_NODE}"
    else:
        state = "does not exist any more"
        remedy = "wait until Kubernetes deletes that pod, about a minute after its node"
    what = f"{what}, and its node {holder.node} {state}, so no kubelet confirms its end"
    return Unschedulable(reason, what, remedy, cured_by)


def _whose_end_frees(candidate: Hold, blocking: Iterable[tuple[str, Hold]], ledger: Ledger) -> tuple[PodRef, ...]:
    """Return the pods that must end; none if their end would not free the devices, or may be of no use.

    No pod's end frees what a line or a claim keeps. A pod whose name for its device is not known to mean this one may
    hold another. A controller makes its pod anew. `blocking` has each holder with a device.
    """
    found: list[PodRef] = []
    for device, holder in blocking:
        certain = ledger.devices.certainly_holds(holder, device)
        if holder.kept or holder.is_claim or not certain or _one_owner(candidate, holder):
            return ()
        if holder.deleting_since is None:
            found.append(holder.ref)
    return tuple(found)


def _remedy(candidate: Hold, blocking: list[tuple[str, Hold]], policy: Policy, *, same_kind: bool) -> str:
    """Return the remedy if the first holder is not terminating. `blocking` has each holder with a device.

    `same_kind`: the first holder names its device as `candidate` does.
    """
    (_, first), *others = blocking
    if first.kept:
        return f"{_NEW_MAP if _one_owner(candidate, first) else 'wait until that workload has ended'}, or {_OTHER_GPU}"
    if first.is_claim:
        command = f"kubectl describe resourceclaim -n {first.ref.namespace} {first.ref.name}"
        return f"it is free when no pod uses that claim: {command}; or {_OTHER_GPU}"
    if _one_owner(candidate, first):
        return _ROLLING
    if others:
        remedy, share = f"wait until they end, or {_OTHER_GPUS}", "share, recreate all of these"
    else:
        kind = "" if same_kind else _KINDS.get(device_kind(first.devices[0]) or "", "")
        other_gpu = made_anew(f"name another GPU by its {kind}") if kind else _OTHER_GPU
        remedy, share = f"wait until it ends, or {other_gpu}", "share it, recreate both"
    if policy.sharing is Sharing.SAME_WORKLOAD:
        remedy += f'; to {share} pods with annotation {names.SHARING}: "any"'
    return remedy


def _one_owner(one: Hold, other: Hold) -> bool:
    """Whether one controller made both pods, possibly from two versions of its map."""
    if one.workload is None or other.workload is None or not one.workload.owner_kind:
        return False
    first, second = one.workload, other.workload
    return (first.namespace, first.owner_kind, first.owner_name) == (
        second.namespace,
        second.owner_kind,
        second.owner_name,
    )
