"""Decisions on pods that ask for a count: the gate, what is bound, and what is asked for each pod alone."""

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
from tests.core.asking import World, asking, having, words
from tests.core.build import FIELD_REF, PCI, container, node, pod, running, visible

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(4))
KNOWN = Inventory(tuple(Device(index, uuid, (), "A100", 40960) for index, uuid in enumerate(UUIDS)))


def test_what_is_bound() -> None:
    """Node and cards in the order of their numbers, their UUIDs, no index of any map; and why just these."""
    world = World(node("node2", inventory=KNOWN), having("node1"))
    world.ledger.apply(running("a", "node1", None, annotations=words(assigned_devices="0")))
    world.ledger.apply(running("b", "node2", None, annotations=words(assigned_devices="1")))
    decision = world.decide(asking(3, scheduling_strategy="priority"))

    assert isinstance(decision, Bind)
    assert decision.message == (
        "Successfully assigned default/train to node1 with GPUs 1,2,3 "
        "(priority: 122880 MiB free, the first by name of those alike)"
    )
    world.ledger.apply(running("c", "node1", None, annotations=words(assigned_devices="1")))
    decision = world.decide(asking(3, scheduling_strategy="priority"))
    assert isinstance(decision, Bind)
    assert decision.placement == Placement("node2", ("0", "2", "3"), None, (UUIDS[0], UUIDS[2], UUIDS[3]))
    assert decision.placement.annotations == {
        "agentaflow.gpu/assigned-devices": "0,2,3",
        "agentaflow.gpu/assigned-node": "node2",
        "agentaflow.gpu/assigned-uuids": ",".join((UUIDS[0], UUIDS[2], UUIDS[3])),
    }
    assert decision.message.endswith("to node2 with GPUs 0,2,3 (priority: 122880 MiB free, the only node that fits)")


def test_cards_are_numbered_as_their_node_numbers_them() -> None:
    """Whatever the order in which a strategy likes them."""
    world = World(having("node1", 30000, 20000, 10000), strategy=Strategy.BEST_FIT)

    assert world.where(asking(2)) == "node1:1,2"


GATE: dict[str, tuple[tuple[Container, ...], str]] = {
    "a container that reads what is decided": ((container((FIELD_REF, PCI)),), ""),
    "a container without any environment": ((container(None),), "EnvNotInjected"),
    "a container that says its GPUs itself": ((container((visible("0"), PCI)),), "EnvConflict"),
    "a container that says none": ((container((visible(""), PCI)),), "EnvConflict"),
    "a second container": ((container((FIELD_REF, PCI)), container((), position=1, name="side")), "EnvNotInjected"),
}


@pytest.mark.parametrize(("containers", "reason"), GATE.values(), ids=GATE)
def test_the_bind_gate(containers: tuple[Container, ...], reason: str) -> None:
    """No container can know beforehand what a strategy decides: each has to read it."""
    decision = World(having()).decide(asking(others={"containers": containers}))

    assert isinstance(decision, Wait | Refuse) == bool(reason)
    assert decision is not None
    assert decision.message.startswith(reason or "Successfully assigned")


def test_the_pods_own_strategy_wins() -> None:
    """Else that of the cluster."""
    world = World(having("node1", 2), having("node2", 1), strategy=Strategy.PRIORITY)

    assert world.where(asking(name="a", scheduling_strategy="best_fit")) == "node2:0"
    world.end(asking(name="a"))
    assert world.where(asking(name="b")) == "node1:0"


def test_a_limit_with_a_strategy_is_a_count() -> None:
    """As the annotation says it."""
    given = pod("a", None, owner=None, annotations=words(scheduling_strategy="best_fit"), gpu_limits=(("main", 2),))

    assert World(having()).where(given) == "node1:0,1"


def test_maps_and_counts_share_the_books() -> None:
    """What a strategy gave, a map cannot have, and the other way round."""
    world = World(having("node1", 1, 1))
    by_map = pod("train-0", "0=node1:0")
    assert world.where(asking()) == "node1:0"
    decision = world.decide(by_map)
    assert isinstance(decision, Wait)
    assert decision.message.startswith("GpuHeld: GPU 0 of node1 is held by default/train")
    world.end(asking())
    world.place(by_map)
    assert world.where(asking()) == "node1:1"


