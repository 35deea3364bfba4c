"""Which devices of a node a pod with a count may have, filter by filter."""

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
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import KEEP, PCI, container, limit, node, running, visible

GPU = "nvidia.com/gpu"
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{index}" for index in range(3)]
MIG_DEVICE = "MIG-11111111-0000-0000-0000-000000000001"


def holder(devices: str, name: str = "holder", where: str = "node1", **given: Any) -> Pod:
    """Return a pod that this scheduler bound with these devices."""
    return running(name, where, None, owner=None, annotations=words(assigned_devices=devices, **given))


def pinned(devices: str, name: str = "train-0", **others: Any) -> Pod:
    """Return a pod that was placed by its map."""
    return running(name, "node1", f"0=node1:{devices}", **others)


PART: dict[str, Any] = {"count": 1, "memory": 3000, "exclusive": "false"}
SHARING: dict[str, Any] = {"sharing": "any"}

Row = tuple[Node, tuple[Pod, ...], dict[str, Any], str]


def row(there: Node, expected: str, *pods: Pod, **request: Any) -> Row:
    """Return the devices, or the reason, that a new pod with this request gets on a node with these pods."""
    return there, pods, request, expected


DEVICES: dict[str, Row] = {
    "a device of an idle node": row(having(), "0"),
    "a device that a map names is held": row(having("node1", 1), "NotEnoughGpus", pinned("0")),
    "a device that a container sets itself is held": row(
        having("node1", 1),
        "NotEnoughGpus",
        running("a", "node1", None, annotations=KEEP, containers=(container((visible("0"), PCI)),)),
    ),
    "another device is free": row(having("node1", 1, 1), "1", pinned("0")),
    "all devices on one node": row(having("node1", 1, 1, 1), "0,2", pinned("1"), count=2),
    "not enough on one node": row(having("node1", 1, 1, 1), "NotEnoughGpus", pinned("1"), count=3),
    "an observer keeps no device from others": row(
        having("node1", 1), "0", pinned("0", annotations=words(observer="true"))
    ),
    "an observer may have a held device": row(having("node1", 1), "0", pinned("0"), observer="true"),
    "an observer may have a busy device": row(
        having("node1", 1, readings={0: DeviceReading(1, 100)}), "0", observer="true", memory=1
    ),
    "less memory than an observer asks for": row(
        having("node1", 8192, 1), "InsufficientGpuMemory", observer="true", memory=2, count=2
    ),
    "enough memory": row(having("node1", 8192), "0", memory=8192),
    "more memory than enough devices have": row(having("node1", 9000, 1), "InsufficientGpuMemory", count=2, memory=2),
    "no memory of a device of unknown size": row(having("node1", None, readings={0: DeviceReading(used=7)}), "0"),
    "memory that another process uses": row(
        having("node1", 8192, readings={0: DeviceReading(used=1)}), "NotEnoughGpus", memory=8192
    ),
    "shared: the rest of a shared device": row(having("node1", 8000), "0", holder("0", **PART), **PART),
    "exclusive: not beside pods that share": row(
        having("node1", 8000), "NotEnoughGpus", holder("0", **PART), memory=3000
    ),
    "shared: used memory counts where it is more than the requested memory": row(
        having("node1", 8000, readings={0: DeviceReading(used=5001)}), "NotEnoughGpus", holder("0", **PART), **PART
    ),
    "shared: requested and used memory are not added": row(
        having("node1", 8000, readings={0: DeviceReading(used=5000)}), "0", holder("0", **PART), **PART
    ),
    "sharing any: with another pod of sharing any": row(
        having("node1", 8000), "0", pinned("0", annotations=words(**SHARING)), **SHARING
    ),
    "utilization up to the goal": row(having("node1", 1, readings={0: DeviceReading(0, 80)}), "0"),
    "a degraded device": row(having("node1", 1, readings={0: DeviceReading(health=Health.DEGRADED)}), "0"),
    "a device beside an unhealthy one": row(
        having("node1", 1, 1, readings={0: DeviceReading(health=Health.UNHEALTHY)}), "1"
    ),
    "an unhealthy device that is held: health is not the only reason": row(
        having("node1", 1, readings={0: DeviceReading(health=Health.UNHEALTHY)}), "NotEnoughGpus", pinned("0")
    ),
    "a device with MIG devices": row(node(inventory=Inventory((Device(0, UUIDS[0], (MIG_DEVICE,)), Device(1)))), "1"),
    "a device of the type": row(having("node1", model="NVIDIA A100-SXM4"), "0", type="a100"),
    "devices of unknown type": row(node(inventory=counted(2)), "GpuNotFound", type="A100"),
    "a held device by another name": row(
        node(inventory=Inventory((Device(0, UUIDS[0]), Device(1, UUIDS[1])))), "1", pinned(UUIDS[0])
    ),
    "devices that may be held by another, unknown name": row(
        node(inventory=counted(2)), "NotEnoughGpus", pinned(UUIDS[0])
    ),
    "devices that may be held, for an observer": row(
        node(inventory=Inventory((Device(0, UUIDS[0]),))), "0", pinned(UUIDS[2]), observer="true"
    ),
}


