"""Explanations of pods that ask for a count: the nodes that are nearest, a row for each device, the smallest remedy."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.explanation.explain import MOST_PLACES, explain
from gpu_scheduler.core.explanation.explanation import DeviceUse, Explanation
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim, Volumes
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.namespace_limits import parse_limits
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm, SchedulingConstraints, Taint
from gpu_scheduler.core.pods.pod import Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from tests.messages import text_of
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import POLICY, claimed, container, device_id, ledger, limit, node, nodes, pod, running
from unit_tests.core.naive_placement import PodRequest
from unit_tests.core.test_candidates import pod_of, some_node, some_request
from unit_tests.core.test_shared_filters import HOLDERS, Holders, bind

GPU = "nvidia.com/gpu"
OF_A_PLUGIN = (
    text_of("a pod that names a device waits for a pod with one of the device plugin", ns="default")
    .replace("holder-0", "a")
    .partition(": ")[2]
    .partition(";")[0]
)
SICK = DeviceReading(health=Health.UNHEALTHY)
SHARED: dict[str, Any] = {"memory": 30000, "exclusive": "false"}


def holder(devices: str, name: str = "holder", where: str = "node1", **given: Any) -> Pod:
    """Return a pod that this scheduler bound with these devices."""
    return running(name, where, None, owner=None, annotations=words(assigned_devices=devices, **given))


def explained(pending: Pod, *known: Node, held: tuple[Pod, ...] = (), **others: Any) -> Explanation:
    state = ClusterState(*known)
    for each in held:
        state.ledger.apply(each)
    return explain(pending, state.cluster, {}, **others)


Row = tuple[Pod, Node, tuple[Pod, ...], tuple[str, ...]]


def row(pending: Pod, there: Node, *shown: str, held: tuple[Pod, ...] = ()) -> Row:
    """Return what is shown of each device of a node with these pods."""
    return pending, there, held, shown


ROWS: dict[str, Row] = {
    "free": row(asking(), having("node1", 1), "free"),
    "held": row(asking(), having("node1", 1), "held", held=(holder("0"),)),
    "held by a pod that shares, with enough memory left": row(
        asking(memory=1000, exclusive="false"), having("node1", 40000), "free", held=(holder("0", count=1, **SHARED),)
    ),
    "held by a pod that shares, with too little memory left": row(
        asking(memory=20000, exclusive="false"),
        having("node1", 40000),
        f"unsuitable: {text_of('explain: memory that is free', memory=10000)}",
        held=(holder("0", count=1, **SHARED),),
    ),
    "too small": row(asking(memory=8192), having("node1", 4096), "unsuitable: it has 4096 MiB"),
    "of another type": row(asking(type="H100"), having("node1", 1), 'unsuitable: its model is "NVIDIA A100"'),
    "divided": row(
        asking(),
        node(inventory=Inventory((Device(0, None, ("MIG-11111111-0000-0000-0000-000000000001",)),))),
        f"unsuitable: {text_of('explain: a divided GPU')}",
    ),
    "utilized": row(
        asking(), having("node1", 1, readings={0: DeviceReading(utilization=95)}), "unsuitable: 95 % utilized"
    ),
    "utilized, for an observer": row(
        asking(observer="true"), having("node1", 1, readings={0: DeviceReading(utilization=95)}), "free"
    ),
    "unhealthy": row(
        asking(), having("node1", 1, readings={0: SICK}), f"unhealthy: {text_of('explain: an unhealthy GPU')}"
    ),
    "of a node whose monitor is silent": row(
        asking(), having("node1", 1, stale=True), f"unhealthy: {text_of('explain: a silent monitor')}"
    ),
    "of a device plugin, for a pod with a limit": row(
        pod("a", None, owner=None, annotations=words(scheduling_strategy="best_fit"), gpu_limits=(("main", 1),)),
        having("node1", 1, advertised=1),
    ),
    "of a device plugin that others use, for a pod without a limit": row(
        asking(),
        having("node1", 1, advertised=1),
        f"unsuitable: {OF_A_PLUGIN}",
        held=(running("a", "node1", "0=node1:0", **limit()),),
    ),
    "of a node without an inventory": row(asking(), node("node1")),
}


@pytest.mark.promise("explain-2")
@pytest.mark.parametrize(("pending", "node1", "held", "rows"), ROWS.values(), ids=ROWS)
def test_each_device_of_a_node_has_a_row(
    pending: Pod, node1: Node, held: tuple[Pod, ...], rows: tuple[str, ...]
) -> None:
    """What keeps the pod from it, if anything does."""
    (place,) = explained(pending, node1, held=held).places

    assert tuple(f"{row.use}: {row.why}" if row.why else str(row.use) for row in place.devices) == rows


@given(some_node(), HOLDERS, some_request(), st.sampled_from(Sharing))
def test_the_free_devices_are_those_that_a_strategy_could_take(
    node: Node, holders: Holders, pod_request: PodRequest, sharing: Sharing
) -> None:
    """A row is computed from one device; the fit of the node from all of them."""
    state = ClusterState(node, policy=Policy(sharing=sharing))
    bind(state, node.name, holders)
    pending = pod_of(pod_request, "a")
    (place,) = explain(pending, state.cluster, {}).places
    ranking = state.cluster.candidates.ranking(pending, pending.request.count, state.cluster.strategy)

    plugin_chooses = ranking.equivalence_class.of_devices.plugin_chooses(node)
    free = {row.device for row in place.devices if row.use is DeviceUse.FREE}
    could = ranking.class_filter.devices.fit(node).devices
    assert free == (set() if plugin_chooses else {str(device.index) for device in could})


def test_the_nearest_node_comes_first() -> None:
    """A node that fits, then those whose failure passes by itself, and of these the one with the most devices."""
    found = explained(
        asking(3),
        having("node1", 1),
        having("node2", 1, 1, 1, unschedulable=True),
        having("node3", 1, 1, 1),
        having("node4", 1, 1, 1, 1),
        held=(holder("0,1", "a", "node3"), holder("0,1", "b", "node4")),
    )

    assert [(place.node, [each.reason for each in place.obstacles]) for place in found.places] == [
        ("node4", [Reason.NOT_ENOUGH_GPUS]),
        ("node3", [Reason.NOT_ENOUGH_GPUS]),
        ("node2", [Reason.NODE_UNSCHEDULABLE]),
        ("node1", [Reason.GPU_NOT_FOUND]),
    ]
    assert isinstance(found.decision, Wait)
    assert found.decision.reason is Reason.NOT_ENOUGH_GPUS


@pytest.mark.promise("explain-1")
def test_a_node_has_all_its_obstacles() -> None:
    """A decision reports one failure of each node."""
    found = explained(
        asking(1, others={"resource_request": ResourceRequest({"cpu": 9000}), "claims": ("data",)}),
        having("node1", 1, ready=False, unschedulable=True),
        held=(holder("0"),),
    )

    assert [each.reason for each in found.places[0].obstacles] == [
        Reason.INSUFFICIENT_RESOURCES,
        Reason.NODE_UNSCHEDULABLE,
        Reason.NODE_NOT_READY,
        Reason.NOT_ENOUGH_GPUS,
        Reason.VOLUME_NOT_BOUND,
    ]


def test_the_message_of_a_node_is_about_this_node() -> None:
    """The decision's own message counts all nodes."""
    found = explained(
        asking(2), having("node1", 1, 1), having("node2", 1, 1), held=(holder("0"), holder("0", "b", "node2"))
    )

    few = (
        text_of("a pod that asks for two devices on one node waits for a held one").split(": ", 1)[1].partition(";")[0]
    )
    assert [place.of_devices[0].what + place.of_devices[0].detail for place in found.places] == [few, few]


