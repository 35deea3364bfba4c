"""Back-off for workloads whose pods a kubelet rejects: each rejection delays the next bind to that node for longer.

A ReplicaSet replaces a rejected pod at once, and a pinned pod has no other node. Without a back-off, ReplicaSet and
scheduler would make failed pods as fast as both can write.

LAW: delays no other workload and no other node; entries expire by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpu_scheduler.core.decision import Wait
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.text import sentence

if TYPE_CHECKING:
    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.refs import Owner

FIRST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds of back-off. Failed pods stay until the cluster has 12,500 of them (kube-controller-manager's default). At
one a minute this takes more than a week, and a repaired node is tried within a minute."""

_Key = tuple[str, "Owner | str", str]
"""Namespace, controller (for a bare pod, its name) and node."""


@dataclass(slots=True)
class _Streak:
    """Consecutive rejections of a workload on a node."""

    why: str
    rest: float
    until: float


class RejectionBackoff:
    """The back-offs of all workloads, by node."""

    def __init__(self) -> None:
        """Start without back-offs."""
        # In the order of the last rejection, so that expired entries come first.
        self._streaks: dict[_Key, _Streak] = {}

    def pod_changed(self, before: Pod, pod: Pod, now: float) -> None:
        """Apply a changed pod: a rejection by its kubelet starts or doubles the back-off, a pod that runs ends it."""
        if pod.node is None or (not pod.rejected and not self._streaks):
            return
        key = _key(pod, pod.node)
        if pod.rejected and not before.rejected:
            self._rejected(key, pod.rejected, now)
        elif pod.phase == "Running" != before.phase:
            self._streaks.pop(key, None)

    def delay(self, pod: Pod, bind: Bind, now: float) -> tuple[Wait, float] | None:
        """Return the message for the pod's owner and the seconds to wait; None if the pod may be bound now."""
        node = bind.placement.node
        streak = self._streaks.get(_key(pod, node)) if self._streaks else None
        if streak is None or streak.until <= now:
            return None
        what = f"cannot bind to {node} yet: its kubelet rejected the last pod of this workload ({streak.why})"
        remedy = (
            f"trying again by itself, at most {streak.rest:.0f} s after that; kubectl describe node {node} may tell why"
        )
        topic = f"{Reason.BIND_FAILED}: cannot bind to {node} yet"
        wait = Wait(bind.pod, Reason.BIND_FAILED, sentence(Reason.BIND_FAILED, what, remedy), frozenset(), topic=topic)
        return wait, streak.until - now

    def _rejected(self, key: _Key, why: str, now: float) -> None:
        """Start or double the back-off. Replicas that are rejected together count once."""
        streak = self._streaks.pop(key, None)
        if streak is None or streak.until + LONGEST <= now:
            streak = _Streak(why, FIRST, now + FIRST)
        elif streak.until <= now:
            rest = min(2 * streak.rest, LONGEST)
            streak = _Streak(why, rest, now + rest)
        self._streaks[key] = streak
        while (first := next(iter(self._streaks))) != key and self._streaks[first].until + LONGEST <= now:
            del self._streaks[first]


def _key(pod: Pod, node: str) -> _Key:
    return pod.ref.namespace, pod.owner or pod.ref.name, node
