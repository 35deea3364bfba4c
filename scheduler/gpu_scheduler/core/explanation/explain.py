"""Explains the decision on a pod: the file to read first of this folder."""

from collections.abc import Mapping
from typing import Final

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.explanation.explanation import Explanation
from gpu_scheduler.core.explanation.places import places_of
from gpu_scheduler.core.explanation.remedy import remedy_of
from gpu_scheduler.core.pods.pod import Pod

MOST_PLACES: Final = 10
"""Of a pod that could have many lines or nodes, this many are explained in full."""


def explain(pod: Pod, cluster: Cluster, ends: Mapping[str, str], most: int = MOST_PLACES) -> Explanation:
    """Explain the decision on `pod`: all that is in its way at each place, and the smallest remedy.

    `ends` says by uid of a pod when its GPUWorkload expects it to end (RFC 3339).
    """
    decision = decide(pod, cluster)
    if decision is None:
        return Explanation(None)
    places = places_of(pod, cluster, ends, most)
    if isinstance(decision, Bind):
        return Explanation(decision, (), places.nearest, places.others)
    faults = () if pod.request.fault is None else (pod.request.fault,)
    remedy = remedy_of(pod, faults, places, cluster)
    return Explanation(decision, (*faults, *places.of_pod), places.nearest, places.others, remedy)
