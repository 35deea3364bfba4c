"""What a pod asks for, read from its own text alone.

LAW: the webhook and the scheduler both read a request here, so that one fault has one sentence.
"""

from dataclasses import dataclass
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.count_request import CountRequest, read_count
from gpu_scheduler.core.pods.placement_map import TOO_LARGE, MapError, PlacementMap, Slot, parse_placement_map
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.pod_index import static_index
from gpu_scheduler.core.pods.visible_devices import kept
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

__all__ = ["CountRequest", "PlacementRequest", "excess_of", "limit_fits", "read_request"]

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
class PlacementRequest:
    """A pod's map, and the line of it that is the pod's; without a `slot` any free line will do."""

    map: PlacementMap
    slot: Slot | None


def read_request(pod: Pod) -> PlacementRequest | CountRequest | Unschedulable:
    """What `pod` asks for, or what is wrong with the asking."""
    excess = excess_of(pod)
    if excess is not None:
        return excess
    text = pod.map_text
    if text is None:
        return _without_map(pod)
    try:
        placement_map = parse_placement_map(text)
    except MapError as error:
        return _wrong_map(error)
    said = f"the map already says the node ({_EXAMPLE})"
    return _odd_choice(pod) or _scattered_limit(pod) or _unsupported(pod, said) or _on_map(pod, placement_map)


def excess_of(pod: Pod) -> Unschedulable | None:
    """What no honest pod has so much of: nobody knows any more what the pod asks for."""
    excess = pod.excess
    if excess is None:
        return None
    if excess.what == f"annotation {names.MAP}":
        return _wrong_map(TOO_LARGE)
    reason = _EXCESSIVE.get(excess.what, Reason.REQUEST_INVALID)
    return Unschedulable(reason, str(excess), "write less of it, and create the pod anew")


def _wrong_map(error: MapError) -> Unschedulable:
    return Unschedulable(Reason.MAP_INVALID, str(error), f"correct annotation {names.MAP} in the pod's template")


def _without_map(pod: Pod) -> CountRequest | Unschedulable:
    request = read_count(pod)
    if request is None:
        return Unschedulable(
            Reason.NOTHING_REQUESTED,
            f"cannot place a pod that asks for nothing: it has schedulerName {quote(pod.scheduler_name)} "
            "but neither a map nor a count",
            f'write one ({_EXAMPLE}, or annotation {names.COUNT}, example: "1"), or leave out schedulerName',
        )
    said = 'nodeSelector and required node affinity are read (example: nodeSelector: {"kubernetes.io/arch": "amd64"})'
    return _odd_choice(pod) or _scattered_limit(pod) or _unsupported(pod, said) or _kept(pod) or request


def _on_map(pod: Pod, placement_map: PlacementMap) -> PlacementRequest | Unschedulable:
    """The line of the map that is the pod's by its index; a pod without one takes any."""
    index = static_index(pod)
    if isinstance(index, Unschedulable):
        return index
    if index is None:
        return PlacementRequest(placement_map, None)
    slot = placement_map.get(index)
    if slot is None:
        return Unschedulable(
            Reason.INDEX_NOT_IN_MAP,
            f"cannot find index {index} in the map: it has lines for {_ranges(placement_map)}",
            f"add a line (example: {index}=node1:0), or run fewer replicas",
        )
    return limit_fits(pod, slot) or PlacementRequest(placement_map, slot)


def limit_fits(pod: Pod, slot: Slot) -> Unschedulable | None:
    """A limit of cards, where there is one, is as many as the line names; a line may leave the choice to the plugin."""
    named = len(slot.devices)
    if not pod.gpu_limits or not named or pod.gpu_limit == named:
        return None
    container, limit = pod.gpu_limits[0]
    return _wrong_limit(
        container,
        limit,
        f"it must be as many as the map's line for index {slot.index} names, which are {named}",
        f"correct it (example: {names.GPU_RESOURCE}: {named}), or correct the line",
    )


def _odd_choice(pod: Pod) -> Unschedulable | None:
    """An annotation that knows a few words says another one."""
    for key, words in _CHOICES:
        given = pod.annotations.get(key)
        if given is not None and given not in words:
            rule = " or ".join(f'"{word}"' for word in words)
            return Unschedulable(
                Reason.REQUEST_INVALID,
                f"cannot read annotation {key}: {quote(given)}: it must be {rule}",
                f'correct it (example: {key}: "{words[0]}"), or leave it out',
            )
    return None


def _scattered_limit(pod: Pod) -> Unschedulable | None:
    """Two containers have a limit of cards; but all containers of a pod see the same ones."""
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


def _unsupported(pod: Pod, said: str) -> Unschedulable | None:
    """The pod asks for something that we do not decide."""
    if not pod.unsupported:
        return None
    return Unschedulable(
        Reason.UNSUPPORTED,
        f"cannot place a pod by {', '.join(pod.unsupported)}: this scheduler does not read it",
        f"leave it out: {said}",
    )


def _kept(pod: Pod) -> Unschedulable | None:
    """A container of a pod without a map keeps GPUs of its own: which node has them free, only a map could say."""
    devices = kept(pod)
    if not devices:
        return None
    return Unschedulable(
        Reason.REQUEST_INVALID,
        f"cannot keep {names.VISIBLE_DEVICES}={quote(','.join(devices))}: "
        "the GPUs of a pod without a map are chosen when it is placed",
        f"leave the variable out of its containers, or write a map ({_EXAMPLE})",
    )


def _ranges(placement_map: PlacementMap) -> str:
    """The indices of a map as people write them: `0-4, 7`."""
    runs: list[list[int]] = []
    for slot in placement_map.slots:
        if runs and slot.index == runs[-1][1] + 1:
            runs[-1][1] = slot.index
        else:
            runs.append([slot.index, slot.index])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:_MAX_RANGES]]
    return ", ".join(shown) + (", …" if len(runs) > _MAX_RANGES else "")
