"""What one pod holds, as far as its own text tells: from assume until it is gone or finished, terminating included.

LAW: derived from the pod alone, so that every replica and every restart derives the same.
"""

from dataclasses import dataclass

from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.refs import PodRef, WorkloadKey


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod holds."""

    ref: PodRef
    node: str
    devices: tuple[str, ...]
    """What it claims, as it names them; an observer claims none."""
    named: tuple[str, ...]
    """Those of them that its own map line names on this node: what other lines of its map may share. As a rule all, and
    then the same tuple."""
    limit: int
    """Its limit of `nvidia.com/gpu`; where a device plugin answers that, it claims so many devices and none by name."""
    workload: WorkloadKey | None
    """None when the pod has no readable map."""
    index: int | None
    sharing_any: bool
    deleting_since: str | None
    assumed: bool
    """True until the watch shows the pod bound."""
    memory: int = 0
    """MiB that it takes of each of its devices, as far as it says."""
    shared: bool = False
    """A strategy placed it, and it leaves the rest of its devices' memory to others of its kind."""
    assigned_at: str = ""
    """When it was bound (RFC 3339, UTC, microseconds); empty while assumed: nothing is newer."""


def assumed_hold(pod: Pod, placement: Placement) -> Hold:
    """What `pod` will hold at `placement`, the place that its map line or a strategy gives it."""
    request = pod.request
    kept = pod.environment.own_devices if request.keep_env else None
    devices = placement.devices + tuple(device for device in kept or () if device not in placement.devices)
    line = None if request.line is None or placement.index is None else request.line.slot_of(placement.index)
    return Hold(
        pod.ref,
        placement.node,
        () if request.observer else devices,
        () if request.observer or line is None else _among(devices, line.devices),
        pod.gpu_limit,
        None if request.line is None else request.line.workload,
        placement.index,
        request.sharing_any,
        # It was not when this was decided; the watch will tell.
        None,
        assumed=True,
        memory=request.count.memory,
        shared=not request.count.exclusive,
    )


def hold_of(pod: Pod, node: str) -> Hold:
    """What a live pod holds that is bound to `node`."""
    request, assignment = pod.request, pod.assignment
    # Without our annotation no strategy chose its devices.
    by_strategy = assignment.devices is not None
    slot = None if request.line is None else request.line.slot
    # A line may name the node by an alias; then our own annotation says what it meant.
    agrees = slot is not None and node in {slot.node, assignment.node}
    line = slot.devices if slot is not None and agrees else ()
    devices = () if request.observer else _devices_of(pod, line)
    return Hold(
        pod.ref,
        node,
        devices,
        _among(devices, line),
        pod.gpu_limit,
        None if request.line is None else request.line.workload,
        None if request.line is None else request.line.index,
        request.sharing_any,
        pod.deleting_since,
        assumed=False,
        memory=request.count.memory if by_strategy else 0,
        shared=by_strategy and not request.count.exclusive,
        assigned_at=assignment.at,
    )


def drifts(pod: Pod) -> bool:
    """Whether a bound pod reads its devices from an annotation it does not have: it sees no GPU and holds none."""
    environment = pod.environment
    return pod.assignment.devices is None and environment.own_devices is None and environment.reads_assignment


def own_index(pod: Pod) -> tuple[WorkloadKey, int] | None:
    """The one index that a pending pod can use, where its own text says which."""
    line = pod.request.line
    return None if line is None or line.index is None else (line.workload, line.index)


def _devices_of(pod: Pod, line: tuple[str, ...]) -> tuple[str, ...]:
    """The first that exists: the annotation of our Binding, a literal in its spec, its map line.

    A literal that the pod keeps beside the map comes on top.
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


def _among(devices: tuple[str, ...], line: tuple[str, ...]) -> tuple[str, ...]:
    if devices == line:
        return devices
    named = frozenset(line)
    return tuple(device for device in devices if device in named)
