"""One pod in, one decision out: the heart of the scheduler, and the file to read first.

LAW: reads values and answers with a value that explains itself; event, condition, log line and metric are all rendered
from it. Nothing is changed here: who asked books the placement with `Ledger.assume`.
"""

from dataclasses import dataclass

from gpu_scheduler.core.feasible import gate_open, gpu_free, index_free, node_usable
from gpu_scheduler.core.ledger import Ledger, claim_of
from gpu_scheduler.core.model import Placement, Pod, PodRef, Policy
from gpu_scheduler.core.nodes import Nodes
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, NodeChanged, Obstacle, Reason, Wake
from gpu_scheduler.core.request import read_request


@dataclass(frozen=True, slots=True)
class Bind:
    """The pod can go there now. `message` is the text of its `Scheduled` event."""

    pod: PodRef
    placement: Placement
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """The cluster is not ready for this pod; any of `wakes` may change that."""

    pod: PodRef
    reason: Reason
    message: str
    wakes: frozenset[Wake]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The pod's own text is at fault; only a change of the pod cures it."""

    pod: PodRef
    reason: Reason
    message: str


Decision = Bind | Wait | Refuse


def awaits_placement(pod: Pod, policy: Policy) -> bool:
    """Whether `pod` is ours to place now: our scheduler's name, and neither bound, finished, deleting nor gated."""
    return (
        pod.scheduler_name == policy.scheduler_name
        and pod.node is None
        and not pod.gated
        and pod.deleting_since is None
        and not pod.finished
    )


def decide(pod: Pod, ledger: Ledger, nodes: Nodes, policy: Policy) -> Decision | None:
    """What to do with `pod`; None when there is nothing to decide: it awaits no placement, or its bind is under way."""
    if not awaits_placement(pod, policy) or ledger.holds(pod.ref.uid):
        return None
    request = read_request(pod)
    if isinstance(request, Obstacle):
        return _put_off(pod, request)
    slot = request.slot
    closed = gate_open(pod, slot.value)
    if closed is not None:
        return _put_off(pod, closed)
    node = nodes.resolve(slot.node)
    if isinstance(node, Obstacle):
        return _put_off(pod, node)
    placement = Placement(node.name, slot.devices, slot.index)
    claim = claim_of(pod, placement)
    # Who holds it before what ails the node: of a dead node, the pod that still terminates there is the better story.
    obstacle = index_free(claim, ledger, nodes) or gpu_free(claim, ledger, nodes, policy) or node_usable(node)
    if obstacle is not None:
        return _put_off(pod, obstacle, slot.node, node.name)
    return Bind(pod.ref, placement, _success(pod, placement))


def _put_off(pod: Pod, obstacle: Obstacle, *asked: str) -> Wait | Refuse:
    """Refuse for a fault of the pod's text, else wait: for what the obstacle names, and for the nodes `asked` about."""
    if obstacle.reason in REFUSED_AT_ADMISSION:
        return Refuse(pod.ref, obstacle.reason, obstacle.message)
    return Wait(pod.ref, obstacle.reason, obstacle.message, obstacle.wakes.union(map(NodeChanged, asked)))


def _success(pod: Pod, placement: Placement) -> str:
    """As Kubernetes says it, and what Kubernetes does not know."""
    devices = {0: "no GPU", 1: f"GPU {placement.value}"}.get(len(placement.devices), f"GPUs {placement.value}")
    return f"Successfully assigned {pod.ref} to {placement.node} with {devices} (index {placement.index})"
