"""Whether a pod's volumes can be had on a node: claims, the volumes they are bound to, and their classes.

LAW: constant time a claim. A claim that waits for its first consumer is given a node only when nothing else is in the
way.
"""

from dataclasses import dataclass
from typing import TypeVar

from gpu_scheduler import names
from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged, Storage, StorageChanged
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorTerm
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.text import quote

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A PersistentVolumeClaim. `str()` gives `default/data`."""

    namespace: str
    name: str
    volume: str | None = None
    storage_class: str | None = None
    """None where none was given: then a volume is looked for at once, and none is made."""
    selected_node: str | None = None
    """The node on which its provisioner is to make the volume."""
    deleting: bool = False
    complete: bool = True
    """False where `volume` is only what its author asked for, and the cluster has not bound it yet."""

    def __str__(self) -> str:
        """As kubectl's users write it."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume; `affinity` None can be reached from every node."""

    name: str
    affinity: tuple[NodeSelectorTerm, ...] | None = None

    def is_reached_from(self, node: Node) -> bool:
        """Whether one of its terms means `node`."""
        return self.affinity is None or any(term.matches(node.labels, node.name) for term in self.affinity)


@dataclass(frozen=True, slots=True)
class StorageClass:
    """How volumes of this class come about."""

    name: str
    waits_for_consumer: bool
    provisions: bool = True
    """False where its volumes are made by hand: no annotation brings one forth."""


@dataclass(frozen=True, slots=True)
class Selection:
    """All is well, but the pod's volumes are yet to be made on `node`.

    `claims` are the names of those that do not say so yet; `unschedulable` is what the pod waits for meanwhile.
    """

    claims: tuple[str, ...]
    node: str
    unschedulable: Unschedulable


