from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged, Storage, StorageChanged
from gpu_scheduler.core.filters.volumes import Selection, StorageClass, Volume, VolumeClaim, Volumes
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.pods.request import PlacementRequest
from gpu_scheduler.core.reasons import Reason, Unschedulable
from gpu_scheduler.core.refs import PodRef

NODE = Node("node1", labels={"zone": "a"})
IN_A = Volume("in-a", (NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),)),))
IN_B = Volume("in-b", (NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("b",)),)),))
ON_NODE1 = Volume("on-node1", (NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("node1",)),)),))
NOWHERE = Volume("nowhere", ())
ANYWHERE = Volume("anywhere")
AT_ONCE = StorageClass("at-once", waits_for_consumer=False)
LATE = StorageClass("late", waits_for_consumer=True)
BY_HAND = StorageClass("by-hand", waits_for_consumer=True, provisions=False)


def claim(name: str, volume: Volume | None = None) -> VolumeClaim:
    """A claim of namespace default, bound to `volume`."""
    return VolumeClaim("default", name, volume=volume.name if volume else None)


def of_class(name: str, storage_class: StorageClass, selected_node: str | None = None) -> VolumeClaim:
    """A claim that has no volume yet."""
    return VolumeClaim("default", name, storage_class=storage_class.name, selected_node=selected_node)


def volumes(*claims: VolumeClaim) -> Volumes:
    """These claims, and all volumes and classes of this file."""
    known = Volumes()
    for volume in (IN_A, IN_B, ON_NODE1, NOWHERE, ANYWHERE):
        known.volume_applied(volume)
    for storage_class in (AT_ONCE, LATE, BY_HAND):
        known.class_applied(storage_class)
    for each in claims:
        known.claim_applied(each)
    return known


def pod(*claims: str) -> Pod:
    """A pod that mounts these claims."""
    return Pod(PodRef("default", "train-0", "uid-0"), PlacementRequest(), claims=claims)


def look(*claims: VolumeClaim, mounts: tuple[str, ...] | None = None) -> Unschedulable | Selection | None:
    """What is said of a pod that mounts these claims, or those named, on node1."""
    mounted = tuple(each.name for each in claims) if mounts is None else mounts
    return volumes(*claims).look(pod(*mounted), NODE)


def changed(*claims: str, volume: str = "", storage_class: str = "", labels: bool = False) -> frozenset[ClusterEvent]:
    """Changes of these objects, and of node1's labels."""
    cured_by: set[ClusterEvent] = {StorageChanged(Storage.CLAIM, f"default/{name}") for name in claims}
    if volume:
        cured_by.add(StorageChanged(Storage.VOLUME, volume))
    if storage_class:
        cured_by.add(StorageChanged(Storage.CLASS, storage_class))
    if labels:
        cured_by.add(NodeChanged("node1", Aspect.LABELS))
    return frozenset(cured_by)


FINE = {
    "a pod without claims": (),
    "a volume that any node can reach": (claim("data", ANYWHERE),),
    "a volume that a label's nodes can reach": (claim("data", IN_A),),
    "a volume on the node itself": (claim("data", ON_NODE1),),
    "several volumes": (claim("data", IN_A), claim("logs", ANYWHERE)),
}


@pytest.mark.parametrize("claims", FINE.values(), ids=FINE)
def test_bound_volumes_that_the_node_reaches_are_no_obstacle(claims: tuple[VolumeClaim, ...]) -> None:
    """Nothing is written and nothing waits."""
    assert look(*claims) is None


DESCRIBE = "see kubectl describe pvc -n default data"
OBSTACLES: dict[str, tuple[VolumeClaim | None, str, frozenset[ClusterEvent]]] = {
    "a claim that nobody made": (
        None,
        'VolumeNotBound: cannot find claim "default/data"; create it',
        changed("data"),
    ),
    "a claim of another namespace": (
        VolumeClaim("other", "data", volume="anywhere"),
        'VolumeNotBound: cannot find claim "default/data"; create it',
        changed("data"),
    ),
    "a claim that is going": (
        replace(claim("data", ANYWHERE), deleting=True),
        "VolumeNotBound: claim default/data is being deleted; create it anew when it is gone",
        changed("data"),
    ),
    "a claim that only asks for its volume": (
        replace(claim("data", ANYWHERE), complete=False),
        (
            'VolumeNotBound: claim default/data asks for volume "anywhere" and is not bound to it; '
            f"free that volume or name another; {DESCRIBE}"
        ),
        changed("data"),
    ),
    "a volume not seen": (
        VolumeClaim("default", "data", volume="lost"),
        'VolumeNotBound: cannot find volume "lost" of claim default/data; restore the volume, or create the claim anew',
        changed("data", volume="lost"),
    ),
    "a volume of another zone": (
        claim("data", IN_B),
        (
            "NodeAffinityMismatch: volume in-b of claim default/data cannot be reached from node node1; use a node "
            "that matches the volume's node affinity (kubectl describe pv in-b), or another claim"
        ),
        changed("data", volume="in-b", labels=True),
    ),
    "a volume that no node reaches": (
        claim("data", NOWHERE),
        (
            "NodeAffinityMismatch: volume nowhere of claim default/data cannot be reached from node node1; use a node "
            "that matches the volume's node affinity (kubectl describe pv nowhere), or another claim"
        ),
        changed("data", volume="nowhere", labels=True),
    ),
    "an unbound claim without a class": (
        claim("data"),
        f"VolumeNotBound: claim default/data is not bound to a volume; {DESCRIBE}",
        changed("data"),
    ),
    "an unbound claim of a class that binds at once": (
        of_class("data", AT_ONCE),
        f"VolumeNotBound: claim default/data is not bound to a volume; {DESCRIBE}",
        changed("data", storage_class="at-once"),
    ),
    "a class that nobody made": (
        of_class("data", StorageClass("gone", waits_for_consumer=True)),
        (
            'VolumeNotBound: cannot find storage class "gone" of claim default/data; '
            "create the class, or the claim anew with one that exists"
        ),
        changed("data", storage_class="gone"),
    ),
    "a class whose volumes are made by hand": (
        of_class("data", BY_HAND),
        (
            "VolumeNotBound: claim default/data is not bound, and its class by-hand makes no volumes; "
            "create the claim anew with spec.volumeName, the volume it is to have"
        ),
        changed("data", storage_class="by-hand"),
    ),
    "a claim that was given another node": (
        of_class("data", LATE, "node2"),
        (
            'VolumeNotBound: claim default/data gets its volume on node "node2", not on node1; wait for the pod it was '
            "made for, or free it: kubectl annotate pvc -n default data volume.kubernetes.io/selected-node-"
        ),
        changed("data"),
    ),
}


