"""What a pod asks for, read once from its own text.

LAW: the webhook and the scheduler both read a request with this module, so that a fault has one message.
"""

from functools import lru_cache
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.pods.bounds import Excess
from gpu_scheduler.core.pods.claim_sets import ClaimSet
from gpu_scheduler.core.pods.claims_request import claims_of_count, claims_of_line, own_claim_fault
from gpu_scheduler.core.pods.count_request import NO_COUNT, CountRequest, Strategy, read_count
from gpu_scheduler.core.pods.own_claim import OwnClaim
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
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.pods.start_together import TOGETHER, starts_together, together_fault
from gpu_scheduler.core.pods.unknown_keys import unknown_key_message
from gpu_scheduler.core.pods.visible_devices import kept
from gpu_scheduler.core.reasons import Fault, Reason, Unschedulable
from gpu_scheduler.core.refs import WorkloadKey
from gpu_scheduler.core.text import quote

_EXAMPLE: Final = f'annotation {names.MAP}, example: "0=node1:0,1"'
_MAX_RANGES: Final = 8

COUNT_IGNORED: Final = (
    f"annotation {names.COUNT} is ignored: the pod has a map, whose line says which GPUs it gets; leave one of them out"
)
"""The warning about a pod with `count_ignored`."""

# The annotations that have a closed list of values.
_CHOICES: Final = {
    names.OBSERVER: ("true", "false"),
    names.KEEP_ENV: ("true", "false"),
    names.SHARING: ("any",),
    names.START: (TOGETHER,),
}
_WITH_MAP: Final = f"the map already says the node ({_EXAMPLE})"
_WITH_COUNT: Final = (
    'nodeSelector and required node affinity are read (example: nodeSelector: {"kubernetes.io/arch": "amd64"})'
)
"""The remedy for a pod with a count and unsupported fields: the fields that it may use instead."""
_RESOURCE_CLAIMS: Final = "spec.resourceClaims"
_WITH_CLAIMS: Final = f"one claim of a pod is read, with isolation: dra; write a map instead ({_EXAMPLE})"
"""The remedy for a pod that has claims, and asks for nothing else."""

_EXCESSIVE: Final = {
    f"annotation {names.INDEX}": Reason.INDEX_UNKNOWN,
    f"annotation {names.COMPLETION_INDEX}": Reason.INDEX_UNKNOWN,
    names.VISIBLE_DEVICES: Reason.ENV_CONFLICT,
    names.DEVICE_ORDER: Reason.ENV_CONFLICT,
}
"""The reason of an excess, by what exceeds its bound. Everything else has RequestInvalid."""

_WITHOUT_GRACE: Final = Fault(
    Reason.REQUEST_INVALID,
    "cannot place a pod with terminationGracePeriodSeconds: 0: it must be at least 1, because a pod that is deleted at "
    "once frees its GPUs while its processes may still run",
    made_anew("correct it (example: terminationGracePeriodSeconds: 30) or leave it out"),
)


@immutable
class LineRequest:
    """A request for a line of a map."""

    workload: WorkloadKey
    """The workload whose pods share the map's lines."""
    index: int | None
    """The index of the line that the pod asks for or, if it is bound, has. None means any line."""
    slot: Slot | None
    """The line of `index`; None if `index` is None or the map has no such line."""
    map: PlacementMap = NO_LINES
    """The map. It is kept only for a pod that takes any line and has none yet, and for pods that start together."""

    def slot_of(self, index: int) -> Slot | None:
        """Return the line of `index`: the pod's own, or any if the map is kept."""
        return self.slot if self.slot is not None and self.slot.index == index else self.map.get(index)


@immutable
class PlacementRequest:
    """What a pod asks for: a line of a map, or a `count`. `fault` says why it cannot have what it asks for.

    Line and count are set even if there is a fault, because the hold of a bound pod is derived from them.
    """

    line: LineRequest | None = None
    count: CountRequest = NO_COUNT
    fault: Fault | None = None
    observer: bool = False
    """Whether the pod sees its devices and holds its index, but holds no device."""
    keep_env: bool = False
    """Whether its containers may set the CUDA variables themselves."""
    sharing_any: bool = False
    """Whether it shares its devices with other pods that have the same annotation."""
    together: bool = False
    """Whether no pod of its workload is bound until all lines of the map can be had."""
    kept: tuple[str, ...] = ()
    """Devices that its containers name themselves and keep."""
    unknown_keys: tuple[str, ...] = ()
    """Keys of annotations that resemble ours and that no program reads; the first few of them."""
    count_ignored: bool = False
    """Whether it has a count beside its map."""
    claims: tuple[ClaimSet, ...] | None = None
    """The ResourceClaims of ours that it must carry; none for a line without devices. None if it is bound, if it has an
    own claim, or if the kubelet does not give it its devices by claims."""
    own_claim: OwnClaim | None = None
    """The ResourceClaim of its author. It says how many devices it gets: `count` has only their other properties."""


