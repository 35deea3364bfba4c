"""What a pod that asks for a count can have on a node, question by question."""

from typing import Any

import pytest

from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import (
    ANYWHERE,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Taint,
    Toleration,
)
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.refs import PodRef
from tests.core.asking import World, asking, having, words
from tests.core.build import KEEP, PCI, container, node, running, visible

GPU = "nvidia.com/gpu"
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(3)]
SLICE = "MIG-11111111-0000-0000-0000-000000000001"


def holder(devices: str, name: str = "holder", where: str = "node1", **given: Any) -> Pod:
    """A pod of the same scheduler that was bound with these devices."""
    return running(name, where, None, owner=None, annotations=words(assigned_devices=devices, **given))


def pinned(devices: str, name: str = "train-0", **others: Any) -> Pod:
    """A pod that its map put there."""
    return running(name, "node1", f"0=node1:{devices}", **others)


PART: dict[str, Any] = {"count": 1, "memory": 3000, "exclusive": "false"}
SHARING: dict[str, Any] = {"sharing": "any"}

Row = tuple[Node, tuple[Pod, ...], dict[str, Any], str]
# The node, who is there, what is asked for, and the devices or the reason.
CARDS: dict[str, Row] = {
    "a card of a node that is idle": (having(), (), {}, "0"),
    "a card that a strategy gave is taken": (having("node1", 1), (holder("0", count=1),), {}, "NotEnoughGpus"),
    "a card that a map names is taken": (having("node1", 1), (pinned("0"),), {}, "NotEnoughGpus"),
    "a card that a container keeps is taken": (
        having("node1", 1),
        (running("a", "node1", None, annotations=KEEP, containers=(container((visible("0"), PCI)),)),),
        {},
        "NotEnoughGpus",
    ),
    "another card is free": (having("node1", 1, 1), (pinned("0"),), {}, "1"),
    "all cards on one node": (having("node1", 1, 1, 1), (pinned("1"),), {"count": 2}, "0,2"),
    "not enough on one node": (having("node1", 1, 1, 1), (pinned("1"),), {"count": 3}, "NotEnoughGpus"),
    "who sees all and holds none is in nobody's way": (
        having("node1", 1),
        (pinned("0", annotations=words(observer="true")),),
        {},
        "0",
    ),
    "an observer takes no notice of who holds what": (having("node1", 1), (pinned("0"),), {"observer": "true"}, "0"),
    "nor of the load": (
        having("node1", 1, readings={0: DeviceReading(1, 100)}),
        (),
        {"observer": "true", "memory": 1},
        "0",
    ),
    "but a card that is ill is not shown to it": (
        having("node1", 1, readings={0: DeviceReading(health=Health.UNHEALTHY)}),
        (),
        {"observer": "true"},
        "GpuUnhealthy",
    ),
    "nor one that is too small": (
        having("node1", 1, 5),
        (),
        {"observer": "true", "memory": 2},
        "1",
    ),
    "memory that is there": (having("node1", 8192), (), {"memory": 8192}, "0"),
    "memory that no card has": (having("node1", 8191), (), {"memory": 8192}, "InsufficientGpuMemory"),
    "memory that too few cards have": (
        having("node1", 9000, 1),
        (),
        {"count": 2, "memory": 2},
        "InsufficientGpuMemory",
    ),
    "memory of a card of which nobody knows it": (having("node1", None), (), {"memory": 1}, "InsufficientGpuMemory"),
    "no memory at all of such a card": (having("node1", None, readings={0: DeviceReading(used=7)}), (), {}, "0"),
    "memory that somebody uses, whoever": (
        having("node1", 8192, readings={0: DeviceReading(used=1)}),
        (),
        {"memory": 8192},
        "NotEnoughGpus",
    ),
    "shared: the rest of a shared card": (having("node1", 8000), (holder("0", **PART),), PART, "0"),
    "shared: not with one that wants it alone": (
        having("node1", 8000),
        (holder("0", count=1, memory=3000),),
        PART,
        "NotEnoughGpus",
    ),
    "alone: not where others share": (
        having("node1", 8000),
        (holder("0", **PART),),
        {"memory": 3000},
        "NotEnoughGpus",
    ),
    "shared: as long as what was promised fits": (
        having("node1", 8000),
        (holder("0", **PART), holder("0", "other", **PART)),
        PART,
        "NotEnoughGpus",
    ),
    "shared: what is used counts where it is more than what was promised": (
        having("node1", 8000, readings={0: DeviceReading(used=5001)}),
        (holder("0", **PART),),
        PART,
        "NotEnoughGpus",
    ),
    "shared: it is not counted twice": (
        having("node1", 8000, readings={0: DeviceReading(used=5000)}),
        (holder("0", **PART),),
        PART,
        "0",
    ),
    "who says so shares with whoever says so": (
        having("node1", 8000),
        (pinned("0", annotations=words(**SHARING)),),
        SHARING,
        "0",
    ),
    "and with nobody else": (having("node1", 8000), (pinned("0"),), SHARING, "NotEnoughGpus"),
    "utilization up to the goal": (having("node1", 1, readings={0: DeviceReading(0, 80)}), (), {}, "0"),
    "utilization above the goal": (having("node1", 1, readings={0: DeviceReading(0, 81)}), (), {}, "NotEnoughGpus"),
    "a degraded card": (having("node1", 1, readings={0: DeviceReading(health=Health.DEGRADED)}), (), {}, "0"),
    "an unhealthy card": (
        having("node1", 1, readings={0: DeviceReading(health=Health.UNHEALTHY)}),
        (),
        {},
        "GpuUnhealthy",
    ),
    "beside an unhealthy card": (
        having("node1", 1, 1, readings={0: DeviceReading(health=Health.UNHEALTHY)}),
        (),
        {},
        "1",
    ),
    "an unhealthy card that is held: it is not health alone": (
        having("node1", 1, readings={0: DeviceReading(health=Health.UNHEALTHY)}),
        (pinned("0"),),
        {},
        "NotEnoughGpus",
    ),
    "a node whose monitor is silent": (having("node1", stale=True), (), {}, "GpuUnhealthy"),
    "a card in slices": (node(inventory=Inventory((Device(0, UUIDS[0], (SLICE,)), Device(1)))), (), {}, "1"),
    "no card but those in slices": (node(inventory=Inventory((Device(0, UUIDS[0], (SLICE,)),))), (), {}, "GpuNotFound"),
    "a card of the type": (having("node1", model="NVIDIA A100-SXM4"), (), {"type": "a100"}, "0"),
    "no card of the type": (having("node1", model="NVIDIA A100-SXM4"), (), {"type": "H100"}, "GpuNotFound"),
    "no card that says its type": (node(inventory=counted(2)), (), {"type": "A100"}, "GpuNotFound"),
    "not so many cards": (having("node1", 1, 1), (), {"count": 3}, "GpuNotFound"),
    "a node that nobody has counted": (node(), (), {}, "GpuNotFound"),
    "a card that is known by another name": (
        node(inventory=Inventory((Device(0, UUIDS[0]), Device(1, UUIDS[1])))),
        (pinned(UUIDS[0]),),
        {},
        "1",
    ),
    "cards of which nobody knows whether they are held by another name": (
        node(inventory=counted(2)),
        (pinned(UUIDS[0]),),
        {},
        "NotEnoughGpus",
    ),
    "none of them, for who does not care": (
        node(inventory=Inventory((Device(0, UUIDS[0]),))),
        (pinned(UUIDS[2]),),
        {"observer": "true"},
        "0",
    ),
}