def answer(state: ClusterState, pod: Pod) -> str:
    """Return the devices, or the reason."""
    decision = state.decide(pod)
    if isinstance(decision, Bind):
        return decision.placement.value
    assert isinstance(decision, Wait)
    return decision.reason


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(("node", "running_pods", "given", "expected"), DEVICES.values(), ids=DEVICES)
def test_devices_that_a_pod_may_have(
    node: Node, running_pods: tuple[Pod, ...], given: dict[str, Any], expected: str, strategy: Strategy
) -> None:
    """The filters are the same for every strategy."""
    state = ClusterState(node, strategy=strategy)
    for each in running_pods:
        state.ledger.apply(each)

    assert answer(state, asking(**given)) == expected


POLICIES = {
    "sharing none: no pod shares, whatever the pods request": (
        Sharing.NONE,
        holder("0", **PART),
        PART,
        "NotEnoughGpus",
    ),
    "sharing none: no pod shares, though both have sharing any": (
        Sharing.NONE,
        pinned("0", annotations=words(**SHARING)),
        SHARING,
        "NotEnoughGpus",
    ),
    "sharing any: every pod shares, exclusive ones too": (Sharing.ANY, pinned("0"), {}, "0"),
    "sharing any: every pod shares while the memory fits": (
        Sharing.ANY,
        holder("0", count=1, memory=6000),
        {"memory": 3000},
        "NotEnoughGpus",
    ),
}


@pytest.mark.parametrize(("sharing", "running_pod", "given", "expected"), POLICIES.values(), ids=POLICIES)
def test_the_policy_overrides_the_pods(
    sharing: Sharing, running_pod: Pod, given: dict[str, Any], expected: str
) -> None:
    """GPU_SHARING decides before the pods' annotations."""
    state = ClusterState(having("node1", 8000), policy=Policy(sharing=sharing))
    state.ledger.apply(running_pod)

    assert answer(state, asking(**given)) == expected


def test_the_policy_sets_the_utilization_goal() -> None:
    """GPU_UTILIZATION_GOAL: busier devices get no pod by strategy."""
    busy = having("node1", 1, readings={0: DeviceReading(0, 50)})

    assert answer(ClusterState(busy, policy=Policy(utilization_goal=50)), asking()) == "0"
    assert answer(ClusterState(busy, policy=Policy(utilization_goal=49)), asking()) == "NotEnoughGpus"


def plugin(name: str = "node1", *memory: int, left: int = 2, **others: Any) -> Node:
    room = {"pods": 9, "cpu": 8000, GPU: left}
    return having(name, *(memory or (8000, 8000)), **{"advertised": 2, "allocatable": room, **others})


def limited(count: int = 1, **given: Any) -> Pod:
    return asking(count, others=limit(count), **given)


def foreign_pod(count: int, where: str = "node1") -> ForeignPod:
    """Return another scheduler's pod with so many devices."""
    return ForeignPod(PodRef("other", "stranger", "1"), where, ResourceRequest({GPU: count}))


BY_NUMBER: dict[str, tuple[Node, Pod, int, str]] = {
    "devices are numbered as in the container": (plugin(), limited(2), 0, "0,1"),
    "a foreign pod leaves the other devices": (plugin(), limited(), 1, "0"),
    "a foreign pod leaves too few devices": (plugin(), limited(2), 1, "NotEnoughGpus"),
    "fewer allocatable devices than the node has": (plugin(left=1), limited(2), 0, "NotEnoughGpus"),
    "more devices than the plugin advertises": (plugin(), limited(3), 0, "GpuNotFound"),
    "a plugin that restarts and advertises none": (plugin(advertised=0, left=0), limited(), 0, "GpuNotFound"),
    "more memory than the smallest device has": (
        plugin("node1", 9000, 7000),
        limited(memory=8000),
        0,
        "InsufficientGpuMemory",
    ),
    "memory that every device has": (plugin("node1", 9000, 8000), limited(memory=8000), 0, "0"),
    "a type that every device has": (plugin(model="A100"), limited(type="a100"), 0, "0"),
    "a type that not every device has": (plugin(model="A100"), limited(type="H100"), 0, "GpuNotFound"),
    "load and health, which only the plugin knows": (
        plugin(readings={index: DeviceReading(8000, 100, Health.UNHEALTHY) for index in range(2)}, stale=True),
        limited(),
        0,
        "0",
    ),
    "devices without an inventory": (plugin(inventory=None), limited(), 0, "0"),
    "memory of devices without an inventory": (plugin(inventory=None), limited(memory=1), 0, "InsufficientGpuMemory"),
    "without a limit, devices by name": (plugin(), asking(2), 0, "0,1"),
    "without a limit, not beside a pod with devices of the plugin": (plugin(), asking(), 1, "NotEnoughGpus"),
    "without a limit, as an observer beside a pod with devices of the plugin": (
        plugin(),
        asking(observer="true"),
        1,
        "0",
    ),
    "without a plugin, a limit counts as a count": (having("node1", 1, 1), limited(), 0, "0"),
}


