"""The hold of one pod. It lasts from assume until the pod is gone or finished. A terminating pod still holds.

LAW: a hold is derived from the pod alone, so that every replica and every restart derives the same.
"""

from collections.abc import Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Final

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.refs import PodRef, WorkloadKey
from gpu_scheduler.core.text import identifier


@immutable
class Hold:
    """What one pod holds."""

    ref: PodRef
    node: str
    devices: tuple[str, ...]
    """Its devices, by the names that it uses. An observer holds none."""
    named: tuple[str, ...]
    """Those of `devices` that its own map line names on this node. Other lines of its map may share them. These are
    usually all devices, and then it is the same tuple."""
    limit: int
    """Its limit of `nvidia.com/gpu`. On a node with a device plugin, it holds this number of devices and none by
    name."""
    workload: WorkloadKey | None
    """None when the pod has no readable map."""
    index: int | None
    sharing_any: bool
    deleting_since: str | None
    assumed: bool
    """True until the watch shows the pod bound."""
    memory: int = 0
    """MiB that it takes of each of its devices; 0 if it does not say."""
    shared: bool = False
    """A strategy placed it, and it is not exclusive: other such pods may use the rest of its devices' memory."""
    uuids: tuple[str, ...] = ()
    """What the first of `devices` were when it was bound, in their order; empty if that was not known."""
    together: bool = False
    """While it lasts, the lines of its map that no pod has are kept for its workload."""
    kept: bool = False
    """No pod has the line yet: it is kept for one of the workload, whose name `ref` has, with another uid."""
    assigned_at: str = ""
    """When it was bound (RFC 3339, UTC, microseconds). Empty while assumed: an assumed hold counts as the newest."""
    claims: tuple[str, ...] = ()
    """The ResourceClaims by which its kubelet gives it the devices; for a claim, its own name."""
    is_claim: bool = False
    """`ref` is an allocated ResourceClaim, which may outlive its pods and may be of pods of another scheduler."""

    @property
    def kept_line(self) -> int | None:
        """Return the index of the line that is kept; None if the holder is a pod or a claim."""
        return self.index if self.kept else None

    @property
    def kind(self) -> str:
        """Return the kind of object that `ref` names; empty for bare pods for which a line is kept."""
        if self.is_claim:
            return "ResourceClaim"
        if not self.kept:
            return "Pod"
        return "" if self.workload is None else self.workload.owner_kind

    @property
    def holder(self) -> str:
        """Return who holds, as text for people: the pod, the claim, or the workload for which the line is kept."""
        if self.is_claim:
            return f"{self.kind} {self.ref}"
        if not self.kept:
            return str(self.ref)
        name = f"{self.ref.namespace}/{identifier(self.ref.name)}"
        owner = (
            f"{identifier(self.kind)} {name}"
            if self.kind
            else f"pods of namespace {self.ref.namespace} that have one map"
        )
        return f"{owner} (line {self.index}, to start together)"


what_is_held: Final = attrgetter(*[each.name for each in fields(Hold) if each.name not in {"assumed", "assigned_at"}])
"""Returns all of a hold except what the confirmation of its bind changes."""


def assumed_hold(pod: Pod, placement: Placement) -> Hold:
    """Return what `pod` will hold at `placement`. The placement comes from its map line or from a strategy."""
    request = pod.request
    devices = placement.devices
    if request.keep_env:
        devices += tuple(device for device in pod.environment.own_devices or () if device not in devices)
    line = None if request.line is None or placement.index is None else request.line.slot_of(placement.index)
    return Hold(
        pod.ref,
        placement.node,
        () if request.observer else devices,
        () if request.observer or line is None else _of_line(pod, devices, line.devices),
        pod.gpu_limit,
        None if request.line is None else request.line.workload,
        placement.index,
        request.sharing_any,
        # The pod was not being deleted at the time of the decision. The watch shows a later change.
        None,
        assumed=True,
        memory=request.count.memory,
        shared=not request.count.exclusive,
        uuids=() if request.observer else placement.uuids or (),
        together=bool(placement.together),
        claims=pod.resource_claims,
    )


def hold_of(pod: Pod, node: str) -> Hold:
    """Return what `pod` holds. It must be bound to `node` and must not be finished."""
    request, assignment = pod.request, pod.assignment
    # Without our annotation no strategy chose its devices.
    by_strategy = assignment.devices is not None
    slot = None if request.line is None else request.line.slot
    # A line may name the node by an alias. Then our annotation has the real name.
    agrees = slot is not None and node in {slot.node, assignment.node}
    line = slot.devices if slot is not None and agrees else ()
    devices = () if request.observer else _devices_of(pod, line)
    return Hold(
        pod.ref,
        node,
        devices,
        _of_line(pod, devices, line),
        pod.gpu_limit,
        None if request.line is None else request.line.workload,
        None if request.line is None else request.line.index,
        request.sharing_any,
        pod.deleting_since,
        assumed=False,
        memory=request.count.memory if by_strategy else 0,
        shared=by_strategy and not request.count.exclusive,
        uuids=() if request.observer else assignment.uuids,
        together=started_together(pod),
        assigned_at=assignment.at,
        claims=pod.resource_claims,
    )


def in_order(holders: Iterable[Hold]) -> tuple[Hold, ...]:
    """Return the holders in the order of their names."""
    return tuple(sorted(holders, key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid)))


def without_claims_of_pods(holders: Iterable[Hold]) -> list[Hold]:
    """Return the holders without the claims by which pods among them hold."""
    found = list(holders)
    if not found:
        return found
    own = {(each.ref.namespace, claim) for each in found if not each.is_claim for claim in each.claims}
    return [each for each in found if not each.is_claim or (each.ref.namespace, each.ref.name) not in own]


def drifts(pod: Pod) -> bool:
    """Whether a bound pod reads its devices from an annotation that it does not have. It sees no GPU and holds none."""
    environment = pod.environment
    return pod.assignment.devices is None and environment.own_devices is None and environment.reads_assignment


def started_together(pod: Pod) -> bool:
    """Whether a Binding placed the pod when all lines of its map could be had.

    What the pod's owner can write by hand, the map and the request, does not suffice: it would keep any GPU.
    """
    line = pod.request.line
    return pod.request.together and line is not None and pod.assignment.together == line.workload.map


def own_index(pod: Pod) -> tuple[WorkloadKey, int] | None:
    """Return workload and index if a pending pod's own text says its index, otherwise None."""
    line = pod.request.line
    return None if line is None or line.index is None else (line.workload, line.index)


def _devices_of(pod: Pod, line: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first that exists: the annotation of our Binding, a literal in its spec, its map line.

    If the pod keeps its environment, the devices of the literal are added to those of annotation or line.
    """
    assigned, own, keep_env = pod.assignment.devices, pod.environment.own_devices, pod.request.keep_env
    if assigned is not None:
        devices = assigned
    elif own is not None and not keep_env:
        return own
    else:
        devices = () if pod.environment.reads_assignment else line
    if not keep_env:
        return devices
    return devices + tuple(device for device in own or () if device not in devices)


def _of_line(pod: Pod, devices: tuple[str, ...], line: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `devices` that the pod's line names. A pod with ResourceClaims has the UUIDs of its line."""
    if devices == line or (pod.isolated and len(devices) == len(line)):
        return devices
    named = frozenset(line)
    return tuple(device for device in devices if device in named)
