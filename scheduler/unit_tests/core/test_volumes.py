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
from tests.messages import says, text_of

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
    """Return a claim of namespace default, bound to `volume`."""
    return VolumeClaim("default", name, volume=volume.name if volume else None)


def of_class(name: str, storage_class: StorageClass, selected_node: str | None = None) -> VolumeClaim:
    """Return a claim of this class that has no volume yet."""
    return VolumeClaim("default", name, storage_class=storage_class.name, selected_node=selected_node)


def volumes(*claims: VolumeClaim) -> Volumes:
    """Return these claims with all volumes and classes of this file."""
    known = Volumes()
    for volume in (IN_A, IN_B, ON_NODE1, NOWHERE, ANYWHERE):
        known.volume_applied(volume)
    for storage_class in (AT_ONCE, LATE, BY_HAND):
        known.class_applied(storage_class)
    for each in claims:
        known.claim_applied(each)
    return known


def pod(*claims: str) -> Pod:
    return Pod(PodRef("default", "train-0", "uid-0"), PlacementRequest(), claims=claims)


def filtered(*claims: VolumeClaim, mounts: tuple[str, ...] | None = None) -> Unschedulable | Selection | None:
    """Filter node1 for a pod that mounts these claims, or the claims named in `mounts`."""
    mounted = tuple(each.name for each in claims) if mounts is None else mounts
    return volumes(*claims).filter(pod(*mounted), NODE)


def changed(*claims: str, volume: str = "", storage_class: str = "", labels: bool = False) -> frozenset[ClusterEvent]:
    """Return the events of changes of these objects, and of node1's labels."""
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
def test_bound_volumes_that_the_node_reaches_pass_the_filter(claims: tuple[VolumeClaim, ...]) -> None:
    """No claim is written, and the pod does not wait."""
    assert filtered(*claims) is None


UNSCHEDULABLE: dict[str, tuple[VolumeClaim | None, tuple[str, ...], frozenset[ClusterEvent]]] = {
    "a claim that does not exist": (None, ("VolumeNotBound", '"default/data"'), changed("data")),
    "a claim of another namespace": (
        VolumeClaim("other", "data", volume="anywhere"),
        ("VolumeNotBound", '"default/data"'),
        changed("data"),
    ),
    "a claim that is being deleted": (
        replace(claim("data", ANYWHERE), deleting=True),
        ("VolumeNotBound", "default/data"),
        changed("data"),
    ),
    "a claim that names its volume and is not bound": (
        replace(claim("data", ANYWHERE), complete=False),
        ("VolumeNotBound", "default/data", '"anywhere"', "kubectl describe pvc -n default data"),
        changed("data"),
    ),
    "a volume not seen": (
        VolumeClaim("default", "data", volume="lost"),
        ("VolumeNotBound", '"lost"', "default/data"),
        changed("data", volume="lost"),
    ),
    "a volume of another zone": (
        claim("data", IN_B),
        ("NodeAffinityMismatch", "default/data", "node1", "kubectl describe pv in-b"),
        changed("data", volume="in-b", labels=True),
    ),
    "a volume that no node reaches": (
        claim("data", NOWHERE),
        ("NodeAffinityMismatch", "default/data", "node1", "kubectl describe pv nowhere"),
        changed("data", volume="nowhere", labels=True),
    ),
    "an unbound claim without a class": (
        claim("data"),
        ("VolumeNotBound", "default/data", "kubectl describe pvc -n default data"),
        changed("data"),
    ),
    "an unbound claim of a class that binds at once": (
        of_class("data", AT_ONCE),
        ("VolumeNotBound", "default/data", "kubectl describe pvc -n default data"),
        changed("data", storage_class="at-once"),
    ),
    "a class that does not exist": (
        of_class("data", StorageClass("gone", waits_for_consumer=True)),
        ("VolumeNotBound", '"gone"', "default/data"),
        changed("data", storage_class="gone"),
    ),
    "a class without a provisioner": (
        of_class("data", BY_HAND),
        ("VolumeNotBound", "default/data"),
        changed("data", storage_class="by-hand"),
    ),
    "a claim with another selected node": (
        of_class("data", LATE, "node2"),
        (
            "VolumeNotBound",
            "default/data",
            '"node2"',
            "node1",
            "kubectl annotate pvc -n default data volume.kubernetes.io/selected-node-",
        ),
        changed("data"),
    ),
}


@pytest.mark.promise("fit-12")
@pytest.mark.parametrize(("known", "said", "cured_by"), UNSCHEDULABLE.values(), ids=UNSCHEDULABLE)
def test_a_message_names_claim_and_remedy(
    known: VolumeClaim | None, said: tuple[str, ...], cured_by: frozenset[ClusterEvent]
) -> None:
    """The message is one sentence; only changes that can help requeue the pod."""
    found = filtered(*(() if known is None else (known,)), mounts=("data",))

    assert isinstance(found, Unschedulable)
    says(found.message, *said)
    assert found.cured_by == cured_by


