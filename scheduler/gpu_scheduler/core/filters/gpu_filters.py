"""Whether a pod can have what its map line asks for: one function a question, which answers None or an Obstacle.

LAW: a question reads and answers; it changes nothing and knows no other question. What a node must have beside its
GPUs is asked in fitting.py.
"""

from collections.abc import Iterable

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
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.nodes.inventory import UNREAD, Health
from gpu_scheduler.core.nodes.nodes import ANY_NODE, Node, Nodes
from gpu_scheduler.core.pods.placement_map import PlacementMap, device_kind
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.refs import PodRef, WorkloadKey

_ROLLING = (
    "in a rolling update the old pod must go first: maxUnavailable of at least 1, "
    "OnDelete where lines swap GPUs, or a spare line in the map"
)


def cards_exist(devices: Iterable[str], node: Node) -> Unschedulable | None:
    """The node has these devices, as far as its inventory can tell."""
    inventory = node.inventory
    if inventory is None:
        return None
    for device in devices:
        checked = inventory.has_uuids or device_kind(device) == "number"
        if checked and inventory.find(device) is None:
            have = f"cards 0 to {len(inventory.cards) - 1}" if inventory.cards else "no cards"
            return Unschedulable(
                Reason.GPU_NOT_FOUND,
                f"cannot find GPU {device} on node {node.name}: its inventory has {have}",
                f"name one that it has: kubectl get node {node.name} -o jsonpath="
                f"'{{.metadata.annotations.agentaflow\\.gpu/devices}}{{.status.capacity.nvidia\\.com/gpu}}'",
                frozenset({NodeChanged(node.name, Aspect.INVENTORY)}),
            )
    return None


def index_free(workload: WorkloadKey, index: int, ledger: Ledger, nodes: Nodes) -> Unschedulable | None:
    """No other pod of the workload has this index, terminating ones included."""
    holder = ledger.index_holder(workload, index)
    if holder is None:
        return None
    remedy = "wait until it ends, or give this pod another index; a rolling update needs maxUnavailable of at least 1"
    thing = f"index {index} of this workload"
    return _held(Reason.INDEX_HELD, thing, holder, remedy, nodes, IndexChanged(workload, index))


def no_line_left(workload: WorkloadKey, placement_map: PlacementMap, ledger: Ledger, nodes: Nodes) -> Unschedulable:
    """Why a pod that would take any line of the map finds none."""
    lines = len(placement_map.indices)
    every = f"every index of the map ({lines} line{'s' if lines > 1 else ''}) is held or claimed"
    holders = (ledger.index_holder(workload, index) for index in placement_map.indices)
    holder = next((each for each in holders if each is not None), None)
    if holder is None:
        remedy = "add a line to the map, or run fewer replicas"
        return Unschedulable(Reason.NO_FREE_INDEX, every, remedy, frozenset({AnyIndexFreed(workload)}))
    return _held(
        Reason.NO_FREE_INDEX,
        f"{every}, and index {holder.index}",
        holder,
        f"run fewer replicas than the map has lines; {_ROLLING}",
        nodes,
        AnyIndexFreed(workload),
    )


def gpu_free(claim: Hold, ledger: Ledger, nodes: Nodes, policy: Policy) -> Unschedulable | None:
    """Nobody else holds the devices, except those that may share them."""
    for device in claim.devices:
        for holder in ledger.devices.rivals(claim.node, device):
            if holder.ref.uid == claim.ref.uid or ledger.devices.may_share(claim, holder, device, policy.sharing):
                continue
            if device in holder.devices:
                thing = f"GPU {device} of {claim.node}"
            else:
                thing = f"GPU {device} of {claim.node}, as {','.join(holder.devices)},"
            card = ledger.devices.card(claim.node, device) if device in holder.devices else ""
            wake = DeviceChanged(claim.node, card)
            return _held(Reason.GPU_HELD, thing, holder, _cure(claim, holder, policy), nodes, wake)
    return None