@pytest.mark.parametrize(("node", "pod", "others", "expected"), BY_NUMBER.values(), ids=BY_NUMBER)
@pytest.mark.parametrize("strategy", Strategy)
def test_device_plugins(node: Node, pod: Pod, others: int, expected: str, strategy: Strategy) -> None:
    """A pod with a limit gets its node from the scheduler and its devices from the plugin."""
    state = ClusterState(node, strategy=strategy)
    if others:
        state.ledger.apply_foreign_pod(foreign_pod(others))

    assert answer(state, pod) == expected


def test_a_pod_with_a_limit_waits_for_devices_held_by_name() -> None:
    """The plugin does not know of them, and may allocate them."""
    state = ClusterState(plugin())
    state.ledger.apply(pinned("0"))

    assert answer(state, limited()) == "NotEnoughGpus"


def test_strategies_score_nodes_with_a_plugin_too() -> None:
    """Nodes are scored by the number of their devices, their health and their readings."""
    small, large = plugin("node1", 8000, 8000), plugin("node2", 9000, 9000)
    degraded = plugin("node1", readings={index: DeviceReading(health=Health.DEGRADED) for index in range(2)})
    busy = plugin("node1", readings={index: DeviceReading(0, 9) for index in range(2)})
    found = {
        "the smaller": ClusterState(small, large, strategy=Strategy.BEST_FIT),
        "the larger": ClusterState(small, large, strategy=Strategy.PRIORITY),
        "the healthy one": ClusterState(degraded, large),
        "the idle one": ClusterState(busy, large),
    }

    assert {name: state.where(limited()) for name, state in found.items()} == {
        "the smaller": "node1:0",
        "the larger": "node2:0",
        "the healthy one": "node2:0",
        "the idle one": "node2:0",
    }
    state = ClusterState(plugin("node1"), plugin("node2"))
    state.ledger.apply_foreign_pod(foreign_pod(1))
    assert state.where(limited()) == "node2:0"
    fullest = ClusterState(plugin("node1"), plugin("node2"), strategy=Strategy.BEST_FIT)
    fullest.ledger.apply_foreign_pod(foreign_pod(1, "node2"))
    assert fullest.where(limited()) == "node2:0"


ZONE_A = SchedulingConstraints({"zone": "a"})
DEDICATED = Taint("dedicated", "ml", "NoSchedule")
TOLERATES = SchedulingConstraints(tolerations=(Toleration("dedicated", "Exists", "", ""),))
WEB = HostPort("TCP", ANY_ADDRESS, 80)

NODES: dict[str, tuple[Node, dict[str, Any], str]] = {
    "a taint that is tolerated": (having(taints=(DEDICATED,)), {"constraints": TOLERATES}, "0"),
    "a selector that matches": (having(labels={"zone": "a"}), {"constraints": ZONE_A}, "0"),
    "an affinity that matches": (
        having(labels={"zone": "b"}),
        {
            "constraints": SchedulingConstraints(
                affinity=(NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"),)),)
            )
        },
        "0",
    ),
    "an affinity that does not match": (
        having(),
        {"constraints": SchedulingConstraints(affinity=())},
        "NodeAffinityMismatch",
    ),
    "enough processor time": (having(), {"resource_request": ResourceRequest({"cpu": 8000})}, "0"),
    "a port that is free": (
        having(),
        {"resource_request": ResourceRequest(ports=frozenset({HostPort("TCP", ANY_ADDRESS, 81)}))},
        "0",
    ),
}


@pytest.mark.parametrize(("node", "others", "expected"), NODES.values(), ids=NODES)
def test_nodes_are_filtered(node: Node, others: dict[str, Any], expected: str) -> None:
    """The other node filters apply to pods with a count, too."""
    state = ClusterState(node)
    web = ForeignPod(PodRef("other", "web", "web"), "node1", ResourceRequest(ports=frozenset({WEB})))
    state.ledger.apply_foreign_pod(web)

    assert answer(state, asking(others=others)) == expected


def test_pods_of_one_equivalence_class_share_a_ranking() -> None:
    """Every difference that matters for fitting gives a ranking of its own."""
    state = ClusterState(having("node1", 8000, model="A100", labels={"zone": "b"}, taints=(DEDICATED,)))
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
        state.decide(each)
    assert len(state.cluster.candidates._rankings) == 1
    for number, each in enumerate(different):
        state.decide(each)
        assert len(state.cluster.candidates._rankings) == number + 2
