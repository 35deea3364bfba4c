"""Whether a pod can use its volumes on a node: claims, the volumes that they are bound to, and storage classes.

LAW: constant time for each claim. A claim that waits for its first consumer gets a node only if all other filters pass.
"""

from dataclasses import replace
from typing import Final, TypeVar

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged, Storage, StorageChanged
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorTerm
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.remedies import made_anew
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

T = TypeVar("T")

_OTHER_CLAIM: Final = made_anew("name another claim or another node")


@immutable
class VolumeClaim:
    """A PersistentVolumeClaim. `str()` gives `default/data`."""

    namespace: str
    name: str
    volume: str | None = None
    storage_class: str | None = None
    """None if the claim names none. Then Kubernetes looks for an existing volume at once and provisions none."""
    selected_node: str | None = None
    """The node for which its provisioner must make the volume."""
    deleting: bool = False
    complete: bool = True
    """False if `volume` is only what the author asked for, and the cluster has not bound the claim yet."""

    def __str__(self) -> str:
        """Return NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"


@immutable
class Volume:
    """A PersistentVolume. If `affinity` is None, every node can reach it."""

    name: str
    affinity: tuple[NodeSelectorTerm, ...] | None = None

    def is_reached_from(self, node: Node) -> bool:
        """Whether the volume has no affinity, or one of its terms matches `node`."""
        return self.affinity is None or any(term.matches(node.labels, node.name) for term in self.affinity)


@immutable
class StorageClass:
    """A StorageClass: how its volumes are made."""

    name: str
    waits_for_consumer: bool
    provisions: bool = True
    """False if its volumes are made by hand. Then no annotation of the claim creates a volume."""


@immutable
class Selection:
    """All filters pass, but volumes of the pod must still be made on `node`.

    `claims` are the names of the claims that have no selected node yet. `unschedulable` says what the pod waits for.
    """

    claims: tuple[str, ...]
    node: str
    unschedulable: Unschedulable


class Volumes:
    """The cluster's claims, volumes and storage classes."""

    __slots__ = ("_claims", "_classes", "_unread", "_unwritten", "_volumes")

    def __init__(self, unread: str = "", unwritten: str = "") -> None:
        """Start empty. `unread` and `unwritten` are the missing rights to storage, see Policy."""
        self._unread = unread
        self._unwritten = unwritten
        self._claims: dict[str, VolumeClaim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}

    def claim_applied(self, claim: VolumeClaim) -> frozenset[ClusterEvent]:
        """Store the claim. Return the cluster events that its change causes."""
        return _take(self._claims, Storage.CLAIM, str(claim), claim)

    def claim_forgotten(self, claim: VolumeClaim) -> frozenset[ClusterEvent]:
        """Remove the claim. Return the cluster events that this causes."""
        return _drop(self._claims, Storage.CLAIM, str(claim))

    def volume_applied(self, volume: Volume) -> frozenset[ClusterEvent]:
        """Store the volume. Return the cluster events that its change causes."""
        return _take(self._volumes, Storage.VOLUME, volume.name, volume)

    def volume_forgotten(self, volume: Volume) -> frozenset[ClusterEvent]:
        """Remove the volume. Return the cluster events that this causes."""
        return _drop(self._volumes, Storage.VOLUME, volume.name)

    def class_applied(self, storage_class: StorageClass) -> frozenset[ClusterEvent]:
        """Store the storage class. Return the cluster events that its change causes."""
        return _take(self._classes, Storage.CLASS, storage_class.name, storage_class)

    def class_forgotten(self, storage_class: StorageClass) -> frozenset[ClusterEvent]:
        """Remove the storage class. Return the cluster events that this causes."""
        return _drop(self._classes, Storage.CLASS, storage_class.name)

    def filter(self, pod: Pod, node: Node) -> Unschedulable | Selection | None:
        """Return why the pod cannot use its volumes on `node`, or which volumes must be made first.

        Return None if all are ready.
        """
        if not pod.claims:
            return None
        if self._unread:
            return _not_permitted(f"{pod.ref.namespace}/{pod.claims[0]}", "check", self._unread)
        answers = [self._ask(f"{pod.ref.namespace}/{name}", node) for name in dict.fromkeys(pod.claims)]
        obstacles = [answer for answer in answers if isinstance(answer, Unschedulable)]
        if obstacles:
            # A volume that `node` cannot reach is reported first: a change of the other claims does not help.
            return min(obstacles, key=lambda unschedulable: unschedulable.reason is not Reason.NODE_AFFINITY_MISMATCH)
        awaited = [answer for answer in answers if isinstance(answer, VolumeClaim)]
        if not awaited:
            return None
        unschedulable = _awaited(awaited, node)
        unselected = tuple(claim.name for claim in awaited if claim.selected_node is None)
        if unselected and self._unwritten:
            return _not_permitted(
                f"{pod.ref.namespace}/{unselected[0]}", f"choose node {node.name} for", self._unwritten
            )
        return Selection(unselected, node.name, unschedulable)

    def _ask(self, key: str, node: Node) -> Unschedulable | VolumeClaim | None:
        """Return None if `node` can reach the claim's volume.

        Return the claim itself if its volume must still be made there.
        """
        claim = self._claims.get(key)
        if claim is None:
            return _not_bound(key, f"cannot find claim {quote(key)}", "create it")
        if claim.deleting:
            return _not_bound(key, f"claim {claim} is being deleted", "recreate it when it is gone")
        if claim.volume is None:
            return self._ask_unbound(claim, node)
        if not claim.complete:
            return _not_bound(
                key,
                f"claim {claim} asks for volume {quote(claim.volume)} and is not bound to it",
                f"free that volume, or recreate the claim with another; see {_describe(claim)}",
            )
        return self._ask_bound(claim, claim.volume, node)

    def _ask_bound(self, claim: VolumeClaim, name: str, node: Node) -> Unschedulable | None:
        volume = self._volumes.get(name)
        cured_by = StorageChanged(Storage.VOLUME, name)
        if volume is None:
            what = f"cannot find volume {quote(name)} of claim {claim}"
            return _not_bound(str(claim), what, "restore the volume, or recreate the claim", cured_by)
        if volume.is_reached_from(node):
            return None
        return Unschedulable(
            Reason.NODE_AFFINITY_MISMATCH,
            f"volume {name} of claim {claim} cannot be reached from node {node.name}",
            f"{_OTHER_CLAIM}; which nodes it allows: kubectl describe pv {name}",
            frozenset({_claim_changed(str(claim)), cured_by, NodeChanged(node.name, Aspect.LABELS)}),
        )

    def _ask_unbound(self, claim: VolumeClaim, node: Node) -> Unschedulable | VolumeClaim:
        key = str(claim)
        if claim.storage_class is None:
            return _not_bound(key, f"claim {claim} is not bound to a volume", _unbound(claim))
        storage_class = self._classes.get(claim.storage_class)
        cured_by = StorageChanged(Storage.CLASS, claim.storage_class)
        if storage_class is None:
            what = f"cannot find storage class {quote(claim.storage_class)} of claim {claim}"
            return _not_bound(key, what, "create the class, or recreate the claim with one that exists", cured_by)
        if not storage_class.waits_for_consumer:
            return _not_bound(key, f"claim {claim} is not bound to a volume", _unbound(claim), cured_by)
        if not storage_class.provisions:
            what = f"claim {claim} is not bound, and its class {storage_class.name} makes no volumes"
            return _not_bound(key, what, "recreate the claim with spec.volumeName, the volume it is to have", cured_by)
        if claim.selected_node is not None and claim.selected_node != node.name:
            command = f"kubectl annotate pvc -n {claim.namespace} {claim.name} {names.SELECTED_NODE}-"
            found = _not_bound(
                key,
                f"claim {claim} gets its volume on node {quote(claim.selected_node)}, not on {node.name}",
                f"wait for the pod it was made for, or free it: {command}",
            )
            return replace(found, command=command)
        return claim


