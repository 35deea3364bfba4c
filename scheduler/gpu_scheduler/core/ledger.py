"""Who holds which GPU and which index.

LAW: no locks, no time, no search: every question and every change costs what the pod itself holds. All of it follows
from the pods as the API shows them, so a ledger rebuilt from a list equals the live one, assumptions aside.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, TypeVar

from gpu_scheduler import names
from gpu_scheduler.core.environment import devices_in, literals, reads_annotation
from gpu_scheduler.core.model import Placement, Pod, PodRef, Policy, Sharing, WorkloadKey, workload_of
from gpu_scheduler.core.placement_map import MapError, PlacementMap, parse_number, parse_placement_map
from gpu_scheduler.core.pod_index import static_index
from gpu_scheduler.core.reasons import GpuChanged, IndexChanged, Wake

_Key = TypeVar("_Key")

_NOBODY: Final[frozenset[Wake]] = frozenset()


@dataclass(frozen=True, slots=True)
class Holder:
    """What one pod holds, from assume until it is gone or finished; terminating included."""

    ref: PodRef
    node: str
    devices: tuple[str, ...]
    """What it claims; an observer claims none."""
    named: frozenset[str]
    """Those of them that its own map line names on this node: what other lines of its map may share."""
    workload: WorkloadKey | None
    """None when the pod has no readable map."""
    index: int | None
    sharing_any: bool
    deleting_since: str | None
    assumed: bool
    """True until the watch shows the pod bound."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two pods that hold one device against the rules."""

    node: str
    device: str
    first: Holder
    second: Holder


def claim_of(pod: Pod, placement: Placement) -> Holder:
    """What `pod` will hold at `placement`, the place that its map line gives it."""
    kept = literals(pod) if pod.keep_env else None
    devices = placement.devices + tuple(device for device in kept or () if device not in placement.devices)
    placement_map = _map_of(pod)
    return Holder(
        pod.ref,
        placement.node,
        () if pod.observer else devices,
        frozenset() if pod.observer else frozenset(placement.devices),
        None if placement_map is None else workload_of(pod, placement_map),
        placement.index,
        pod.sharing_any,
        pod.deleting_since,
        assumed=True,
    )


def may_share(one: Holder, other: Holder, device: str, sharing: Sharing) -> bool:
    """Whether both may hold `device` of a node at once."""
    if sharing is Sharing.NONE:
        return False
    if sharing is Sharing.ANY or (one.sharing_any and other.sharing_any):
        return True
    return (
        one.workload is not None
        and one.workload == other.workload
        and one.index != other.index
        and device in one.named
        and device in other.named
    )


