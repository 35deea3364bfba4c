"""Who holds which GPU and which index, and what is left of each node.

LAW: no locks, no time, no search: every question and every change costs what the pod itself holds. All of it follows
from the pods and nodes as the API shows them, so a ledger rebuilt from a list equals the live one, assumptions aside.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from gpu_scheduler.core.cluster_events import AnyIndexFreed, ClusterEvent, IndexChanged
from gpu_scheduler.core.ledger.devices import Conflict, Devices
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold, drifts, hold_of, own_index
from gpu_scheduler.core.ledger.indices import Indices
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import WorkloadKey

_NOBODY: Final[frozenset[ClusterEvent]] = frozenset()


class Ledger:
    """All holds of one scheduler's pods, and what all pods take of their nodes."""

    __slots__ = (
        "_by_uid",
        "_claims",
        "_drifting",
        "_policy",
        "_reserved",
        "devices",
        "indices",
        "occupancy",
        "touched",
    )

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_uid: dict[str, Hold] = {}
        self._claims: dict[str, tuple[WorkloadKey, int]] = {}
        self._drifting: set[str] = set()
        self._reserved: set[str] = set()
        """Whose claim is a line that is kept for them, and does not follow from their own text."""
        self.touched = NodeGenerations()
        self.devices = Devices()
        self.indices = Indices()
        self.occupancy = UsedResources(self.touched)

    def apply(self, pod: Pod) -> frozenset[ClusterEvent]:
        """Take `pod` as the watch shows it (added or modified); answers what changed for those who wait."""
        uid = pod.ref.uid
        if pod.scheduler_name != self._policy.scheduler_name:
            return _NOBODY
        if pod.finished:
            return self.forget(uid)
        if pod.node is None:
            # Older than our own bind, or before any: what is assumed stays so, since no pod ever loses its node.
            return _NOBODY if uid in self._by_uid else self._claim(uid, self._claim_while_pending(pod))
        holder = hold_of(pod, pod.node)
        before = self._by_uid.get(uid)
        if before is not None and replace(before, assumed=False, assigned_at=holder.assigned_at) == holder:
            return self._confirm(holder, pod)
        # What it still has is told as changed too: who waits for it may have its turn, or should hear another reason.
        cured_by = self._remove(uid) | self._insert(holder, pod)
        self._note_drift(pod)
        self.touched.mark(holder.node)
        return cured_by

    def forget(self, uid: str) -> frozenset[ClusterEvent]:
        """The pod is gone, or its bind definitely failed; answers what became free."""
        return self._remove(uid) | self.occupancy.drop(uid)

    def assume(self, pod: Pod, placement: Placement) -> None:
        """Book `placement` before its bind is sent; it stays booked until apply or forget settles it."""
        self._remove(pod.ref.uid)
        self._insert(assumed_hold(pod, placement), pod)
        self.touched.mark(placement.node)

    def nominate(self, uid: str, claim: tuple[WorkloadKey, int] | None) -> frozenset[ClusterEvent]:
        """Keep a line for a waiting pod that takes any, because its volumes are being made there; None gives it up."""
        cured_by = self._claim(uid, claim)
        if claim is not None:
            self._reserved.add(uid)
        return cured_by

    def reserved(self, uid: str) -> int | None:
        """The index that is kept for a waiting pod."""
        claim = self._claims.get(uid)
        return None if claim is None else claim[1]

    def apply_foreign_pod(self, foreign_pod: ForeignPod) -> frozenset[ClusterEvent]:
        """Take note of a bound pod of another scheduler."""
        return self.occupancy.put(foreign_pod)

    def forget_foreign_pod(self, foreign_pod: ForeignPod) -> frozenset[ClusterEvent]:
        """It is gone or finished."""
        return self.occupancy.drop(foreign_pod.ref.uid)

    def apply_node(self, node: Node) -> frozenset[ClusterEvent]:
        """Take the node's cards as they are known now."""
        self.touched.apply_node(node)
        return self.devices.apply_node(node)

    def forget_node(self, name: str) -> frozenset[ClusterEvent]:
        """The node is gone; who was bound there still holds what it held."""
        self.touched.forget_node(name)
        return self.devices.apply_node(Node(name))

    def holds(self, uid: str) -> bool:
        """Whether this pod holds a place, assumed or bound: a bind for it is under way or done."""
        return uid in self._by_uid

    def index_holder(self, workload: WorkloadKey, index: int) -> Hold | None:
        """Who holds this index of the workload (the first by name)."""
        holders = (self._by_uid[uid] for uid in self.indices.holders(workload, index))
        return min(holders, key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid), default=None)

    def conflicts(self) -> tuple[Conflict, ...]:
        """Pairs that hold one device against the rules, in a stable order."""
        return self.devices.conflicts(self._policy.sharing)

    def drift(self) -> int:
        """How many bound pods read their devices from an annotation they do not have: they see no GPU and hold none."""
        return len(self._drifting)

    def __iter__(self) -> Iterator[Hold]:
        """All holders, in the order in which they came."""
        return iter(self._by_uid.values())

    def differences(self, other: "Ledger") -> int:
        """How many entries of the two are not the same."""
        mine, theirs = dict(self._entries()), dict(other._entries())  # noqa: SLF001 - one of its own kind
        return sum(mine.get(key) != theirs.get(key) for key in mine.keys() | theirs.keys())

    def _entries(self) -> Iterator[tuple[object, object]]:
        for uid, holder in self._by_uid.items():
            yield ("holder", uid), holder
        for uid, claim in self._claims.items():
            yield ("claim", uid), claim
        for uid in self._drifting:
            yield ("drift", uid), True
        yield from chain(self.devices.entries(), self.indices.entries(), self.occupancy.entries())

    def _insert(self, holder: Hold, pod: Pod) -> frozenset[ClusterEvent]:
        """Answers what the pod no longer takes of a node; its claim, if any, is now a hold."""
        uid = holder.ref.uid
        self._by_uid[uid] = holder
        self.devices.put(holder)
        if holder.workload is not None and holder.index is not None:
            self.indices.hold(holder.workload, holder.index, uid)
        return self.occupancy.put(ForeignPod(holder.ref, holder.node, pod.resource_request))

    def _confirm(self, holder: Hold, pod: Pod) -> frozenset[ClusterEvent]:
        """The pod holds the cards that it held; answers what else it gave back, as where it was resized in place."""
        self._by_uid[holder.ref.uid] = holder
        self.devices.confirm(holder)
        self._note_drift(pod)
        return self.occupancy.put(ForeignPod(holder.ref, holder.node, pod.resource_request))

    def _note_drift(self, pod: Pod) -> None:
        if drifts(pod):
            self._drifting.add(pod.ref.uid)
        else:
            self._drifting.discard(pod.ref.uid)

    def _remove(self, uid: str) -> frozenset[ClusterEvent]:
        """Take the pod out of every table but the occupancy's; answers what others may be waiting for."""
        self._drifting.discard(uid)
        cured_by = self._claim(uid, None)
        holder = self._by_uid.pop(uid, None)
        if holder is None:
            return cured_by
        cured_by |= self.devices.drop(holder)
        if holder.workload is None or holder.index is None:
            return cured_by
        self.indices.release(holder.workload, holder.index, uid)
        return cured_by | {IndexChanged(holder.workload, holder.index), AnyIndexFreed(holder.workload)}

    def _claim(self, uid: str, claim: tuple[WorkloadKey, int] | None) -> frozenset[ClusterEvent]:
        before = self._claims.get(uid)
        if before == claim:
            return _NOBODY
        if claim is not None:
            self.indices.claim(*claim, uid)
            self._claims[uid] = claim
        if before is None:
            return _NOBODY
        self.indices.unclaim(*before, uid)
        if claim is None:
            del self._claims[uid]
            self._reserved.discard(uid)
        return frozenset({AnyIndexFreed(before[0])})

    def _claim_while_pending(self, pod: Pod) -> tuple[WorkloadKey, int] | None:
        """A pod that is being deleted will never be bound, and claims nothing."""
        if pod.deleting_since is not None:
            return None
        kept = self._claims.get(pod.ref.uid) if pod.ref.uid in self._reserved else None
        return own_index(pod) or kept