def answer(world: World, pod: Pod) -> str:
    """The devices, or the word of the reason."""
    decision = world.decide(pod)
    if isinstance(decision, Bind):
        return decision.placement.value
    assert isinstance(decision, Wait)
    return decision.reason


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("node", "there", "given", "expected"), CARDS.values(), ids=CARDS)
def test_which_cards(
    node: Node, there: tuple[Pod, ...], given: dict[str, Any], expected: str, strategy: Strategy
) -> None:
    """Whether a card can be had is the same question for every strategy."""
    world = World(node, strategy=strategy)
    for each in there:
        world.ledger.apply(each)

    assert answer(world, asking(**given)) == expected


POLICIES = {
    "nobody shares, whatever the pods say": (Sharing.NONE, holder("0", **PART), PART, "NotEnoughGpus"),
    "nobody shares, though both may with all": (
        Sharing.NONE,
        pinned("0", annotations=words(**SHARING)),
        SHARING,
        "NotEnoughGpus",
    ),
    "everybody shares, even who wants it alone": (Sharing.ANY, pinned("0"), {}, "0"),
    "everybody shares, as long as the memory fits": (
        Sharing.ANY,
        holder("0", count=1, memory=6000),
        {"memory": 3000},
        "NotEnoughGpus",
    ),
}


@pytest.mark.parametrize(("sharing", "there", "given", "expected"), POLICIES.values(), ids=POLICIES)
def test_the_operator_has_the_last_word(sharing: Sharing, there: Pod, given: dict[str, Any], expected: str) -> None:
    """GPU_SHARING beats what the pods say."""
    world = World(having("node1", 8000), policy=Policy(sharing=sharing))
    world.ledger.apply(there)

    assert answer(world, asking(**given)) == expected