def read_request(pod: PodText) -> PlacementRequest:
    """Return what `pod` asks for, and what is wrong with the request."""
    given = pod.annotations
    line, count, fault = _line_request(pod) if names.MAP in given else _count_request(pod)
    fault = fault if pod.excess is None else excess_fault(pod.excess)
    claims = _claims_request(pod, line, count) if pod.isolated and fault is None and not pod.bound else None
    if isinstance(claims, Fault):
        claims, fault = None, claims
    return PlacementRequest(
        line,
        count,
        fault,
        observer=given.get(names.OBSERVER) == "true",
        keep_env=pod.keep_env,
        sharing_any=given.get(names.SHARING) == "any",
        together=line is not None and bool(line.map.indices) and starts_together(pod, line.map),
        kept=_kept(pod),
        unknown_keys=pod.unknown_keys,
        count_ignored=names.MAP in given and names.COUNT in given,
        claims=claims,
        own_claim=pod.own_claim,
    )


def _claims_request(pod: PodText, line: LineRequest | None, count: CountRequest) -> tuple[ClaimSet, ...] | Fault | None:
    """Return the claims that the pod must carry, or why it cannot have any. Its request is valid otherwise."""
    if pod.own_claim is not None:
        return own_claim_fault(pod, pod.own_claim, count)
    if line is None:
        return claims_of_count(pod, count)
    # The map of a pod with an own line is not kept.
    return claims_of_line(pod, parse_placement_map(pod.annotations[names.MAP]), line.slot)


def excess_fault(excess: Excess) -> Fault:
    """Return the fault of a pod that exceeds a bound. Because it is not read whole, its request is unknown."""
    if excess.what == f"annotation {names.MAP}":
        return _wrong_map(TOO_LARGE)
    reason = _EXCESSIVE.get(excess.what, Reason.REQUEST_INVALID)
    return Fault(reason, str(excess), made_anew("write less of it"))


def _wrong_map(error: MapError) -> Fault:
    return Fault(Reason.MAP_INVALID, str(error), made_anew(f"correct annotation {names.MAP}"))


def _line_request(pod: PodText) -> tuple[LineRequest | None, CountRequest, Fault | None]:
    try:
        placement_map = parse_placement_map(pod.annotations[names.MAP])
    except MapError as error:
        return None, NO_COUNT, _wrong_map(error)
    own = static_index(pod)
    workload = workload_of(pod, placement_map)
    index = _held_index(pod, None if isinstance(own, Fault) else own)
    slot = None if index is None else placement_map.get(index)
    whole = starts_together(pod, placement_map) or (index is None and not pod.bound)
    line = LineRequest(workload, index, slot, placement_map if whole else NO_LINES)
    fault = (
        _invalid_choice(pod)
        or _without_grace(pod)
        or together_fault(pod, placement_map)
        or _scattered_limit(pod)
        or _unsupported(pod, _WITH_MAP)
    )
    if fault is not None or own is None:
        return line, NO_COUNT, fault
    if isinstance(own, Fault):
        return line, NO_COUNT, own
    return line, NO_COUNT, _line_fault(pod, own, slot if own == index else placement_map.get(own), placement_map)


def _held_index(pod: PodText, own: int | None) -> int | None:
    """Return the index that the Binding of a bound pod wrote, otherwise the pod's own index."""
    assigned = pod.annotations.get(names.ASSIGNED_INDEX) if pod.bound else None
    return own if assigned is None else parse_number(assigned)


def _line_fault(pod: PodText, index: int, slot: Slot | None, placement_map: PlacementMap) -> Fault | None:
    if slot is not None:
        return limit_fits(pod.gpu_limits, slot)
    fewer = f"correct annotation {names.INDEX} or " if names.INDEX in pod.annotations else "run fewer replicas, or "
    return Fault(
        Reason.INDEX_NOT_IN_MAP,
        f"cannot find index {index} in the map: it has lines for {index_ranges(placement_map)}",
        fewer + made_anew(f"add a line (example: {index}=node1:0)"),
    )


def _count_request(pod: PodText) -> tuple[LineRequest | None, CountRequest, Fault | None]:
    count = read_count(pod)
    if count is None:
        fault = _unsupported(pod, _WITH_CLAIMS) if _RESOURCE_CLAIMS in pod.unsupported else None
        nothing = _nothing_requested(pod.scheduler_name, pod.gpu_limits[:1], pod.unknown_keys)
        return None, NO_COUNT, fault or nothing
    fault = (
        _invalid_choice(pod)
        or _without_grace(pod)
        or _scattered_limit(pod)
        or _unsupported(pod, _WITH_COUNT)
        or together_fault(pod, None)
        or _kept_without_map(pod)
    )
    if isinstance(count, Fault):
        return None, NO_COUNT, fault or count
    return None, count, fault


