"""Whether a pod can have what its map line asks for: one function a question, which answers None or an Obstacle.

LAW: a question reads and answers; it changes nothing and knows no other question. A new check is one more function
here.
"""

from itertools import chain

from gpu_scheduler import names
from gpu_scheduler.core.environment import conflict, lacks, wanted
from gpu_scheduler.core.ledger import Holder, Ledger, may_share
from gpu_scheduler.core.model import Node, Pod, Policy, Sharing
from gpu_scheduler.core.nodes import Nodes
from gpu_scheduler.core.reasons import GpuChanged, IndexChanged, NodeChanged, Obstacle, Reason, Wake


def gate_open(pod: Pod, value: str) -> Obstacle | None:
    """Every container carries the devices `value`, or reads them from our annotation. After the bind it is too late."""
    needed = wanted(value)
    # A conflict first, wherever it stands: the webhook would refuse it, with the same words.
    obstacles = chain(
        (conflict(pod, container, needed) for container in pod.containers),
        (lacks(container, needed) for container in pod.containers),
    )
    return next((obstacle for obstacle in obstacles if obstacle is not None), None)


def index_free(claim: Holder, ledger: Ledger, nodes: Nodes) -> Obstacle | None:
    """No other pod of the workload has this index, terminating ones included."""
    if claim.workload is None or claim.index is None:
        return None
    holder = ledger.index_holder(claim.workload, claim.index)
    if holder is None:
        return None
    cure = "wait until it ends, or give this pod another index; a rolling update needs maxUnavailable of at least 1"
    return _held(
        Reason.INDEX_HELD,
        f"index {claim.index} of this workload",
        holder,
        cure,
        nodes,
        IndexChanged(claim.workload, claim.index),
    )


def gpu_free(claim: Holder, ledger: Ledger, nodes: Nodes, policy: Policy) -> Obstacle | None:
    """Nobody else holds the devices, except those that may share them."""
    for device in claim.devices:
        for holder in ledger.holders(claim.node, device):
            if not may_share(claim, holder, device, policy.sharing):
                return _held(
                    Reason.GPU_HELD,
                    f"GPU {device} of {claim.node}",
                    holder,
                    _cure(claim, holder, policy),
                    nodes,
                    GpuChanged(claim.node, device),
                )
    return None


def node_usable(node: Node) -> Obstacle | None:
    """The node is Ready, and pods may be put on it."""
    if not node.ready:
        return Obstacle(
            Reason.NODE_NOT_READY,
            f"cannot use node {node.name}: it is not Ready",
            f"see why: kubectl describe node {node.name}",
        )
    if node.unschedulable:
        return Obstacle(
            Reason.NODE_UNSCHEDULABLE,
            f"cannot use node {node.name}: it is cordoned",
            f"kubectl uncordon {node.name}",
        )
    return None


def _held(  # noqa: PLR0913, PLR0917 - one sentence, six words
    reason: Reason, thing: str, holder: Holder, cure: str, nodes: Nodes, freed: Wake
) -> Obstacle:
    """`thing` is held; by whom, and what helps."""
    what = f"{thing} is held by {holder.ref}"
    if holder.deleting_since is None:
        return Obstacle(reason, what, cure, frozenset({freed}))
    what = f"{what}, terminating since {holder.deleting_since}"
    wakes = frozenset({freed, NodeChanged(holder.node)})
    node = nodes.resolve(holder.node)
    if isinstance(node, Node) and node.ready:
        cure = (
            f"it is free when that pod is gone; if it hangs, see its finalizers and events: "
            f"kubectl describe pod -n {holder.ref.namespace} {holder.ref.name}"
        )
        return Obstacle(reason, what, cure, wakes)
    state = "is not Ready" if isinstance(node, Node) else "does not exist any more"
    return Obstacle(
        reason,
        f"{what}, and its node {holder.node} {state}, so nothing confirms its end",
        f"bring {holder.node} back or, when its machine is certainly off, let Kubernetes give it up: "
        f"kubectl taint node {holder.node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
        wakes,
    )


def _cure(claim: Holder, holder: Holder, policy: Policy) -> str:
    """What helps against a holder that is alive."""
    if _one_owner(claim, holder):
        return (
            "in a rolling update the old pod must go first: maxUnavailable of at least 1, "
            "OnDelete where lines swap GPUs, or a spare line in the map"
        )
    cure = "wait until it ends, delete it, or name another GPU in the map"
    if policy.sharing is Sharing.SAME_WORKLOAD:
        cure += f'; to share it, both pods need annotation {names.SHARING}: "any"'
    return cure


def _one_owner(one: Holder, other: Holder) -> bool:
    """Whether one controller made both, though maybe from two versions of its map."""
    if one.workload is None or other.workload is None or not one.workload.owner_kind:
        return False
    first, second = one.workload, other.workload
    return (first.namespace, first.owner_kind, first.owner_name) == (
        second.namespace,
        second.owner_kind,
        second.owner_name,
    )