REMEDIES: dict[str, tuple[Pod, Node, tuple[Pod, ...], str]] = {
    "the holder of one device": (asking(), having("node1", 1), (holder("0"),), "kubectl delete pod -n default holder"),
    "as many holders as devices are missing": (
        asking(2),
        having("node1", 1, 1, 1),
        (holder("0", "a"), holder("1", "b"), holder("2", "c")),
        "kubectl delete pod -n default a b",
    ),
    "of several holders of one device those of another": (
        asking(),
        having("node1", 1, 1),
        (holder("0", "a", sharing="any"), holder("0", "b", sharing="any"), holder("1", "c")),
        "kubectl delete pod -n default c",
    ),
    "nobody, if that frees too few": (asking(2), having("node1", 1, 1, readings={0: SICK}), (holder("1", "a"),), ""),
    "nobody who is being deleted already": (
        asking(2),
        having("node1", 1, 1),
        (replace(holder("0", "a"), deleting_since="2026-11-21T01:00:00Z"), holder("1", "b")),
        "kubectl delete pod -n default b",
    ),
    "nobody, if the devices are utilized": (
        asking(),
        having("node1", 1, readings={0: DeviceReading(utilization=95)}),
        (),
        "",
    ),
    "nobody, if the devices are unhealthy": (asking(), having("node1", 1, readings={0: SICK}), (), ""),
}


