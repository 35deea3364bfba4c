"""Workloads whose pods a kubelet rejects: there, their next pods are bound ever more slowly.

A ReplicaSet replaces a rejected pod at once, and a pinned pod has no other node to go to: undamped the two turn as fast
as both can write, and leave a failed pod behind each time.

LAW: takes nothing from a pod that another workload, or another node, could run; forgets by itself.
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
"""Seconds of rest. Failed pods stay until the cluster has 12,500 of them (kube-controller-manager's default): at one a
minute that takes more than a week, and a repaired node is tried within the minute."""

_Key = tuple[str, "Owner | str", str]
"""Namespace, controller (of a bare pod its name) and node."""


@dataclass(slots=True)
class _Streak:
    """Rejections in a row."""

    why: str
    rest: float
    until: float


class RejectionBackoff:
    """Knows which workloads rest on which nodes."""

    def __init__(self) -> None:
        """Nothing rests."""
        # In the order of the last rejection: what is long over stands in front.
        self._streaks: dict[_Key, _Streak] = {}

    def pod_changed(self, before: Pod, pod: Pod, now: float) -> None:
        """Take note of a pod that has changed: its kubelet rejected it, or runs it, which ends the matter."""
        if pod.node is None or (not pod.rejected and not self._streaks):
            return
        key = _key(pod, pod.node)
        if pod.rejected and not before.rejected:
            self._rejected(key, pod.rejected, now)
        elif pod.phase == "Running" != before.phase:
            self._streaks.pop(key, None)

    def delay(self, pod: Pod, bind: Bind, now: float) -> tuple[Wait, float] | None:
        """What its owner is told and for how many seconds it has to wait; None where the bind may go."""
        node = bind.placement.node
        streak = self._streaks.get(_key(pod, node)) if self._streaks else None
        if streak is None or streak.until <= now:
            return None
        what = f"cannot bind to {node} yet: its kubelet rejected the last pod of this workload ({streak.why})"
        remedy = (
            f"trying again by itself, at most {streak.rest:.0f} s after that; kubectl describe node {node} may tell why"
        )
        topic = f"{Reason.BIND_FAILED}: rejected by {node}"
        wait = Wait(bind.pod, Reason.BIND_FAILED, sentence(Reason.BIND_FAILED, what, remedy), frozenset(), topic=topic)
        return wait, streak.until - now

    def _rejected(self, key: _Key, why: str, now: float) -> None:
        """Replicas that are rejected together count once."""
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