def _awaited(claims: list[VolumeClaim], node: Node) -> Unschedulable:
    """Return the wait for the provisioner.

    The text is the same before and after a claim gets its node, so that the event is written once. A provisioner that
    gives up removes the annotation. Therefore a change of any claim requeues the pod, not only a change of the claim
    that the text names.
    """
    first = claims[0]
    return Unschedulable(
        Reason.VOLUME_NOT_BOUND,
        f"claim {first} waits for its provisioner to make a volume on node {node.name}",
        f"no action is needed; see {_describe(first)}",
        frozenset(_claim_changed(str(claim)) for claim in claims),
    )


def _not_bound(claim: str, what: str, remedy: str, *cured_by: ClusterEvent) -> Unschedulable:
    return Unschedulable(Reason.VOLUME_NOT_BOUND, what, remedy, frozenset({_claim_changed(claim), *cured_by}))


def _not_permitted(claim: str, action: str, right: str) -> Unschedulable:
    what = f"cannot {action} claim {claim}: this scheduler has no right to {right}"
    return _not_bound(claim, what, "let an administrator grant it, then start the scheduler again; its log says how")


def _claim_changed(key: str) -> StorageChanged:
    return StorageChanged(Storage.CLAIM, key)


def _unbound(claim: VolumeClaim) -> str:
    return f"wait until it is; why it is not: {_describe(claim)}"


def _describe(claim: VolumeClaim) -> str:
    return f"kubectl describe pvc -n {claim.namespace} {claim.name}"


def _take(known: dict[str, T], kind: Storage, name: str, value: T) -> frozenset[ClusterEvent]:
    if known.get(name) == value:
        return frozenset()
    known[name] = value
    return frozenset({StorageChanged(kind, name)})


def _drop(known: dict[str, T], kind: Storage, name: str) -> frozenset[ClusterEvent]:
    return frozenset() if known.pop(name, None) is None else frozenset({StorageChanged(kind, name)})