@pytest.mark.promise("explain-3")
@pytest.mark.parametrize(("pending", "node1", "held", "command"), REMEDIES.values(), ids=REMEDIES)
def test_the_remedy_deletes_the_fewest_holders(pending: Pod, node1: Node, held: tuple[Pod, ...], command: str) -> None:
    """The pod is placed when they are gone."""
    found = explained(pending, node1, held=held)

    assert found.remedy is not None
    assert [each.command for each in found.remedy.steps] == [command]
    assert found.remedy.line == ""
    if command:
        left = tuple(each for each in held if each.ref.name not in command.split() and not each.deleting_since)
        assert isinstance(explained(pending, node1, held=left).decision, Bind)


def test_a_node_without_such_gpus_is_not_opened() -> None:
    """No node has the model. The control plane comes first by its name, and opening it would give the pod nothing."""
    closed = node("control-plane", taints=(Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),))
    dedicated = having("b", 1, unschedulable=True, taints=(Taint("dedicated", "ml", "NoSchedule"),))
    for known in ((closed,), (dedicated,), (closed, dedicated, having("node1", 1))):
        found = explained(asking(type="H100"), *known)

        assert found.remedy is not None
        assert [(each.reasons, each.command) for each in found.remedy.steps] == [((Reason.GPU_NOT_FOUND,), "")]
        assert (found.remedy.node, found.remedy.line) == ("", "")


HARMLESS: dict[str, tuple[Pod, Node, tuple[Pod, ...]]] = {
    "its GPUs are unhealthy": (
        asking(),
        having("node1", 1, readings={0: SICK}, unschedulable=True, taints=(Taint("dedicated", "ml", "NoSchedule"),)),
        (),
    ),
    "its GPUs are too few, also without their holders": (
        asking(2),
        having("node1", 1, unschedulable=True),
        (holder("0"),),
    ),
    "its GPUs are too small, also without their holders": (
        asking(memory=8192),
        having("node1", 4096, unschedulable=True),
        (holder("0"),),
    ),
    "the pod asks for other labels besides": (
        asking(others={"constraints": SchedulingConstraints({"kubernetes.io/hostname": "node2"})}),
        having("node1", 1),
        (holder("0"),),
    ),
    "it is unknown which of its GPUs is held": (
        asking(4),
        node("node1", inventory=Inventory(tuple(map(Device, range(4))))),
        (holder("GPU-00000000-0000-4000-8000-000000000000"),),
    ),
    "a device plugin hands out its GPUs to others besides": (
        asking(),
        having("node1", 1, 1, advertised=2, allocatable={GPU: 2, "cpu": 8000, "pods": 110}),
        (holder("0"), running("a", "node1", "0=node1:0", **limit())),
    ),
}


@pytest.mark.parametrize(("pending", "node1", "held"), HARMLESS.values(), ids=HARMLESS)
def test_nothing_is_done_to_a_node_and_its_pods_in_vain(pending: Pod, node1: Node, held: tuple[Pod, ...]) -> None:
    """No command deletes a pod or opens the node if the pod could not be placed there afterwards."""
    found = explained(pending, node1, held=held)

    assert isinstance(found.decision, Wait)
    assert found.remedy is not None
    assert [each.command for each in found.remedy.steps if each.command] == []
    words = [found.decision.message, *(each.remedy for each in found.remedy.steps)]
    assert not any(
        word in text for text in words for word in ("delete", "taint node", "label node", "kubectl uncordon")
    )


def test_no_pod_is_deleted_for_what_a_claim_holds() -> None:
    """Nobody says which pods use a claim of others."""
    known = nodes(node("node1", inventory=Inventory((Device(0, "GPU-0"),))))
    claim = AllocatedClaim("team", "training", "uid-of-training", (device_id("node1", "GPU-0"),))
    found = explain(asking(), Cluster(claimed(ledger(known=known), known, claim), known, Volumes(), POLICY), {})

    (device,) = found.places[0].devices
    assert (device.use, [each.kind for each in device.holders]) == (DeviceUse.HELD, ["ResourceClaim"])
    assert found.remedy is not None
    assert [each.command for each in found.remedy.steps] == [""]