def test_a_bind_that_is_under_way_is_not_decided_again() -> None:
    """One pod, one bind at a time."""
    world = World(having())
    world.place(asking(), confirmed=False)

    assert world.decide(asking()) is None


DATA = VolumeClaim("default", "data", volume="data")
ZONE_B = Volume("data", (NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("b",)),)),))


def volumes(claim: VolumeClaim = DATA) -> World:
    """Nodes in zones a and b; a volume that is in zone b."""
    world = World(
        having("node1", 1, labels={"zone": "a"}),
        having("node2", 2, labels={"zone": "b"}),
        having("node3", 3, labels={"zone": "a"}),
        strategy=Strategy.BEST_FIT,
    )
    world.volumes.claim_applied(claim)
    world.volumes.volume_applied(ZONE_B)
    world.volumes.class_applied(StorageClass("local", waits_for_consumer=True))
    return world


MOUNTS = {"claims": ("data",)}


def test_the_best_node_from_which_its_volumes_are_reached() -> None:
    """Others of its shape are not asked for that."""
    world = volumes()

    assert world.where(asking(name="a", others=MOUNTS)) == "node2:0"
    assert world.where(asking(name="b")) == "node1:0"


def test_no_node_from_which_its_volumes_are_reached() -> None:
    """The first node's obstacle stands for all; storage may cure it, and so may a node."""
    world = volumes()
    world.place(asking(name="a", others=MOUNTS))
    wait = world.wait(asking(name="b", others=MOUNTS))

    assert wait.message == (
        "NodeAffinityMismatch: volume data of claim default/data cannot be reached from node node1 "
        "(and so on 1 more node with such GPUs); use a node that matches the volume's node affinity "
        "(kubectl describe pv data), or another claim"
    )
    shapes = {wake for wake in wait.cured_by if isinstance(wake, ClassChanged)}
    assert wait.cured_by - shapes == {
        StorageChanged(Storage.CLAIM, "default/data"),
        StorageChanged(Storage.VOLUME, "data"),
    }
    assert world.cluster.candidates.news() == frozenset()
    world.place(asking(name="c"))
    assert world.cluster.candidates.news() == frozenset()
    assert wait.topic == world.wait(asking(name="d", others=MOUNTS)).topic
    world.end(asking(name="a"))
    assert world.cluster.candidates.news() == shapes
    assert world.where(asking(name="b", others=MOUNTS)) == "node2:0"


def test_labels_decide_which_volumes_are_reached() -> None:
    """A node that fits as before, but moves to the zone of the volume, is news to who waits for that."""
    world = volumes()
    world.place(asking(name="a", others=MOUNTS))
    wait = world.wait(asking(name="b", others=MOUNTS))
    world.show(having("node3", 3, labels={"zone": "b"}))

    assert world.cluster.candidates.news() == {wake for wake in wait.cured_by if isinstance(wake, ClassChanged)}
    assert world.where(asking(name="b", others=MOUNTS)) == "node3:0"


def test_no_node_fits_a_pod_with_volumes() -> None:
    """Then that is told, and not what storage would say."""
    world = volumes()

    assert world.wait(asking(9, others=MOUNTS)).reason is Reason.GPU_NOT_FOUND


def test_volumes_are_made_where_the_pod_will_run() -> None:
    """The claim is given the best node; from then on the pod goes there and nowhere else."""
    claim = VolumeClaim("default", "data", storage_class="local")
    world = volumes(claim)
    wait = world.wait(asking(others=MOUNTS))
    assert wait.selection is not None
    assert (wait.reason, wait.selection.node, wait.selection.claims) == (Reason.VOLUME_NOT_BOUND, "node1", ("data",))
    assert wait.cured_by == {StorageChanged(Storage.CLAIM, "default/data")}

    world.volumes.claim_applied(VolumeClaim("default", "data", storage_class="local", selected_node="node3"))
    wait = world.wait(asking(others=MOUNTS))
    assert wait.selection is not None
    assert (wait.selection.node, wait.selection.claims) == ("node3", ())

    world.volumes.claim_applied(DATA)
    assert world.where(asking(others=MOUNTS)) == "node2:0"
