"""What the loop remembers of each of our pods beside the ledger.

LAW: keeps when a pod was first seen, its last condition, and its bind in flight; keeps nothing of pods that are gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from gpu_scheduler.core.decision import awaits_placement
from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_scheduler.core.decision import Bind
    from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
    from gpu_scheduler.core.pods.placement import Placement
    from gpu_scheduler.core.pods.pod import Pod, ScheduledCondition
    from gpu_scheduler.core.policy import Policy
    from gpu_scheduler.core.reasons import Reason
    from gpu_scheduler.core.refs import WorkloadKey


@dataclass(slots=True)
class PodState:
    """The state of one pod. Times are in seconds of the monotonic clock."""

    pod: Pod
    first_seen: float
    # Why it waits, as decided last; None before the first decision, and while a placement is assumed.
    waits_for: Reason | None = None
    # The condition that this replica recorded last, its topic, and whether the watch has shown it since.
    last_condition: ScheduledCondition | None = None
    last_topic: str | None = None
    last_shown: bool = True
    # Set from the decision until the watch shows the bind, or a definite failure releases it.
    assumed: Bind | None = None
    in_flight: bool = False
    # Whether its ResourceClaims are being withdrawn. Until that has ended, no bind may use them.
    releasing: bool = False
    # For a pod that takes any line of its map: the line where its volumes are made.
    reserved_index: tuple[WorkloadKey, int] | None = None
    # When the last try of a bind began whose outcome is unknown. The same bind is sent again, without a new decision.
    bind_unknown_since: float | None = None

    @property
    def condition(self) -> ScheduledCondition | None:
        """The pod's condition: the one recorded last until the watch shows it, then the one that the watch shows."""
        return self.pod.scheduled_condition if self.last_shown else self.last_condition

    def see(self, pod: Pod) -> None:
        """Store the pod as the watch shows it."""
        self.pod = pod
        self.last_shown = self.last_shown or pod.scheduled_condition == self.last_condition

    def set_condition(self, condition: ScheduledCondition | None = None, topic: str | None = None) -> None:
        """Store the condition that was recorded, or that the one recorded last was withdrawn unwritten."""
        self.last_condition, self.last_topic, self.last_shown = condition, topic, condition is None


@immutable
class PodCounts:
    """Numbers of our pods at one moment."""

    pending: int
    """Without a node yet, and not finished."""
    running: int
    """With a node, and not finished."""
    waiting: Counter[Reason]
    """Those of `pending` that this replica has found unschedulable, by reason."""
    oldest: float | None
    """When the first of these was first seen, in seconds of the monotonic clock; None if there is none."""


class ClaimState(StrEnum):
    """Whom an allocated claim serves."""

    BOUND = "bound"
    """A pod of ours that is bound."""
    WAITING = "waiting"
    """Pods of ours, of which none is bound."""
    OTHER = "other"
    """Another scheduler's pods, or none any more."""


class PodStates(dict[str, PodState]):
    """All of our pods, by uid."""

    def counts(self) -> PodCounts:
        """Count the pods. The cost depends on the number of all pods: for a scrape, not for a decision."""
        pending = running = 0
        waiting: Counter[Reason] = Counter()
        oldest: float | None = None
        for state in self.values():
            if state.pod.finished:
                continue
            if state.pod.bound:
                running += 1
                continue
            pending += 1
            if state.waits_for is not None:
                waiting[state.waits_for] += 1
                oldest = state.first_seen if oldest is None else min(oldest, state.first_seen)
        return PodCounts(pending, running, waiting, oldest)

    def claim_state(self, claim: AllocatedClaim) -> ClaimState:
        """Return whom the claim serves."""
        found = [self[uid].pod for uid in claim.pods if uid in self]
        if not found:
            return ClaimState.OTHER
        return ClaimState.BOUND if any(pod.bound for pod in found) else ClaimState.WAITING

    def namespaces(self) -> set[str]:
        """Return the namespaces of all pods."""
        return {state.pod.ref.namespace for state in self.values()}

    def awaiting(self, policy: Policy) -> Iterator[tuple[str, Pod]]:
        """List the pods, with their uids, that await placement as far as the watch has shown."""
        for uid, state in self.items():
            if awaits_placement(state.pod, policy):
                yield uid, state.pod

    def waiting(self, policy: Policy) -> Iterator[str]:
        """List the uids of pods that await a decision, and have no assumed placement."""
        for uid, _ in self.awaiting(policy):
            if self[uid].assumed is None:
                yield uid

    def assumed(self) -> Iterator[tuple[Pod, Placement]]:
        """List the pods whose assumed placement the watch has not confirmed yet, with that placement."""
        for state in self.values():
            if state.assumed is not None:
                yield state.pod, state.assumed.placement

    def reserved_indices(self) -> Iterator[tuple[str, tuple[WorkloadKey, int]]]:
        """List the pods for which a line is reserved while their volumes are made: uid, and workload with index."""
        for uid, state in self.items():
            if state.reserved_index is not None:
                yield uid, state.reserved_index
