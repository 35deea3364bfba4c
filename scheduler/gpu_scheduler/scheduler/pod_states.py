"""What the loop remembers of each of our pods beside what the ledger has.

LAW: when it came, what its owner was told last, and the bind that is on its way; nothing of pods that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_scheduler.core.decision import awaits_placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.pods.placement import Placement
    from gpu_scheduler.core.pods.pod import Pod, ScheduledCondition
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.core.refs import WorkloadKey


@dataclass(slots=True)
class PodState:
    """One pod."""

    pod: Pod
    first_seen: float
    last_condition: ScheduledCondition | None
    # What the last telling was about: the same again, with other numbers, is not told again.
    last_topic: str | None = None
    # What it was promised: from the decision until the watch shows it, or a definite failure takes it back.
    assumed: Bind | None = None
    in_flight: bool = False
    # The line that a pod which takes any line has its volumes made for.
    nominated: tuple[WorkloadKey, int] | None = None
    # When the last try of a bind began of which the API has not told what became: it is sent again as it is, never
    # decided anew.
    bind_unknown_since: float | None = None


class PodStates(dict[str, PodState]):
    """All of our pods, by uid."""

    def pending(self) -> int:
        """How many have no node yet and are not finished."""
        return sum(not (state.pod.bound or state.pod.finished) for state in self.values())

    def running(self) -> int:
        """How many have a node and are not finished."""
        return sum(state.pod.bound and not state.pod.finished for state in self.values())

    def namespaces(self) -> set[str]:
        """Those that they are in."""
        return {state.pod.ref.namespace for state in self.values()}

    def awaiting(self, policy: Policy) -> Iterator[tuple[str, Pod]]:
        """Who is not bound yet, as far as the watch has shown."""
        for uid, state in self.items():
            if awaits_placement(state.pod, policy):
                yield uid, state.pod

    def waiting(self, policy: Policy) -> Iterator[str]:
        """Who awaits a decision, and has no bind on its way."""
        for uid, _ in self.awaiting(policy):
            if self[uid].assumed is None:
                yield uid

    def assumed(self) -> Iterator[tuple[Pod, Placement]]:
        """Who was promised a place that the watch has not shown yet."""
        for state in self.values():
            if state.assumed is not None:
                yield state.pod, state.assumed.placement

    def nominated(self) -> Iterator[tuple[str, WorkloadKey, int]]:
        """Who waits for volumes on a line that is kept for it."""
        for uid, state in self.items():
            if state.nominated is not None:
                yield uid, *state.nominated