def gpu_healthy(claim: Hold, node: Node) -> Unschedulable | None:
    """The monitor calls no card of the claim unhealthy; its silence binds nobody who named the card."""
    plugin_chooses = node.advertised is not None and claim.limit
    if node.inventory is None or plugin_chooses:
        return None
    for device in claim.devices:
        part = node.inventory.find(device)
        if part is not None and node.readings.get(part.card, UNREAD).health is Health.UNHEALTHY:
            return Unschedulable(
                Reason.GPU_UNHEALTHY,
                f"cannot use GPU {device} of {node.name}: its monitor reports it unhealthy",
                f"name another GPU in the map, or repair it and wait for the monitor; it says why: "
                f"kubectl get node {node.name} -o jsonpath='{{.metadata.annotations.agentaflow\\.gpu/devices}}'",
                frozenset({NodeChanged(node.name, Aspect.HEALTH)}),
            )
    return None


def plugin_apart(claim: Hold, node: Node, ledger: Ledger) -> Unschedulable | None:
    """Where a device plugin hands out cards, nobody may hold one by name: the plugin would not know of it."""
    if node.advertised is None:
        return None
    other: PodRef | None = None
    if claim.limit:
        holder = ledger.devices.named_holder(node.name)
        other = None if holder is None else holder.ref
    elif claim.devices:
        other = ledger.occupancy.plugin_user(node.name)
    if other is None:
        return None
    held = "by its name" if claim.limit else "of the device plugin's choice"
    return Unschedulable(
        Reason.GPU_HELD,
        f"GPUs of {node.name} are held by {other} {held}, and nobody can tell whether they are this pod's",
        f"wait until it ends, name another node, or give all pods of a node a limit of {names.GPU_RESOURCE}, or none",
        frozenset({DeviceChanged(node.name, "")}),
    )


def cards_left(pod: Pod, node: Node, nodes: Nodes, occupancy: UsedResources) -> Unschedulable | None:
    """The device plugin has as many cards left as the pod's limit asks for."""
    asked = pod.gpu_limit
    if not asked or (node.advertised is None and (node.inventory is not None or not nodes.advertising)):
        # Nobody hands out cards here: the limit is only a count.
        return None
    total = node.allocatable.get(names.GPU_RESOURCE, 0)
    used = occupancy.used(node.name, names.GPU_RESOURCE)
    if asked <= total - used:
        return None
    return Unschedulable(
        Reason.NOT_ENOUGH_GPUS,
        f"cannot get {asked} {names.GPU_RESOURCE} on node {node.name}: "
        f"{used} of {total} are used, {max(total - used, 0)} are free",
        "wait until pods there end, or name another node",
        frozenset(
            {
                ResourceFreed(node.name, names.GPU_RESOURCE),
                NodeChanged(node.name, Aspect.ALLOCATABLE),
                NodeChanged(node.name, Aspect.INVENTORY),
                NodeChanged(ANY_NODE, Aspect.INVENTORY),
            }
        ),
        about=node.name,
    )


def _held(  # noqa: PLR0913, PLR0917 - one sentence, six words
    reason: Reason, thing: str, holder: Hold, remedy: str, nodes: Nodes, freed: ClusterEvent
) -> Unschedulable:
    """`thing` is held; by whom, and what helps."""
    what = f"{thing} is held by {holder.ref}"
    if holder.deleting_since is None:
        return Unschedulable(reason, what, remedy, frozenset({freed}))
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
    state = "is not Ready" if isinstance(node, Node) else "does not exist any more"
    return Unschedulable(
        reason,
        f"{what}, and its node {holder.node} {state}, so nothing confirms its end",
        f"bring {holder.node} back or, when its machine is certainly off, let Kubernetes give it up: "
        f"kubectl taint node {holder.node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        cured_by,
    )


def _cure(claim: Hold, holder: Hold, policy: Policy) -> str:
    """What helps against a holder that is alive."""
    if _one_owner(claim, holder):
        return _ROLLING
    remedy = "wait until it ends, delete it, or name another GPU in the map"
    if policy.sharing is Sharing.SAME_WORKLOAD:
        remedy += f'; to share it, both pods need annotation {names.SHARING}: "any"'
    return remedy


def _one_owner(one: Hold, other: Hold) -> bool:
    """Whether one controller made both, though maybe from two versions of its map."""
    if one.workload is None or other.workload is None or not one.workload.owner_kind:
        return False
    first, second = one.workload, other.workload
    return (first.namespace, first.owner_kind, first.owner_name) == (
        second.namespace,
        second.owner_kind,
        second.owner_name,
    )