class Ledger:
    """All holds of one scheduler's pods."""

    __slots__ = ("_by_device", "_by_index", "_by_uid", "_crowded", "_drifting", "_policy")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_uid: dict[str, Holder] = {}
        self._by_device: dict[tuple[str, str], dict[str, Holder]] = {}
        self._by_index: dict[tuple[WorkloadKey, int], dict[str, Holder]] = {}
        self._crowded: set[tuple[str, str]] = set()
        self._drifting: set[str] = set()

    def apply(self, pod: Pod) -> frozenset[Wake]:
        """Take `pod` as the watch shows it (added or modified); answers what changed for those who wait."""
        uid = pod.ref.uid
        if pod.scheduler_name != self._policy.scheduler_name:
            return _NOBODY
        if pod.finished:
            return self.forget(uid)
        if pod.node is None:
            # Older than our own bind, or before any: what is assumed stays so, since no pod ever loses its node.
            return _NOBODY
        holder = _holder_of(pod, pod.node)
        before = self._remove(uid)
        self._insert(holder)
        if _drifts(pod):
            self._drifting.add(uid)
        if before is not None and before.assumed:
            # Confirmed as it was assumed: nothing new to anybody.
            before = replace(before, assumed=False)
        # Else who waits for it may have its turn, or should hear another reason.
        return _NOBODY if before is None or before == holder else _asked_about(before)

    def forget(self, uid: str) -> frozenset[Wake]:
        """The pod is gone, or its bind definitely failed; answers what became free."""
        gone = self._remove(uid)
        return _NOBODY if gone is None else _asked_about(gone)

    def assume(self, pod: Pod, placement: Placement) -> None:
        """Book `placement` before its bind is sent; it stays booked until apply or forget settles it."""
        self._remove(pod.ref.uid)
        self._insert(claim_of(pod, placement))

    def holds(self, uid: str) -> bool:
        """Whether this pod holds a place, assumed or bound: a bind for it is under way or done."""
        return uid in self._by_uid

    def holders(self, node: str, device: str) -> tuple[Holder, ...]:
        """Who claims this device, in order of name."""
        return _ordered(self._by_device.get((node, device)))

    def index_holder(self, workload: WorkloadKey, index: int) -> Holder | None:
        """Who holds this index of the workload (the first by name)."""
        return next(iter(_ordered(self._by_index.get((workload, index)))), None)

    def conflicts(self) -> tuple[Conflict, ...]:
        """Pairs that hold one device against the rules, in a stable order. Costs what there are shared devices."""
        return tuple(
            Conflict(node, device, one, other)
            for node, device in sorted(self._crowded)
            for one, other in combinations(self.holders(node, device), 2)
            if not may_share(one, other, device, self._policy.sharing)
        )

    def drift(self) -> int:
        """How many bound pods read their devices from an annotation they do not have: they see no GPU and hold none."""
        return len(self._drifting)

    def __iter__(self) -> Iterator[Holder]:
        """All holders, in the order in which they came."""
        return iter(self._by_uid.values())

    def _insert(self, holder: Holder) -> None:
        uid = holder.ref.uid
        self._by_uid[uid] = holder
        for device in holder.devices:
            key = (holder.node, device)
            holders = self._by_device.setdefault(key, {})
            holders[uid] = holder
            if len(holders) > 1:
                self._crowded.add(key)
        if holder.workload is not None and holder.index is not None:
            self._by_index.setdefault((holder.workload, holder.index), {})[uid] = holder

    def _remove(self, uid: str) -> Holder | None:
        self._drifting.discard(uid)
        holder = self._by_uid.pop(uid, None)
        if holder is None:
            return None
        for device in holder.devices:
            key = (holder.node, device)
            _discard(self._by_device, key, uid)
            if len(self._by_device.get(key, ())) < 2:  # noqa: PLR2004 - it takes two to crowd
                self._crowded.discard(key)
        if holder.workload is not None and holder.index is not None:
            _discard(self._by_index, (holder.workload, holder.index), uid)
        return holder


def _holder_of(pod: Pod, node: str) -> Holder:
    """What a live bound pod holds, as far as its own text tells."""
    placement_map = _map_of(pod)
    index = _index_of(pod)
    slot = placement_map.get(index) if placement_map is not None and index is not None else None
    # A line may name the node by an alias; then our own annotation says what it meant.
    agrees = slot is not None and node in {slot.node, pod.annotations.get(names.ASSIGNED_NODE)}
    line = slot.devices if slot is not None and agrees else ()
    devices = () if pod.observer else _devices_of(pod, line)
    return Holder(
        pod.ref,
        node,
        devices,
        frozenset(devices).intersection(line),
        None if placement_map is None else workload_of(pod, placement_map),
        index,
        pod.sharing_any,
        pod.deleting_since,
        assumed=False,
    )


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


def _drifts(pod: Pod) -> bool:
    return names.ASSIGNED_DEVICES not in pod.annotations and literals(pod) is None and reads_annotation(pod)


def _map_of(pod: Pod) -> PlacementMap | None:
    try:
        return None if pod.map_text is None else parse_placement_map(pod.map_text)
    except MapError:
        return None


def _index_of(pod: Pod) -> int | None:
    assigned = pod.annotations.get(names.ASSIGNED_INDEX)
    if assigned is not None:
        return parse_number(assigned)
    index = static_index(pod)
    return index if isinstance(index, int) else None


def _asked_about(holder: Holder) -> frozenset[Wake]:
    """Everything that others may be waiting for while `holder` has it."""
    wakes: set[Wake] = {GpuChanged(holder.node, device) for device in holder.devices}
    if holder.workload is not None and holder.index is not None:
        wakes.add(IndexChanged(holder.workload, holder.index))
    return frozenset(wakes)


def _ordered(holders: dict[str, Holder] | None) -> tuple[Holder, ...]:
    if not holders:
        return ()
    if len(holders) == 1:
        return tuple(holders.values())
    return tuple(sorted(holders.values(), key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid)))


def _discard(table: dict[_Key, dict[str, Holder]], key: _Key, uid: str) -> None:
    holders = table[key]
    del holders[uid]
    if not holders:
        del table[key]