def test_nodes_beyond_the_most_are_counted_by_reason() -> None:
    """Of 1,000 nodes nobody reads 1,000 tables."""
    closed = [having(f"node{number}", 1, unschedulable=True) for number in range(30)]
    found = explained(asking(), *closed, having("small", 1, ready=False))

    assert len(found.places) == MOST_PLACES
    assert found.places[0].node == "small"
    assert found.others == ((Reason.NODE_UNSCHEDULABLE, 31 - MOST_PLACES),)


def test_nodes_that_fit_are_no_obstacles_of_others() -> None:
    """They are not counted by a reason that they do not have."""
    found = explained(asking(), *(having(f"node{number}", 1) for number in range(30)))

    assert isinstance(found.decision, Bind)
    assert found.others == ()
    assert found.remedy is None


LIMITED: dict[str, tuple[str, int, list[Reason]]] = {
    "a namespace that holds as many as it may": ("default: devices=1", 1, [Reason.QUOTA_EXCEEDED]),
    "a pod that alone asks for more": ("default: devices=1", 2, [Reason.QUOTA_EXCEEDED]),
    "a namespace without a limit": ("other: devices=1", 1, []),
}


@pytest.mark.parametrize(("limits", "count", "expected"), LIMITED.values(), ids=LIMITED)
def test_the_limit_of_the_namespace_is_in_the_way_at_every_node(
    limits: str, count: int, expected: list[Reason]
) -> None:
    """It is named once, not at each node."""
    state = ClusterState(having("node1", 1, 1, 1))
    state.ledger.apply(holder("0"))
    found = explain(asking(count), state.cluster.limited(parse_limits(limits)[0]), {})

    assert [each.reason for each in found.of_pod] == expected
    assert [place.obstacles for place in found.places] == [()]
    assert isinstance(found.decision, Wait) == bool(expected)
    assert (found.remedy is not None) == bool(expected)


def test_a_pod_that_shares_what_its_namespace_holds_has_no_limit_in_its_way() -> None:
    """It takes no device in addition, so it is placed, and nothing is named that would keep it elsewhere."""
    state = ClusterState(having("node1", 40000, 40000))
    state.ledger.apply(holder("0", count=1, memory=1000, exclusive="false"))
    sharing = asking(memory=1000, exclusive="false")
    found = explain(sharing, state.cluster.limited(parse_limits("default: devices=1")[0]), {})

    assert isinstance(found.decision, Bind)
    assert found.of_pod == ()


def test_a_pod_without_our_annotation_in_its_environment_is_refused_at_every_node() -> None:
    """Beside this, its nodes are explained."""
    found = explained(asking(others={"containers": (container(None),)}), having("node1", 1, unschedulable=True))

    assert [each.reason for each in found.of_pod] == [Reason.ENV_NOT_INJECTED]
    assert [each.reason for each in found.places[0].obstacles] == [Reason.NODE_UNSCHEDULABLE]


def test_a_pod_whose_count_cannot_be_read_has_no_places() -> None:
    """Its own text is all that is known."""
    found = explained(asking("many"), having("node1", 1))

    assert isinstance(found.decision, Refuse)
    assert [each.reason for each in found.of_pod] == [Reason.REQUEST_INVALID]
    assert found.places == ()
    assert found.remedy is not None
    assert found.remedy.steps[0].remedy == found.of_pod[0].remedy


def test_volumes_are_among_the_obstacles_of_their_node() -> None:
    """One that can be reached from elsewhere, and one that must still be made."""
    state = ClusterState(having("node1", 1))
    state.volumes.claim_applied(VolumeClaim("default", "data", volume="data"))
    zone = NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("b",)),))
    state.volumes.volume_applied(Volume("data", (zone,)))
    state.volumes.class_applied(StorageClass("local", waits_for_consumer=True))
    state.volumes.claim_applied(VolumeClaim("default", "new", storage_class="local"))

    for claim, reason in (("data", Reason.NODE_AFFINITY_MISMATCH), ("new", Reason.VOLUME_NOT_BOUND)):
        (place,) = explain(asking(others={"claims": (claim,)}), state.cluster, {}).places
        assert place.of_volumes is not None
        assert place.of_volumes.reason is reason