@pytest.mark.parametrize(("known", "message", "cured_by"), OBSTACLES.values(), ids=OBSTACLES)
def test_an_obstacle_names_claim_and_cure(
    known: VolumeClaim | None, message: str, cured_by: frozenset[ClusterEvent]
) -> None:
    """It is told in one sentence, and only what can cure it wakes the pod."""
    found = look(*(() if known is None else (known,)), mounts=("data",))

    assert isinstance(found, Unschedulable)
    assert found.message == message
    assert found.cured_by == cured_by


def test_a_claim_that_waits_for_its_pod_is_given_the_node() -> None:
    """Until its volume is there the pod waits, in the words in which it will wait once the node is written."""
    found = look(of_class("data", LATE))
    later = look(of_class("data", LATE, "node1"))

    assert isinstance(found, Selection)
    assert isinstance(later, Selection)
    assert (found.claims, later.claims, found.node) == (("data",), (), "node1")
    assert found.unschedulable == later.unschedulable
    assert found.unschedulable.message == (
        "VolumeNotBound: claim default/data waits for its provisioner to make a volume on node node1; "
        f"it comes by itself; {DESCRIBE}"
    )
    assert found.unschedulable.cured_by == changed("data")


def test_all_claims_that_wait_are_given_the_node_at_once() -> None:
    """Those that have it already, or have their volume, are left alone; each of the others counts as a cure."""
    found = look(
        claim("bound", IN_A),
        of_class("told", LATE, "node1"),
        of_class("b", LATE),
        of_class("c", LATE),
        mounts=("bound", "told", "b", "b", "c"),
    )

    assert isinstance(found, Selection)
    assert found.claims == ("b", "c")
    assert found.unschedulable.message.startswith("VolumeNotBound: claim default/told waits")
    assert found.unschedulable.cured_by == changed("told", "b", "c")


FIRST: dict[str, tuple[tuple[VolumeClaim, ...], str]] = {
    "a missing volume before a claim that waits": (
        (of_class("a", LATE), VolumeClaim("default", "b", "lost")),
        "default/b",
    ),
    "another node before a claim that waits": ((of_class("a", LATE), of_class("b", LATE, "node2")), "default/b"),
    "a volume elsewhere before all else": ((claim("a"), claim("b", IN_B), claim("c", NOWHERE)), "default/b"),
    "the pod's order among equals": ((claim("b"), claim("a")), "default/b"),
}


@pytest.mark.parametrize(("claims", "named"), FIRST.values(), ids=FIRST)
def test_no_claim_is_given_a_node_that_the_pod_cannot_have(claims: tuple[VolumeClaim, ...], named: str) -> None:
    """A volume made on a node stays there: whatever else is in the way comes first."""
    found = look(*claims)

    assert isinstance(found, Unschedulable)
    assert f"claim {named}" in found.message


def test_whatever_a_pod_calls_its_claim_is_quoted() -> None:
    """The API takes any text there."""
    found = look(mounts=("x\n" * 99,))

    assert isinstance(found, Unschedulable)
    assert found.reason is Reason.VOLUME_NOT_BOUND
    assert found.message.isprintable()
    assert len(found.message) < 150


def test_each_change_wakes_whom_it_may_help() -> None:
    """A claim is called NAMESPACE/NAME; an object as it was before wakes nobody."""
    known = Volumes()

    assert known.claim_applied(claim("data")) == changed("data")
    assert known.claim_applied(claim("data")) == frozenset()
    assert known.claim_applied(claim("data", IN_A)) == changed("data")
    assert known.claim_forgotten(claim("data")) == changed("data")
    assert known.claim_forgotten(claim("data")) == frozenset()
    assert known.volume_applied(IN_A) == changed(volume="in-a")
    assert known.volume_applied(IN_A) == frozenset()
    assert known.volume_forgotten(IN_A) == changed(volume="in-a")
    assert known.class_applied(LATE) == changed(storage_class="late")
    assert known.class_applied(LATE) == frozenset()
    assert known.class_forgotten(LATE) == changed(storage_class="late")


def test_what_is_gone_is_forgotten() -> None:
    """A claim is judged by what there is now."""
    known = volumes(claim("data", ANYWHERE), of_class("late", LATE))
    known.volume_forgotten(ANYWHERE)
    known.class_forgotten(LATE)

    assert "cannot find volume" in _what(known.look(pod("data"), NODE))
    assert "cannot find storage class" in _what(known.look(pod("late"), NODE))
    known.claim_forgotten(claim("data"))
    assert "cannot find claim" in _what(known.look(pod("data"), NODE))


def _what(found: Unschedulable | Selection | None) -> str:
    assert isinstance(found, Unschedulable)
    return found.what