def test_the_goal_is_the_operators() -> None:
    """GPU_UTILIZATION_GOAL: what is busier gets no pod by strategy."""
    busy = having("node1", 1, readings={0: DeviceReading(0, 50)})

    assert answer(World(busy, policy=Policy(utilization_goal=50)), asking()) == "0"
    assert answer(World(busy, policy=Policy(utilization_goal=49)), asking()) == "NotEnoughGpus"


def plugin(name: str = "node1", *memory: int, left: int = 2, **others: Any) -> Node:
    """A node where a device plugin hands out cards."""
    room = {"pods": 9, "cpu": 8000, GPU: left}
    return having(name, *(memory or (8000, 8000)), **{"advertised": 2, "allocatable": room, **others})


def limited(count: int = 1, **given: Any) -> Pod:
    """A pod that asks for its cards by a limit, too."""
    others: dict[str, Any] = {"gpu_limits": (("main", count),), "resource_request": ResourceRequest({GPU: count})}
    return asking(count, others=others, **given)


def foreign_pod(count: int, where: str = "node1") -> ForeignPod:
    """Another scheduler's pod, with so many cards."""
    return ForeignPod(PodRef("other", "stranger", "1"), where, ResourceRequest({GPU: count}))


BY_NUMBER: dict[str, tuple[Node, Pod, int, str]] = {
    "cards are numbered from the container": (plugin(), limited(2), 0, "0,1"),
    "whoever has some leaves the others": (plugin(), limited(), 1, "0"),
    "but not more": (plugin(), limited(2), 1, "NotEnoughGpus"),
    "the plugin says how many it has, not how many there are": (plugin(left=1), limited(2), 0, "NotEnoughGpus"),
    "more than there are": (plugin(), limited(3), 0, "GpuNotFound"),
    "a plugin that restarts": (plugin(advertised=0, left=0), limited(), 0, "GpuNotFound"),
    "memory by the smallest card": (plugin("node1", 9000, 7000), limited(memory=8000), 0, "InsufficientGpuMemory"),
    "memory that every card has": (plugin("node1", 9000, 8000), limited(memory=8000), 0, "0"),
    "a type that every card has": (plugin(model="A100"), limited(type="a100"), 0, "0"),
    "a type that not every card has": (plugin(model="A100"), limited(type="H100"), 0, "GpuNotFound"),
    "load and health are the plugin's business": (
        plugin(readings={index: DeviceReading(8000, 100, Health.UNHEALTHY) for index in range(2)}, stale=True),
        limited(),
        0,
        "0",
    ),
    "a node without anything known of its cards": (plugin(inventory=None), limited(), 0, "0"),
    "and none of their memory": (plugin(inventory=None), limited(memory=1), 0, "InsufficientGpuMemory"),
    "without a limit, cards by name": (plugin(), asking(2), 0, "0,1"),
    "but not beside one who has some of the plugin's choice": (plugin(), asking(), 1, "NotEnoughGpus"),
    "unless it takes none": (plugin(), asking(observer="true"), 1, "0"),
    "without a plugin a limit is only a count": (having("node1", 1, 1), limited(), 0, "0"),
}


@pytest.mark.parametrize(("node", "pod", "others", "expected"), BY_NUMBER.values(), ids=BY_NUMBER)
@pytest.mark.parametrize("strategy", Strategy)
def test_device_plugins(node: Node, pod: Pod, others: int, expected: str, strategy: Strategy) -> None:
    """Who has a limit gets the node from us and the cards from the plugin; nobody else takes them by name."""
    world = World(node, strategy=strategy)
    if others:
        world.ledger.apply_foreign_pod(foreign_pod(others))

    assert answer(world, pod) == expected


def test_a_limit_keeps_away_from_cards_held_by_name() -> None:
    """The plugin would not know of it."""
    world = World(plugin())
    world.ledger.apply(pinned("0"))

    assert answer(world, limited()) == "NotEnoughGpus"


