"""Annotation `agentaflow.gpu/start: together`: which pods may have it.

LAW: the annotation is about the lines of a map. Whatever makes a line unknown in advance is refused beside it.
"""

from typing import Final

from gpu_scheduler import names
from gpu_scheduler.core.pods.placement_map import PlacementMap
from gpu_scheduler.core.pods.pod_text import PodText
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Fault, Reason

TOGETHER: Final = "together"
MOST_TOGETHER: Final = 256
"""Most lines of a map whose pods start together: a decision on one of them looks at all lines."""
MOST_GPUS: Final = 8 * MOST_TOGETHER
"""Most GPUs that these lines name: eight each."""


def starts_together(pod: PodText, placement_map: PlacementMap) -> bool:
    """Whether no pod of the workload is bound until all lines of the map can be had."""
    return pod.annotations.get(names.START) == TOGETHER and together_fault(pod, placement_map) is None


def together_fault(pod: PodText, placement_map: PlacementMap | None) -> Fault | None:
    """Return why the pod cannot start together with others, or None if it can or does not ask for it.

    `placement_map` is None if the pod has no map.
    """
    if names.START not in pod.annotations:
        return None
    if placement_map is None:
        what = f"cannot read annotation {names.START} of a pod without a map: the map says what all pods need"
        remedy = f'write a map (annotation {names.MAP}, example: "0=node1:0,1")'
    elif len(placement_map.indices) > MOST_TOGETHER:
        what = f"cannot start {len(placement_map.indices)} lines together: they must be at most {MOST_TOGETHER}"
        remedy = "write fewer lines"
    elif placement_map.gpus > MOST_GPUS:
        what = f"cannot start lines with {placement_map.gpus} GPUs together: they must be at most {MOST_GPUS}"
        remedy = "write fewer GPUs"
    elif pod.annotations.get(names.OBSERVER) == "true":
        what = f"cannot start observers together (annotation {names.OBSERVER}): they hold no GPU"
        remedy = f"leave out {names.OBSERVER}"
    elif pod.gpu_limits:
        what = (
            f"cannot start pods with a limit of {names.GPU_RESOURCE} together: a device plugin chooses their GPUs, so "
            "that nobody can keep them"
        )
        remedy = "leave out the limit"
    else:
        return None
    return Fault(Reason.REQUEST_INVALID, what, made_anew(f"{remedy} or leave out annotation {names.START}"))
