"""What a pod asks for, read once from its own text.

LAW: the webhook and the scheduler both read a request here, so that one fault has one sentence.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.count_request import NO_COUNT, CountRequest, read_count
from gpu_scheduler.core.pods.placement_map import (
    NO_LINES,
    TOO_LARGE,
    MapError,
    PlacementMap,
    Slot,
    parse_number,
    parse_placement_map,
)
from gpu_scheduler.core.pods.pod_index import static_index
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.visible_devices import kept
from gpu_scheduler.core.reasons import Fault, Reason, Unschedulable
from gpu_scheduler.core.refs import WorkloadKey
from gpu_scheduler.core.text import quote

_EXAMPLE: Final = f'annotation {names.MAP}, example: "0=node1:0,1"'
_MAX_RANGES: Final = 8

# The annotations that say yes or no, and those that know one word.
_CHOICES: Final = (
    (names.OBSERVER, ("true", "false")),
    (names.KEEP_ENV, ("true", "false")),
    (names.SHARING, ("any",)),
)

_EXCESSIVE: Final = {
    f"annotation {names.INDEX}": Reason.INDEX_UNKNOWN,
    f"annotation {names.COMPLETION_INDEX}": Reason.INDEX_UNKNOWN,
    names.VISIBLE_DEVICES: Reason.ENV_CONFLICT,
    names.DEVICE_ORDER: Reason.ENV_CONFLICT,
}
"""Of what too much has a reason of its own."""


@dataclass(frozen=True, slots=True)
class LineRequest:
    """A line of a map."""

    workload: WorkloadKey
    """The pods that divide the map's lines among them."""
    index: int | None
    """Of the line that the pod asks for, or has where it is bound; None: any line will do."""
    slot: Slot | None
    """That line; None too where the map has none of that index."""
    map: PlacementMap = NO_LINES
    """Kept where any line will do, and the pod has none yet."""

    def slot_of(self, index: int) -> Slot | None:
        """The line of this index, which is the pod's own or any of the map."""
        return self.slot or self.map.get(index)


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a pod asks for: a line of a map, or by `count`; `fault` says why it cannot have what it asks for.

    Line and count stand beside a fault too, because a pod that is bound holds by them.
    """

    line: LineRequest | None = None
    count: CountRequest = NO_COUNT
    fault: Fault | None = None
    observer: bool = False
    """It sees its devices and holds its index, but claims no device."""
    keep_env: bool = False
    """Its containers may set the CUDA variables themselves."""
    sharing_any: bool = False
    """It shares its devices with whoever says the same."""
    kept: tuple[str, ...] = ()
    """Devices that its containers name themselves and keep."""


def read_request(pod: PodText) -> PlacementRequest:
    """What `pod` asks for, and what is wrong with the asking."""
    given = pod.annotations
    line, count, fault = _line_request(pod) if names.MAP in given else _count_request(pod)
    return PlacementRequest(
        line,
        count,
        fault if pod.excess is None else excess_fault(pod.excess),
        observer=given.get(names.OBSERVER) == "true",
        keep_env=pod.keep_env,
        sharing_any=given.get(names.SHARING) == "any",
        kept=_kept(pod),
    )


def excess_fault(excess: Excess) -> Fault:
    """What no honest pod has so much of: nobody knows any more what the pod asks for."""
    if excess.what == f"annotation {names.MAP}":
        return _wrong_map(TOO_LARGE)
    reason = _EXCESSIVE.get(excess.what, Reason.REQUEST_INVALID)
    return Fault(reason, str(excess), "write less of it, and create the pod anew")


def _wrong_map(error: MapError) -> Fault:
    return Fault(Reason.MAP_INVALID, str(error), f"correct annotation {names.MAP} in the pod's template")


def _line_request(pod: PodText) -> tuple[LineRequest | None, CountRequest, Fault | None]:
    try:
        placement_map = parse_placement_map(pod.annotations[names.MAP])
    except MapError as error:
        return None, NO_COUNT, _wrong_map(error)
    said = f"the map already says the node ({_EXAMPLE})"
    own = static_index(pod)
    workload = workload_of(pod, placement_map)
    index = _held_index(pod, None if isinstance(own, Fault) else own)
    slot = None if index is None else placement_map.get(index)
    line = LineRequest(workload, index, slot, placement_map if index is None and not pod.bound else NO_LINES)
    fault = _odd_choice(pod) or _scattered_limit(pod) or _unsupported(pod, said)
    if fault is not None or own is None:
        return line, NO_COUNT, fault
    if isinstance(own, Fault):
        return line, NO_COUNT, own
    return line, NO_COUNT, _line_fault(pod, own, slot if own == index else placement_map.get(own), placement_map)


def _held_index(pod: PodText, own: int | None) -> int | None:
    """Once it is bound, the index that its Binding wrote."""
    assigned = pod.annotations.get(names.ASSIGNED_INDEX) if pod.bound else None
    return own if assigned is None else parse_number(assigned)


def _line_fault(pod: PodText, index: int, slot: Slot | None, placement_map: PlacementMap) -> Fault | None:
    if slot is not None:
        return limit_fits(pod.gpu_limits, slot)
    return Fault(
        Reason.INDEX_NOT_IN_MAP,
        f"cannot find index {index} in the map: it has lines for {_ranges(placement_map)}",
        f"add a line (example: {index}=node1:0), or run fewer replicas",
    )


def _count_request(pod: PodText) -> tuple[LineRequest | None, CountRequest, Fault | None]:
    count = read_count(pod)
    if count is None:
        return (
            None,
            NO_COUNT,
            Fault(
                Reason.NOTHING_REQUESTED,
                f"cannot place a pod that asks for nothing: it has schedulerName {quote(pod.scheduler_name)} "
                "but neither a map nor a count",
                f'write one ({_EXAMPLE}, or annotation {names.COUNT}, example: "1"), or leave out schedulerName',
            ),
        )
    said = 'nodeSelector and required node affinity are read (example: nodeSelector: {"kubernetes.io/arch": "amd64"})'
    fault = _odd_choice(pod) or _scattered_limit(pod) or _unsupported(pod, said) or _kept_without_map(pod)
    if isinstance(count, Fault):
        return None, NO_COUNT, fault or count
    return None, count, fault


def limit_fits(gpu_limits: tuple[tuple[str, int], ...], slot: Slot) -> Unschedulable | None:
    """A limit of devices, where there is one, is as many as the line names, unless the line leaves them to a plugin."""
    named = len(slot.devices)
    if not gpu_limits or not named or sum(limit for _, limit in gpu_limits) == named:
        return None
    container, limit = gpu_limits[0]
    return _wrong_limit(
        container,
        limit,
        f"it must be as many as the map's line for index {slot.index} names, which are {named}",
        f"correct it (example: {names.GPU_RESOURCE}: {named}), or correct the line",
    )


def _odd_choice(pod: PodText) -> Fault | None:
    """An annotation that knows a few words says another one."""
    for key, words in _CHOICES:
        given = pod.annotations.get(key)
        if given is not None and given not in words:
            rule = " or ".join(f'"{word}"' for word in words)
            return Fault(
                Reason.REQUEST_INVALID,
                f"cannot read annotation {key}: {quote(given)}: it must be {rule}",
                f'correct it (example: {key}: "{words[0]}"), or leave it out',
            )
    return None


def _scattered_limit(pod: PodText) -> Unschedulable | None:
    """Two containers have a limit of devices; but all containers of a pod see the same ones."""
    if len(pod.gpu_limits) <= 1:
        return None
    (first, wanted), (second, limit) = pod.gpu_limits[:2]
    return _wrong_limit(
        second,
        limit,
        f"one container of a pod must have that limit, and {quote(first)} has it",
        f"leave it out of all but one (example: {names.GPU_RESOURCE}: {wanted} in {quote(first)})",
    )


def _wrong_limit(container: str, limit: int, rule: str, remedy: str) -> Unschedulable:
    what = f"cannot read limit {names.GPU_RESOURCE}: {limit} of container {quote(container)}: {rule}"
    return Unschedulable(Reason.REQUEST_INVALID, what, remedy)


def _unsupported(pod: PodText, said: str) -> Fault | None:
    """The pod asks for something that we do not decide."""
    if not pod.unsupported:
        return None
    return Fault(
        Reason.UNSUPPORTED,
        f"cannot place a pod by {', '.join(pod.unsupported)}: this scheduler does not read it",
        f"leave it out: {said}",
    )


def _kept(pod: PodText) -> tuple[str, ...]:
    return kept(pod.environment.containers) if pod.keep_env else ()


def _kept_without_map(pod: PodText) -> Fault | None:
    """A container of a pod without a map keeps GPUs of its own: which node has them free, only a map could say."""
    devices = _kept(pod)
    if not devices:
        return None
    return Fault(
        Reason.REQUEST_INVALID,
        f"cannot keep {names.VISIBLE_DEVICES}={quote(','.join(devices))}: "
        "the GPUs of a pod without a map are chosen when it is placed",
        f"leave the variable out of its containers, or write a map ({_EXAMPLE})",
    )


def workload_of(pod: PodText, placement_map: PlacementMap) -> WorkloadKey:
    """Which workload `pod` belongs to; a ReplicaSet made by a Deployment counts as that Deployment."""
    owner = pod.owner
    if owner is None:
        return _workload(pod.namespace, "", "", placement_map.digest)
    suffix = "-" + pod.labels.get(names.POD_TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and suffix != "-" and owner.name.endswith(suffix):
        return _workload(pod.namespace, "Deployment", owner.name.removesuffix(suffix), placement_map.digest)
    return _workload(pod.namespace, owner.kind, owner.name, placement_map.digest)


@lru_cache(maxsize=4096)
def _workload(namespace: str, owner_kind: str, owner_name: str, digest: str) -> WorkloadKey:
    """One value for all pods of a workload."""
    return WorkloadKey(namespace, owner_kind, owner_name, digest)


def _ranges(placement_map: PlacementMap) -> str:
    """The indices of a map as people write them: `0-4, 7`."""
    runs: list[list[int]] = []
    for index in placement_map.indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_MAX_RANGES]]
    return ", ".join(shown) + (", …" if len(runs) > _MAX_RANGES else "")