@lru_cache(maxsize=1024)
def _nothing_requested(scheduler_name: str, limits: tuple[tuple[str, int], ...], unknown: tuple[str, ...]) -> Fault:
    """Return the fault of a pod without map and count. All pods with the same fault share one value in memory."""
    if limits:
        ((container, limit),) = limits
        what = (
            f"cannot place a pod by limit {names.GPU_RESOURCE}: {limit} of container {quote(container)} alone: "
            f"the limit asks for GPUs only beside annotation {names.STRATEGY} or a map"
        )
        remedy = made_anew(f'add one (example: {names.STRATEGY}: "{Strategy.LEAST_UTILIZED}")')
    else:
        what = (
            f"cannot place a pod that asks for nothing: it has schedulerName {quote(scheduler_name)} "
            "but neither a map nor a count"
        )
        remedy = made_anew(
            f'write one ({_EXAMPLE}, or annotation {names.COUNT}, example: "1") or leave out schedulerName'
        )
    return Fault(Reason.NOTHING_REQUESTED, "; ".join((what, *map(unknown_key_message, unknown))), remedy)


def limit_fits(gpu_limits: tuple[tuple[str, int], ...], slot: Slot) -> Unschedulable | None:
    """Check that a limit of devices, if any, is the number of devices of the line.

    A line without devices leaves them to a device plugin.
    """
    devices = len(slot.devices)
    if not gpu_limits or not devices or sum(limit for _, limit in gpu_limits) == devices:
        return None
    container, limit = gpu_limits[0]
    return _wrong_limit(
        container,
        limit,
        f"it must be as many as the map's line for index {slot.index} names, which are {devices}",
        f"correct it (example: {names.GPU_RESOURCE}: {devices}) or correct the line",
    )


def _invalid_choice(pod: PodText) -> Fault | None:
    """Check the annotations that have a closed list of values."""
    if _CHOICES.keys().isdisjoint(pod.annotations):
        return None
    for key, words in _CHOICES.items():
        given = pod.annotations.get(key)
        if given is not None and given not in words:
            rule = " or ".join(f'"{word}"' for word in words)
            return Fault(
                Reason.REQUEST_INVALID,
                f"cannot read annotation {key}: {quote(given)}: it must be {rule}",
                made_anew(f'correct it (example: {key}: "{words[0]}") or leave it out'),
            )
    return None


def _without_grace(pod: PodText) -> Fault | None:
    """Check that a deleted pod holds its GPUs until the kubelet has ended its processes."""
    return _WITHOUT_GRACE if pod.without_grace else None


def _scattered_limit(pod: PodText) -> Unschedulable | None:
    """Check that only one container has a limit of devices: all containers of a pod see the same devices."""
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
    return Unschedulable(Reason.REQUEST_INVALID, what, made_anew(remedy))


def _unsupported(pod: PodText, remedy: str) -> Fault | None:
    """Check that the pod asks for nothing that this scheduler does not decide."""
    if not pod.unsupported:
        return None
    return Fault(
        Reason.UNSUPPORTED,
        f"cannot place a pod by {', '.join(pod.unsupported)}: this scheduler does not read it",
        f"{remedy}: {made_anew('leave it out')}",
    )


def _kept(pod: PodText) -> tuple[str, ...]:
    return kept(pod.environment.containers) if pod.keep_env else ()


def _kept_without_map(pod: PodText) -> Fault | None:
    """Check that no container of a pod without a map keeps GPUs of its own: only a map says where they must be free."""
    devices = _kept(pod)
    if not devices:
        return None
    return Fault(
        Reason.REQUEST_INVALID,
        f"cannot keep {names.VISIBLE_DEVICES}={quote(','.join(devices))}: "
        "the GPUs of a pod without a map are chosen when it is placed",
        made_anew(f"leave the variable out of its containers or write a map ({_EXAMPLE})"),
    )


def workload_of(pod: PodText, placement_map: PlacementMap) -> WorkloadKey:
    """Return the workload of `pod`. A ReplicaSet that a Deployment made counts as that Deployment."""
    owner = pod.owner
    if owner is None:
        return _workload(pod.namespace, "", "", placement_map.digest)
    suffix = "-" + pod.labels.get(names.POD_TEMPLATE_HASH, "")
    if owner.kind == "ReplicaSet" and suffix != "-" and owner.name.endswith(suffix):
        return _workload(pod.namespace, "Deployment", owner.name.removesuffix(suffix), placement_map.digest)
    return _workload(pod.namespace, owner.kind, owner.name, placement_map.digest)


@lru_cache(maxsize=4096)
def _workload(namespace: str, owner_kind: str, owner_name: str, digest: str) -> WorkloadKey:
    """Return the key of a workload. All of its pods share one value in memory."""
    return WorkloadKey(namespace, owner_kind, owner_name, digest)


def index_ranges(placement_map: PlacementMap) -> str:
    """Return the indices of a map as text for people: `0-4, 7`."""
    runs: list[list[int]] = []
    for index in placement_map.indices:
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_MAX_RANGES]]
    return ", ".join(shown) + (", …" if len(runs) > _MAX_RANGES else "")
