"""Which pod holds which GPU and which index, and what is left of each node.

LAW: no locks, no clock, no search: the cost of a query or change depends only on what the pod itself holds. Everything
is derived from the pods and nodes as the API shows them. A ledger that is rebuilt from a list therefore equals the live
one, except for assumed pods.
"""

from collections.abc import Iterator
from itertools import chain

from gpu_scheduler.core.cluster_events import NO_EVENTS, AnyIndexFreed, ClusterEvent, IndexChanged
from gpu_scheduler.core.ledger.conflicts import Conflict
from gpu_scheduler.core.ledger.devices import Devices
from gpu_scheduler.core.ledger.hold import Hold, assumed_hold, drifts, hold_of, own_index, what_is_held
from gpu_scheduler.core.ledger.indices import Indices
from gpu_scheduler.core.ledger.kept_lines import KeptLines
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.nodes.generations import NodeGenerations
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.pods.pod import ForeignPod, Pod
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import WorkloadKey


class Ledger:
    """All holds of one scheduler's pods and of ResourceClaims, and what all pods take of their nodes."""

    __slots__ = (
        "_by_decision",
        "_by_uid",
        "_drifting",
        "_indices_of_pending",
        "_of_claims",
        "_policy",
        "devices",
        "generations",
        "indices",
        "kept_lines",
        "used_resources",
    )

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_uid: dict[str, Hold] = {}
        self._indices_of_pending: dict[str, tuple[WorkloadKey, int]] = {}
        """By uid: the index that is reserved for a pending pod."""
        self._drifting: set[str] = set()
        self._of_claims: dict[str, tuple[Hold, ...]] = {}
        """What ResourceClaims hold, by the claim's uid."""
        self._by_decision: set[str] = set()
        """Uids of the pending pods whose index a decision reserved: it does not follow from the pod's own text."""
        self.generations = NodeGenerations()
        self.devices = Devices()
        self.kept_lines = KeptLines(self.devices, self.generations)
        self.indices = Indices()
        self.used_resources = UsedResources(self.generations)

    def apply(self, pod: Pod) -> frozenset[ClusterEvent]:
        """Store `pod` as the watch shows it (added or modified). Return the cluster events that this causes."""
        uid = pod.ref.uid
        if pod.scheduler_name != self._policy.scheduler_name:
            return NO_EVENTS
        if pod.finished:
            return self.forget(uid)
        if pod.node is None:
            # This view is older than our bind, or there was no bind. An assumed pod stays assumed: no pod loses its
            # node.
            return NO_EVENTS if uid in self._by_uid else self._reserve(uid, self._index_while_pending(pod))
        holder = hold_of(pod, pod.node)
        before = self._by_uid.get(uid)
        if before is not None and what_is_held(before) == what_is_held(holder):
            return self._confirm(holder, pod)
        # What it still holds counts as changed too: a pod that waits for it may be placed, or have another reason now.
        cured_by = self._remove(uid) | self._insert(holder, pod)
        self._note_drift(pod)
        self.generations.mark(holder.node)
        return cured_by

    def forget(self, uid: str) -> frozenset[ClusterEvent]:
        """Remove a pod that is gone, or whose bind definitely failed. Return the cluster events of what became free."""
        return self._remove(uid) | self.used_resources.drop(uid)

    def assume(self, pod: Pod, placement: Placement) -> frozenset[ClusterEvent]:
        """Assume `placement` before its bind is sent. Return the cluster events that this causes.

        It stays assumed until `apply` confirms or `forget` removes it.
        """
        self._remove(pod.ref.uid)
        started = self._insert(assumed_hold(pod, placement), pod)
        self.generations.mark(placement.node)
        return started

    def reserve_index(self, uid: str, index: tuple[WorkloadKey, int] | None) -> frozenset[ClusterEvent]:
        """Reserve a line for a waiting pod that takes any line, because its volumes are being provisioned there.

        None ends the reservation. Return the cluster events that this causes.
        """
        cured_by = self._reserve(uid, index)
        if index is not None:
            self._by_decision.add(uid)
        return cured_by

    def reserved(self, uid: str) -> int | None:
        """Return the index that is reserved for a waiting pod, or None."""
        index = self._indices_of_pending.get(uid)
        return None if index is None else index[1]

    def apply_foreign_pod(self, foreign_pod: ForeignPod) -> frozenset[ClusterEvent]:
        """Store what a bound pod of another scheduler takes. Return the cluster events of what it no longer takes."""
        return self.used_resources.put(foreign_pod)

    def forget_foreign_pod(self, foreign_pod: ForeignPod) -> frozenset[ClusterEvent]:
        """Remove a pod of another scheduler that is gone or finished. Return the cluster events of what it released."""
        return self.used_resources.drop(foreign_pod.ref.uid)

    def apply_claim(self, uid: str, holds: tuple[Hold, ...]) -> frozenset[ClusterEvent]:
        """Store what a ResourceClaim holds; nothing if it is gone. Return the cluster events of what became free."""
        before = self._of_claims.pop(uid, ())
        if holds:
            self._of_claims[uid] = holds
        if before == holds:
            return NO_EVENTS
        freed = [self.devices.drop(each) for each in before]
        for each in holds:
            self.devices.put(each)
        for each in (*before, *holds):
            self.generations.mark(each.node)
        return NO_EVENTS.union(*freed)

    def apply_node(self, node: Node) -> frozenset[ClusterEvent]:
        """Store the node's devices. Return the cluster events that their change causes."""
        self.generations.apply_node(node)
        return self.devices.apply_node(node) | self.kept_lines.apply_node(node)

    def forget_node(self, name: str) -> frozenset[ClusterEvent]:
        """Remove the node. Pods that were bound to it keep their holds."""
        self.generations.forget_node(name)
        return self.devices.apply_node(Node(name)) | self.kept_lines.forget_node(name)

    def holds(self, uid: str) -> bool:
        """Whether this pod has a placement, assumed or bound. Its bind is then under way or done."""
        return uid in self._by_uid

    def index_holder(self, workload: WorkloadKey, index: int) -> Hold | None:
        """Return the hold of the pod that has this index of the workload (the first by name), or None."""
        uids = self.indices.holders(workload, index)
        if not uids:
            return None
        holders = (self._by_uid[uid] for uid in uids)
        return min(holders, key=lambda holder: (holder.ref.namespace, holder.ref.name, holder.ref.uid))

    def check_nodes(self) -> Iterator[str]:
        """Look for conflicts on each node that has changed since; yield its name."""
        for node in self.devices.unchecked(self._policy.sharing):
            self.devices.check(node, self._policy.sharing)
            yield node

    def conflicts(self) -> tuple[Conflict, ...]:
        """Return pairs of pods that hold one device against the rules, in a stable order."""
        return self.devices.conflicts(self._policy.sharing)

    def drift(self) -> int:
        """Return how many bound pods may not have the GPUs that they were given.

        They read them from an annotation that they do not have, so that they see no GPU and hold none; or a name that
        they use means another GPU now.
        """
        return len(self._drifting) + sum(1 for _ in self.devices.moved())

    def __iter__(self) -> Iterator[Hold]:
        """Iterate over the holds of pods, in the order in which they were recorded."""
        return iter(self._by_uid.values())

    @property
    def of_claims(self) -> Iterator[Hold]:
        """Iterate over what ResourceClaims hold, in the order in which they were recorded."""
        return chain.from_iterable(self._of_claims.values())

    def differences(self, other: "Ledger") -> int:
        """Return in how many entries the two ledgers differ."""
        mine, theirs = dict(self.entries()), dict(other.entries())
        return sum(mine.get(key) != theirs.get(key) for key in mine.keys() | theirs.keys())

    def entries(self) -> Iterator[tuple[object, object]]:
        """List the entries of this moment as pairs of key and value, also if they are read after later changes.

        The call copies the tables, which takes a fifth of the time of reading the entries.
        """
        tables: dict[str, dict[str, object]] = {
            "holder": {**self._by_uid},
            "reserved index": {**self._indices_of_pending},
            "drift": dict.fromkeys(self._drifting, True),
            "resource claim": {**self._of_claims},
        }
        return chain(
            (((word, uid), value) for word, table in tables.items() for uid, value in table.items()),
            self.devices.entries(),
            self.indices.entries(),
            self.used_resources.entries(),
            self.kept_lines.entries(),
        )

    def _insert(self, holder: Hold, pod: Pod) -> frozenset[ClusterEvent]:
        """Record the hold after `_remove`. Return the cluster events of what the pod no longer takes of a node."""
        uid = holder.ref.uid
        self._by_uid[uid] = holder
        self.devices.put(holder)
        if holder.workload is not None and holder.index is not None:
            self.indices.hold(holder.workload, holder.index, uid)
        freed, line = NO_EVENTS, pod.request.line
        if holder.together and line is not None and holder.index is not None:
            freed = self.kept_lines.put(line.workload, line.map, uid, holder.index)
        return freed | self.used_resources.put(ForeignPod(holder.ref, holder.node, pod.resource_request))

    def _confirm(self, holder: Hold, pod: Pod) -> frozenset[ClusterEvent]:
        """Record that the pod holds the same devices.

        Return the cluster events of what else it released, for example when it was resized in place.
        """
        self._by_uid[holder.ref.uid] = holder
        self.devices.confirm(holder)
        self._note_drift(pod)
        return self.used_resources.put(ForeignPod(holder.ref, holder.node, pod.resource_request))

    def _note_drift(self, pod: Pod) -> None:
        if drifts(pod):
            self._drifting.add(pod.ref.uid)
        else:
            self._drifting.discard(pod.ref.uid)

    def _remove(self, uid: str) -> frozenset[ClusterEvent]:
        """Remove the pod from every table except `used_resources`. Return the cluster events of what became free."""
        self._drifting.discard(uid)
        cured_by = self._reserve(uid, None) | self.kept_lines.drop(uid)
        holder = self._by_uid.pop(uid, None)
        if holder is None:
            return cured_by
        cured_by |= self.devices.drop(holder)
        if holder.workload is None or holder.index is None:
            return cured_by
        self.indices.release(holder.workload, holder.index, uid)
        return cured_by | {IndexChanged(holder.workload, holder.index), AnyIndexFreed(holder.workload)}

    def _reserve(self, uid: str, index: tuple[WorkloadKey, int] | None) -> frozenset[ClusterEvent]:
        before = self._indices_of_pending.get(uid)
        if before == index:
            return NO_EVENTS
        if index is not None:
            self.indices.reserve(*index, uid)
            self._indices_of_pending[uid] = index
        if before is None:
            return NO_EVENTS
        self.indices.unreserve(*before, uid)
        if index is None:
            del self._indices_of_pending[uid]
            self._by_decision.discard(uid)
        return frozenset({AnyIndexFreed(before[0])})

    def _index_while_pending(self, pod: Pod) -> tuple[WorkloadKey, int] | None:
        """Return the index to reserve: the pod's own or a decision's. A pod that is being deleted is never bound."""
        if pod.deleting_since is not None:
            return None
        by_decision = self._indices_of_pending.get(pod.ref.uid) if pod.ref.uid in self._by_decision else None
        return own_index(pod) or by_decision