def test_a_claim_that_waits_for_its_pod_gets_the_node() -> None:
    """The pod waits for the volume, with the same message before and after the node is written."""
    found = filtered(of_class("data", LATE))
    later = filtered(of_class("data", LATE, "node1"))

    assert isinstance(found, Selection)
    assert isinstance(later, Selection)
    assert (found.claims, later.claims, found.node) == (("data",), (), "node1")
    assert found.unschedulable == later.unschedulable
    says(found.unschedulable.message, "VolumeNotBound", "default/data", "node1", "kubectl describe pvc -n default data")
    assert found.unschedulable.cured_by == changed("data")


def test_all_claims_that_wait_get_the_node_at_once() -> None:
    """Claims that have the node or a volume are not written; a change of any waiting claim requeues the pod."""
    found = filtered(
        claim("bound", IN_A),
        of_class("told", LATE, "node1"),
        of_class("b", LATE),
        of_class("c", LATE),
        mounts=("bound", "told", "b", "b", "c"),
    )

    assert isinstance(found, Selection)
    assert found.claims == ("b", "c")
    says(found.unschedulable.message, "VolumeNotBound", "default/told")
    assert found.unschedulable.cured_by == changed("told", "b", "c")


FIRST: dict[str, tuple[tuple[VolumeClaim, ...], str]] = {
    "a missing volume before a claim that waits": (
        (of_class("a", LATE), VolumeClaim("default", "b", "lost")),
        "default/b",
    ),
    "another selected node before a claim that waits": (
        (of_class("a", LATE), of_class("b", LATE, "node2")),
        "default/b",
    ),
    "a volume that the node does not reach before all others": (
        (claim("a"), claim("b", IN_B), claim("c", NOWHERE)),
        "default/b",
    ),
    "the pod's order among equals": ((claim("b"), claim("a")), "default/b"),
}


@pytest.mark.parametrize(("claims", "named"), FIRST.values(), ids=FIRST)
def test_no_claim_gets_a_node_that_the_pod_cannot_have(claims: tuple[VolumeClaim, ...], named: str) -> None:
    """A volume made on a node stays there: all other reasons come first."""
    found = filtered(*claims)

    assert isinstance(found, Unschedulable)
    assert f"claim {named}" in found.message


def test_a_malformed_claim_name_is_quoted() -> None:
    """The API server accepts any text as a claim's name in a pod."""
    found = filtered(mounts=("x\n" * 99,))

    assert isinstance(found, Unschedulable)
    assert found.reason is Reason.VOLUME_NOT_BOUND
    assert found.message.isprintable()
    assert len(found.message) < 150


def test_each_change_is_a_cluster_event() -> None:
    """A claim's event names it NAMESPACE/NAME; an unchanged object is no event."""
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


def test_deleted_objects_are_forgotten() -> None:
    """A claim is filtered by the present objects."""
    known = volumes(claim("data", ANYWHERE), of_class("late", LATE))
    known.volume_forgotten(ANYWHERE)
    known.class_forgotten(LATE)

    assert f'volume "{ANYWHERE.name}"' in _what(known.filter(pod("data"), NODE))
    assert f'class "{LATE.name}"' in _what(known.filter(pod("late"), NODE))
    known.claim_forgotten(claim("data"))
    assert 'claim "default/data"' in _what(known.filter(pod("data"), NODE))


def _what(found: Unschedulable | Selection | None) -> str:
    assert isinstance(found, Unschedulable)
    return found.what


def unpermitted(what: str, **values: str) -> tuple[str, str]:
    """Return what a scheduler without rights says, and the remedy."""
    said, _, remedy = text_of(f"a scheduler without rights {what}", **values).partition(": ")[2].partition("; ")
    return said, remedy


def test_a_missing_right_to_read_storage_is_named() -> None:
    """What cannot be read may exist: the message does not say that the claim is missing. Other pods pass."""
    known = Volumes(unread="list, watch persistentvolumeclaims")

    assert known.filter(pod(), NODE) is None
    assert known.filter(pod("data", "logs"), NODE) == Unschedulable(
        Reason.VOLUME_NOT_BOUND,
        *unpermitted("cannot check a claim", claim="default/data", rights="list, watch persistentvolumeclaims"),
        changed("data"),
    )


def test_a_missing_right_to_select_a_node_is_named() -> None:
    """A claim with a selected node needs no write, and neither does one that is bound."""
    known = Volumes(unwritten="patch persistentvolumeclaims")
    known.class_applied(LATE)
    known.volume_applied(ANYWHERE)
    for each in (of_class("data", LATE), of_class("selected", LATE, "node1"), claim("bound", ANYWHERE)):
        known.claim_applied(each)

    assert known.filter(pod("bound"), NODE) is None
    assert isinstance(known.filter(pod("selected"), NODE), Selection)
    assert known.filter(pod("bound", "selected", "data"), NODE) == Unschedulable(
        Reason.VOLUME_NOT_BOUND,
        *unpermitted(
            "cannot choose a claim's node", node="node1", claim="default/data", rights="patch persistentvolumeclaims"
        ),
        changed("data"),
    )