def test_strategies_weigh_nodes_of_a_plugin_too() -> None:
    """By number of cards, and by what is known of them."""
    small, large = plugin("node1", 8000, 8000), plugin("node2", 9000, 9000)
    worn = plugin("node1", readings={index: DeviceReading(health=Health.DEGRADED) for index in range(2)})
    busy = plugin("node1", readings={index: DeviceReading(0, 9) for index in range(2)})
    found = {
        "the smaller": World(small, large, strategy=Strategy.BEST_FIT),
        "the larger": World(small, large, strategy=Strategy.PRIORITY),
        "the one that does not wear": World(worn, large),
        "the idle one": World(busy, large),
    }

    assert {what: world.where(limited()) for what, world in found.items()} == {
        "the smaller": "node1:0",
        "the larger": "node2:0",
        "the one that does not wear": "node2:0",
        "the idle one": "node2:0",
    }
    world = World(plugin("node1"), plugin("node2"))
    world.ledger.apply_foreign_pod(foreign_pod(1))
    assert world.where(limited()) == "node2:0"
    fullest = World(plugin("node1"), plugin("node2"), strategy=Strategy.BEST_FIT)
    fullest.ledger.apply_foreign_pod(foreign_pod(1, "node2"))
    assert fullest.where(limited()) == "node2:0"


ZONE_A = SchedulingConstraints({"zone": "a"})
DEDICATED = Taint("dedicated", "ml", "NoSchedule")
TOLERATES = SchedulingConstraints(tolerations=(Toleration("dedicated", "Exists", "", ""),))
WEB = HostPort("TCP", ANY_ADDRESS, 80)

NODES: dict[str, tuple[Node, dict[str, Any], str]] = {
    "a node that is not Ready": (having(ready=False), {}, "NodeNotReady"),
    "a node that is cordoned": (having(unschedulable=True), {}, "NodeUnschedulable"),
    "a taint": (having(taints=(DEDICATED,)), {}, "TaintNotTolerated"),
    "a taint that is tolerated": (having(taints=(DEDICATED,)), {"constraints": TOLERATES}, "0"),
    "a selector that means it": (having(labels={"zone": "a"}), {"constraints": ZONE_A}, "0"),
    "a selector that does not": (having(labels={"zone": "b"}), {"constraints": ZONE_A}, "NodeAffinityMismatch"),
    "an affinity that means it": (
        having(labels={"zone": "b"}),
        {
            "constraints": SchedulingConstraints(
                affinity=(NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"),)),)
            )
        },
        "0",
    ),
    "an affinity that does not": (
        having(),
        {"constraints": SchedulingConstraints(affinity=())},
        "NodeAffinityMismatch",
    ),
    "processor time that is there": (having(), {"resource_request": ResourceRequest({"cpu": 8000})}, "0"),
    "processor time that is not": (
        having(),
        {"resource_request": ResourceRequest({"cpu": 8001})},
        "InsufficientResources",
    ),
    "a port that is free": (
        having(),
        {"resource_request": ResourceRequest(ports=frozenset({HostPort("TCP", ANY_ADDRESS, 81)}))},
        "0",
    ),
    "a port that somebody has": (having(), {"resource_request": ResourceRequest(ports=frozenset({WEB}))}, "PortInUse"),
}


@pytest.mark.parametrize(("node", "others", "expected"), NODES.values(), ids=NODES)
def test_which_nodes(node: Node, others: dict[str, Any], expected: str) -> None:
    """What a node must have beside its GPUs, it must have for these pods as well."""
    world = World(node)
    web = ForeignPod(PodRef("other", "web", "web"), "node1", ResourceRequest(ports=frozenset({WEB})))
    world.ledger.apply_foreign_pod(web)

    assert answer(world, asking(others=others)) == expected


def test_shapes_are_told_apart() -> None:
    """Whatever makes a difference to where a pod fits gives it a list of its own."""
    world = World(having("node1", 8000, model="A100", labels={"zone": "b"}, taints=(DEDICATED,)))
    tolerant = {"constraints": TOLERATES}
    same = [asking(name=name, others=tolerant, priority=number) for number, name in enumerate("abc")]
    different = [
        asking(others={"constraints": ANYWHERE}),
        asking(others={"constraints": SchedulingConstraints({"zone": "a"}, None, TOLERATES.tolerations)}),
        asking(others={"constraints": SchedulingConstraints({}, (), TOLERATES.tolerations)}),
        asking(others={**tolerant, "resource_request": ResourceRequest({"cpu": 9000})}),
        asking(others={**tolerant, "resource_request": ResourceRequest(ports=frozenset({WEB}))}),
        asking(2, others=tolerant),
        asking(memory=9000, others=tolerant),
        asking(type="H100", others=tolerant),
        asking(scheduling_strategy="best_fit", others=tolerant),
        asking(observer="true", others=tolerant),
        asking(sharing="any", others=tolerant),
        asking(memory=1, exclusive="false", others=tolerant),
        asking(memory=1, others=tolerant),
    ]
    for each in same:
        world.decide(each)
    assert len(world.cluster.candidates._rankings) == 1
    for number, each in enumerate(different):
        world.decide(each)
        assert len(world.cluster.candidates._rankings) == number + 2
