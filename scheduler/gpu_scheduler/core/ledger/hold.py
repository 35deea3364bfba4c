"""What one pod holds, as far as its own text tells: from assume until it is gone or finished, terminating included.

LAW: derived from the pod alone, so that every replica and every restart derives the same.
"""

import re
from dataclasses import dataclass
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.count_request import CountRequest, read_count
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.placement_map import MapError, PlacementMap, Slot, parse_number, parse_placement_map
from gpu_scheduler.core.pods.pod import Pod, workload_of
from gpu_scheduler.core.pods.pod_index import static_index
from gpu_scheduler.core.pods.visible_devices import devices_in, literals, reads_annotation
from gpu_scheduler.core.refs import PodRef, WorkloadKey

_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
"""A time as our Bindings write it: times that are written alike sort like text."""


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
    """Its limit of `nvidia.com/gpu`; where a device plugin answers that, it claims so many cards and none by name."""
    workload: WorkloadKey | None
    """None when the pod has no readable map."""
    index: int | None
    sharing_any: bool
    deleting_since: str | None
    assumed: bool
    """True until the watch shows the pod bound."""
    memory: int = 0
    """MiB that it takes of each of its cards, as far as it says."""
    shared: bool = False
    """A strategy placed it, and it leaves the rest of its cards' memory to others of its kind."""
    assigned_at: str = ""
    """When it was bound (RFC 3339, UTC, microseconds); empty while assumed: nothing is newer."""


def assumed_hold(pod: Pod, placement: Placement) -> Hold:
    """What `pod` will hold at `placement`, the place that its map line or a strategy gives it."""
    kept = literals(pod) if pod.keep_env else None
    devices = placement.devices + tuple(device for device in kept or () if device not in placement.devices)
    placement_map = _map_of(pod)
    slot = _slot(placement_map, placement.index)
    memory, shared = _share_of(pod)
    return Hold(
        pod.ref,
        placement.node,
        () if pod.observer else devices,
        () if pod.observer or slot is None else _among(devices, slot.devices),
        pod.gpu_limit,
        None if placement_map is None else workload_of(pod, placement_map),
        placement.index,
        pod.sharing_any,
        # It was not when this was decided; the watch will tell.
        None,
        assumed=True,
        memory=memory,
        shared=shared,
    )


def hold_of(pod: Pod, node: str) -> Hold:
    """What a live pod holds that is bound to `node`."""
    placement_map = _map_of(pod)
    index = _index_of(pod)
    # Without our annotation no strategy chose its devices.
    memory, shared = _share_of(pod) if names.ASSIGNED_DEVICES in pod.annotations else (0, False)
    assigned_at = pod.annotations.get(names.ASSIGNED_AT, "")
    slot = _slot(placement_map, index)
    # A line may name the node by an alias; then our own annotation says what it meant.
    agrees = slot is not None and node in {slot.node, pod.annotations.get(names.ASSIGNED_NODE)}
    line = slot.devices if slot is not None and agrees else ()
    devices = () if pod.observer else _devices_of(pod, line)
    return Hold(
        pod.ref,
        node,
        devices,
        _among(devices, line),
        pod.gpu_limit,
        None if placement_map is None else workload_of(pod, placement_map),
        index,
        pod.sharing_any,
        pod.deleting_since,
        assumed=False,
        memory=memory,
        shared=shared,
        assigned_at=assigned_at if _MOMENT.fullmatch(assigned_at) else "",
    )


def drifts(pod: Pod) -> bool:
    """Whether a bound pod reads its devices from an annotation it does not have: it sees no GPU and holds none."""
    return names.ASSIGNED_DEVICES not in pod.annotations and literals(pod) is None and reads_annotation(pod)


def own_index(pod: Pod) -> tuple[WorkloadKey, int] | None:
    """The one index that a pending pod can use, where its own text says which."""
    index, placement_map = static_index(pod), _map_of(pod)
    return (workload_of(pod, placement_map), index) if placement_map is not None and isinstance(index, int) else None


def _devices_of(pod: Pod, line: tuple[str, ...]) -> tuple[str, ...]:
    """The first that exists: the annotation of our Binding, a literal in its spec, its map line.

    A literal that the pod keeps beside the map comes on top.
    """
    assigned = pod.annotations.get(names.ASSIGNED_DEVICES)
    own = literals(pod)
    if assigned is not None:
        devices = devices_in(assigned)
    elif own is not None and not pod.keep_env:
        return own
    else:
        devices = () if reads_annotation(pod) else line
    if not pod.keep_env:
        return devices
    return devices + tuple(device for device in own or () if device not in devices)


def _among(devices: tuple[str, ...], line: tuple[str, ...]) -> tuple[str, ...]:
    if devices == line:
        return devices
    named = frozenset(line)
    return tuple(device for device in devices if device in named)


def _share_of(pod: Pod) -> tuple[int, bool]:
    """MiB that a pod placed by strategy takes of each of its cards, and whether it leaves the rest to others."""
    asked = read_count(pod) if pod.map_text is None else None
    return (asked.memory, not asked.exclusive) if isinstance(asked, CountRequest) else (0, False)


def _slot(placement_map: PlacementMap | None, index: int | None) -> Slot | None:
    return None if placement_map is None or index is None else placement_map.get(index)


def _map_of(pod: Pod) -> PlacementMap | None:
    try:
        return None if pod.map_text is None else parse_placement_map(pod.map_text)
    except MapError:
        return None


def _index_of(pod: Pod) -> int | None:
    if pod.map_text is None:
        return None
    assigned = pod.annotations.get(names.ASSIGNED_INDEX)
    if assigned is not None:
        return parse_number(assigned)
    index = static_index(pod)
    return index if isinstance(index, int) else None