class Volumes:
    """What is known of the cluster's storage."""

    __slots__ = ("_claims", "_classes", "_volumes")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._claims: dict[str, VolumeClaim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}

    def claim_applied(self, claim: VolumeClaim) -> frozenset[ClusterEvent]:
        """Take the claim as it is now; answers who may want to know."""
        return _take(self._claims, Storage.CLAIM, str(claim), claim)

    def claim_forgotten(self, claim: VolumeClaim) -> frozenset[ClusterEvent]:
        """Take the claim as gone; answers who may want to know."""
        return _drop(self._claims, Storage.CLAIM, str(claim))

    def volume_applied(self, volume: Volume) -> frozenset[ClusterEvent]:
        """Take the volume as it is now; answers who may want to know."""
        return _take(self._volumes, Storage.VOLUME, volume.name, volume)

    def volume_forgotten(self, volume: Volume) -> frozenset[ClusterEvent]:
        """Take the volume as gone; answers who may want to know."""
        return _drop(self._volumes, Storage.VOLUME, volume.name)

    def class_applied(self, storage_class: StorageClass) -> frozenset[ClusterEvent]:
        """Take the class as it is now; answers who may want to know."""
        return _take(self._classes, Storage.CLASS, storage_class.name, storage_class)

    def class_forgotten(self, storage_class: StorageClass) -> frozenset[ClusterEvent]:
        """Take the class as gone; answers who may want to know."""
        return _drop(self._classes, Storage.CLASS, storage_class.name)

    def look(self, pod: Pod, node: Node) -> Unschedulable | Selection | None:
        """What keeps the pod's volumes from `node`, or what must be done first; None when all are there."""
        answers = [self._ask(f"{pod.ref.namespace}/{name}", node) for name in dict.fromkeys(pod.claims)]
        obstacles = [answer for answer in answers if isinstance(answer, Unschedulable)]
        if obstacles:
            # A volume that is elsewhere stays there, whatever becomes of the others: that is told first.
            return min(obstacles, key=lambda unschedulable: unschedulable.reason is not Reason.NODE_AFFINITY_MISMATCH)
        awaited = [answer for answer in answers if isinstance(answer, VolumeClaim)]
        if not awaited:
            return None
        unschedulable = _awaited(awaited, node)
        unselected = tuple(claim.name for claim in awaited if claim.selected_node is None)
        return Selection(unselected, node.name, unschedulable)

    def _ask(self, key: str, node: Node) -> Unschedulable | VolumeClaim | None:
        """None when its volume is there for `node`; the claim itself when its volume is yet to be made there."""
        claim = self._claims.get(key)
        if claim is None:
            return _not_bound(key, f"cannot find claim {quote(key)}", "create it")
        if claim.deleting:
            return _not_bound(key, f"claim {claim} is being deleted", "create it anew when it is gone")
        if claim.volume is None:
            return self._ask_unbound(claim, node)
        if not claim.complete:
            return _not_bound(
                key,
                f"claim {claim} asks for volume {quote(claim.volume)} and is not bound to it",
                f"free that volume or name another; see {_describe(claim)}",
            )
        return self._ask_bound(claim, claim.volume, node)

    def _ask_bound(self, claim: VolumeClaim, name: str, node: Node) -> Unschedulable | None:
        volume = self._volumes.get(name)
        cured_by = StorageChanged(Storage.VOLUME, name)
        if volume is None:
            what = f"cannot find volume {quote(name)} of claim {claim}"
            return _not_bound(str(claim), what, "restore the volume, or create the claim anew", cured_by)
        if volume.is_reached_from(node):
            return None
        return Unschedulable(
            Reason.NODE_AFFINITY_MISMATCH,
            f"volume {name} of claim {claim} cannot be reached from node {node.name}",
            f"use a node that matches the volume's node affinity (kubectl describe pv {name}), or another claim",
            frozenset({_claim_changed(str(claim)), cured_by, NodeChanged(node.name, Aspect.LABELS)}),
        )

    def _ask_unbound(self, claim: VolumeClaim, node: Node) -> Unschedulable | VolumeClaim:
        key = str(claim)
        if claim.storage_class is None:
            return _not_bound(key, f"claim {claim} is not bound to a volume", f"see {_describe(claim)}")
        storage_class = self._classes.get(claim.storage_class)
        cured_by = StorageChanged(Storage.CLASS, claim.storage_class)
        if storage_class is None:
            what = f"cannot find storage class {quote(claim.storage_class)} of claim {claim}"
            return _not_bound(key, what, "create the class, or the claim anew with one that exists", cured_by)
        if not storage_class.waits_for_consumer:
            return _not_bound(key, f"claim {claim} is not bound to a volume", f"see {_describe(claim)}", cured_by)
        if not storage_class.provisions:
            what = f"claim {claim} is not bound, and its class {storage_class.name} makes no volumes"
            return _not_bound(
                key, what, "create the claim anew with spec.volumeName, the volume it is to have", cured_by
            )
        if claim.selected_node is not None and claim.selected_node != node.name:
            return _not_bound(
                key,
                f"claim {claim} gets its volume on node {quote(claim.selected_node)}, not on {node.name}",
                "wait for the pod it was made for, or free it: "
                f"kubectl annotate pvc -n {claim.namespace} {claim.name} {names.SELECTED_NODE}-",
            )
        return claim


def _awaited(claims: list[VolumeClaim], node: Node) -> Unschedulable:
    """Told in the same words before and after a claim is given its node, so that it is told once.

    A provisioner that gives up takes the annotation back: every claim counts as a cure, not only the one named.
    """
    first = claims[0]
    return Unschedulable(
        Reason.VOLUME_NOT_BOUND,
        f"claim {first} waits for its provisioner to make a volume on node {node.name}",
        f"it comes by itself; see {_describe(first)}",
        frozenset(_claim_changed(str(claim)) for claim in claims),
    )


def _not_bound(claim: str, what: str, remedy: str, *cured_by: ClusterEvent) -> Unschedulable:
    return Unschedulable(Reason.VOLUME_NOT_BOUND, what, remedy, frozenset({_claim_changed(claim), *cured_by}))


def _claim_changed(key: str) -> StorageChanged:
    return StorageChanged(Storage.CLAIM, key)


def _describe(claim: VolumeClaim) -> str:
    return f"kubectl describe pvc -n {claim.namespace} {claim.name}"


def _take(known: dict[str, T], kind: Storage, name: str, value: T) -> frozenset[ClusterEvent]:
    if known.get(name) == value:
        return frozenset()
    known[name] = value
    return frozenset({StorageChanged(kind, name)})


def _drop(known: dict[str, T], kind: Storage, name: str) -> frozenset[ClusterEvent]:
    return frozenset() if known.pop(name, None) is None else frozenset({StorageChanged(kind, name)})
