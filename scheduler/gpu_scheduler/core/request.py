"""What a pod asks for, read from its own text alone.

LAW: the webhook and the scheduler both read a request here, so that one fault has one sentence.
"""

from dataclasses import dataclass
from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.model import Pod
from gpu_scheduler.core.placement_map import MapError, PlacementMap, Slot, parse_placement_map
from gpu_scheduler.core.pod_index import static_index
from gpu_scheduler.core.reasons import Obstacle, Reason
from gpu_scheduler.core.text import quote

_EXAMPLE: Final = f'annotation {names.MAP}, example: "0=node1:0,1"'
_MAX_RANGES: Final = 8


@dataclass(frozen=True, slots=True)
class Request:
    """A pod's map, and the line of it that is the pod's."""

    map: PlacementMap
    slot: Slot


def read_request(pod: Pod) -> Request | Obstacle:
    """The line of the map that `pod` asks for, or what is wrong with the asking."""
    text = pod.map_text
    if text is None:
        return _without_map(pod)
    try:
        placement_map = parse_placement_map(text)
    except MapError as error:
        return Obstacle(Reason.MAP_INVALID, str(error), f"correct annotation {names.MAP} in the pod's template")
    index = static_index(pod)
    if isinstance(index, Obstacle):
        return index
    if index is None:
        return Obstacle(
            Reason.UNSUPPORTED,
            "cannot tell which line of the map is this pod's: its name was generated or does not end in -N, "
            "and no label or annotation gives it an index",
            f'set annotation {names.INDEX} (example: "0"), or use a StatefulSet or an Indexed Job',
        )
    slot = placement_map.get(index)
    if slot is None:
        return Obstacle(
            Reason.INDEX_NOT_IN_MAP,
            f"cannot find index {index} in the map: it has lines for {_ranges(placement_map)}",
            f"add a line (example: {index}=node1:0), or run fewer replicas",
        )
    return Request(placement_map, slot)


def _without_map(pod: Pod) -> Obstacle:
    count = pod.annotations.get(names.COUNT)
    if count is not None:
        return Obstacle(
            Reason.UNSUPPORTED,
            f"cannot place a pod by annotation {names.COUNT}: {quote(count)}: "
            "automatic placement is not in this version",
            f"write a map ({_EXAMPLE})",
        )
    return Obstacle(
        Reason.NOTHING_REQUESTED,
        f"cannot place a pod that asks for nothing: it has schedulerName {quote(pod.scheduler_name)} but no map",
        f"write one ({_EXAMPLE}), or leave out schedulerName",
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
