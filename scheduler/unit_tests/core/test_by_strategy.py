"""Decisions on pods that request a count: the bind gate, the placement, and the filters of volumes."""

import pytest

from gpu_scheduler.core.cluster_events import ClassChanged, Storage, StorageChanged
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm
from gpu_scheduler.core.pods.container_env import Container
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.placement import Placement
from gpu_scheduler.core.reasons import Reason
from tests.messages import says, text_of
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import FIELD_REF, PCI, container, node, running, visible

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(4))
KNOWN = Inventory(tuple(Device(index, uuid, (), "A100", 40960) for index, uuid in enumerate(UUIDS)))


def test_a_placement_has_node_devices_and_uuids() -> None:
    """Devices are in the order of their indices, and there is no map index; the message says why these were chosen."""
    state = ClusterState(node("node2", inventory=KNOWN), having("node1"))
    state.ledger.apply(running("a", "node1", None, annotations=words(assigned_devices="0")))
    state.ledger.apply(running("b", "node2", None, annotations=words(assigned_devices="1")))
    decision = state.decide(asking(3, scheduling_strategy="priority"))

    assert isinstance(decision, Bind)
    assert decision.message == (
        "Successfully assigned default/train to node1 with GPUs 1,2,3 "
        f"(priority: 122880 MiB free, {text_of('strategy: the first of equals')})"
    )
    state.ledger.apply(running("c", "node1", None, annotations=words(assigned_devices="1")))
    decision = state.decide(asking(3, scheduling_strategy="priority"))
    assert isinstance(decision, Bind)
    assert decision.placement == Placement("node2", ("0", "2", "3"), None, (UUIDS[0], UUIDS[2], UUIDS[3]))
    assert decision.placement.annotations == {
        "agentaflow.gpu/assigned-devices": "0,2,3",
        "agentaflow.gpu/assigned-node": "node2",
        "agentaflow.gpu/assigned-uuids": ",".join((UUIDS[0], UUIDS[2], UUIDS[3])),
    }
    only = text_of("strategy: the only node")
    assert decision.message.endswith(f"to node2 with GPUs 0,2,3 (priority: 122880 MiB free, {only})")


GATE: dict[str, tuple[tuple[Container, ...], str]] = {
    "a container that reads our annotation": ((container((FIELD_REF, PCI)),), ""),
    "a container without any environment": ((container(None),), "EnvNotInjected"),
    "a container that sets its GPUs itself": ((container((visible("0"), PCI)),), "EnvConflict"),
    "a container that sets no GPU": ((container((visible(""), PCI)),), "EnvConflict"),
    "a second container": ((container((FIELD_REF, PCI)), container((), position=1, name="side")), "EnvNotInjected"),
}


@pytest.mark.parametrize(("containers", "reason"), GATE.values(), ids=GATE)
def test_the_bind_gate_requires_our_annotation(containers: tuple[Container, ...], reason: str) -> None:
    """A container cannot know in advance which devices a strategy chooses: every container has to read them."""
    decision = ClusterState(having()).decide(asking(others={"containers": containers}))

    assert isinstance(decision, Wait | Refuse) == bool(reason)
    assert decision is not None
    assert decision.message.startswith(reason or "Successfully assigned")


DATA = VolumeClaim("default", "data", volume="data")
ZONE_B = Volume("data", (NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("b",)),)),))


def volumes(claim: VolumeClaim = DATA) -> ClusterState:
    """Return a cluster with nodes in zones a and b and a volume in zone b."""
    state = ClusterState(
        having("node1", 1, labels={"zone": "a"}),
        having("node2", 2, labels={"zone": "b"}),
        having("node3", 3, labels={"zone": "a"}),
        strategy=Strategy.BEST_FIT,
    )
    state.volumes.claim_applied(claim)
    state.volumes.volume_applied(ZONE_B)
    state.volumes.class_applied(StorageClass("local", waits_for_consumer=True))
    return state


MOUNTS = {"claims": ("data",)}


def test_a_pod_gets_the_best_node_that_reaches_its_volumes() -> None:
    """A pod of the same equivalence class without volumes is not filtered by volumes."""
    state = volumes()

    assert state.where(asking(name="a", others=MOUNTS)) == "node2:0"
    assert state.where(asking(name="b")) == "node1:0"


def test_a_pod_waits_for_a_node_that_reaches_its_volumes() -> None:
    """The reason of the first node is reported for all; events of storage and of nodes requeue the pod."""
    state = volumes()
    state.place(asking(name="a", others=MOUNTS))
    wait = state.wait(asking(name="b", others=MOUNTS))

    says(wait.message, "NodeAffinityMismatch", "default/data", "node1", "kubectl describe pv data")
    class_events = {event for event in wait.cured_by if isinstance(event, ClassChanged)}
    assert wait.cured_by - class_events == {
        StorageChanged(Storage.CLAIM, "default/data"),
        StorageChanged(Storage.VOLUME, "data"),
    }
    assert state.cluster.candidates.pop_events() == frozenset()
    state.place(asking(name="c"))
    assert state.cluster.candidates.pop_events() == frozenset()
    assert wait.topic == state.wait(asking(name="d", others=MOUNTS)).topic
    state.end(asking(name="a"))
    assert state.cluster.candidates.pop_events() == class_events
    assert state.where(asking(name="b", others=MOUNTS)) == "node2:0"


def test_a_changed_label_requeues_the_pods_that_wait_for_volumes() -> None:
    """The fit of the node is as before, but its new zone is the zone of the volume."""
    state = volumes()
    state.place(asking(name="a", others=MOUNTS))
    wait = state.wait(asking(name="b", others=MOUNTS))
    state.apply_nodes(having("node3", 3, labels={"zone": "b"}))

    assert state.cluster.candidates.pop_events() == {
        event for event in wait.cured_by if isinstance(event, ClassChanged)
    }
    assert state.where(asking(name="b", others=MOUNTS)) == "node3:0"


def test_a_pod_that_fits_no_node_is_not_filtered_by_volumes() -> None:
    """The reason is that of the node filters, not that of storage."""
    state = volumes()

    assert state.wait(asking(9, others=MOUNTS)).reason is Reason.GPU_NOT_FOUND


def test_volumes_are_provisioned_on_the_node_of_the_pod() -> None:
    """The claim gets the best node as its selected node; from then on only that node fits the pod."""
    claim = VolumeClaim("default", "data", storage_class="local")
    state = volumes(claim)
    wait = state.wait(asking(others=MOUNTS))
    assert wait.selection is not None
    assert (wait.reason, wait.selection.node, wait.selection.claims) == (Reason.VOLUME_NOT_BOUND, "node1", ("data",))
    assert wait.cured_by == {StorageChanged(Storage.CLAIM, "default/data")}

    state.volumes.claim_applied(VolumeClaim("default", "data", storage_class="local", selected_node="node3"))
    wait = state.wait(asking(others=MOUNTS))
    assert wait.selection is not None
    assert (wait.selection.node, wait.selection.claims) == ("node3", ())

    state.volumes.claim_applied(DATA)
    assert state.where(asking(others=MOUNTS)) == "node2:0"
