"""Why a pod that requests a count fits no node: each reason and its message."""

from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import ClassChanged
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.refs import PodRef
from tests.messages import says, text_of
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import node, running

UNHEALTHY = {1: DeviceReading(health=Health.UNHEALTHY)}
WEB = HostPort("TCP", ANY_ADDRESS, 80)
TAINTED = (Taint("dedicated", "ml", "NoSchedule"),)


def held(devices: str, where: str = "node1") -> Pod:
    """Return a pod that holds these devices."""
    return running(f"holder-{where}-{devices[0]}", where, None, annotations=words(assigned_devices=devices))


Row = tuple[tuple[Node, ...], Pod, tuple[str, ...]]
# Nodes, the pod, and the message. On node1, GPU 0 is held and port 80 is in use.
SENTENCES: dict[str, Row] = {
    "a GPU that is unhealthy": (
        (having("node1", 8000, 8000, readings=UNHEALTHY),),
        asking(memory=8000),
        ("GpuUnhealthy", "1 GPU", "8000 MiB", "1 node", "GPU 1", "node1", "kubectl gpu-scheduler health"),
    ),
    "monitors that are stale": (
        (having("node2", stale=True), having("node3", stale=True), having("node1", 1)),
        asking(2),
        ("GpuUnhealthy", text_of("a count waits for the silent monitor of a node")),
    ),
    "GPUs that are held": (
        (having("node1", 8000),),
        asking(),
        ("NotEnoughGpus", "1 GPU", "1 node", "80", "kubectl gpu-scheduler nodes -o wide"),
    ),
    "too few that are free on one node": (
        (having("node1", 1, 1), having("node2", 1, 1, readings={0: DeviceReading(0, 81)}), having("node3", 1)),
        asking(2),
        ("NotEnoughGpus", "2 GPUs", "2 nodes", "1", "80", "kubectl gpu-scheduler nodes -o wide"),
    ),
    "GPUs that are too small": (
        (having("node2", 16384), having("node3", 24576), having("node1")),
        asking(memory=90000),
        ("InsufficientGpuMemory", "1 GPU", "90000 MiB", "3 nodes", "40960 MiB", "agentaflow.gpu/memory"),
    ),
    "too few that are large": (
        (having("node1", 90000, 16384, model="NVIDIA L4"),),
        asking(2, memory=90000, type="L4"),
        ("InsufficientGpuMemory", text_of("a count of a type waits for more memory of each GPU")),
    ),
    "unknown memory": (
        (having("node1", None),),
        asking(memory=1),
        ("InsufficientGpuMemory", text_of("a count with memory waits for GPUs of known memory")),
    ),
    "no GPU of the type": (
        (having("node1"), having("node2")),
        asking(type="H100"),
        ("GpuNotFound", "1 GPU", '"H100"', "kubectl gpu-scheduler nodes"),
    ),
    "too few GPUs on each node": (
        (having("node1"), having("node2", 1)),
        asking(8),
        ("GpuNotFound", "8 GPUs", "4", "kubectl gpu-scheduler nodes"),
    ),
    "no node at all": ((), asking(), ("GpuNotFound", "1 GPU", "kubectl gpu-scheduler nodes")),
    "a node that is not Ready": (
        (having("node2", ready=False), node("node1")),
        asking(),
        ("NodeNotReady", "1 GPU", "kubectl describe node node2"),
    ),
    "cordoned nodes": (
        (having("node2", unschedulable=True), having("node3", unschedulable=True)),
        asking(),
        ("NodeUnschedulable", "1 GPU", "node2"),
    ),
    "tainted nodes": (
        tuple(having(f"node{number}", taints=TAINTED) for number in (2, 3, 4)),
        asking(),
        ("TaintNotTolerated", "1 GPU", "node2", '"dedicated=ml:NoSchedule"'),
    ),
    "another zone": (
        (having("node2"),),
        asking(others={"constraints": SchedulingConstraints({"zone": "a"})}),
        ("NodeAffinityMismatch", "1 GPU", "node2", '"zone=a"'),
    ),
    "too little cpu": (
        (having("node2"),),
        asking(others={"resource_request": ResourceRequest({"cpu": 9000})}),
        ("InsufficientResources", "1 GPU", "node2", "9", "8"),
    ),
    "no room for another pod": (
        (having("node1", 1, 1, allocatable={"pods": 1}),),
        asking(),
        ("InsufficientResources", "1 GPU", "node1", "2", "0"),
    ),
    "a port that another pod uses": (
        (having("node1", 1, 1),),
        asking(others={"resource_request": ResourceRequest(ports=frozenset({WEB}))}),
        ("PortInUse", "1 GPU", "80/TCP", "node1", "other/web"),
    ),
}


def cluster_of(*nodes: Node) -> ClusterState:
    """Return a cluster in which GPU 0 and port 80 of node1 are in use."""
    state = ClusterState(*nodes)
    state.ledger.apply(held("0"))
    state.ledger.apply_foreign_pod(
        ForeignPod(PodRef("other", "web", "web"), "node1", ResourceRequest(ports=frozenset({WEB})))
    )
    return state


@pytest.mark.parametrize(("nodes", "given", "said"), SENTENCES.values(), ids=SENTENCES)
def test_a_message_names_reason_request_and_remedy(nodes: tuple[Node, ...], given: Pod, said: tuple[str, ...]) -> None:
    """The message also says how many nodes have such GPUs; an event of any such node requeues the pod."""
    wait = cluster_of(*nodes).wait(given)

    says(wait.message, *said)
    assert [type(event) for event in wait.cured_by] == [ClassChanged]


FULL = having("node1", 8000)
FAILING = {
    "NotEnoughGpus": FULL,
    "NodeNotReady": having("node6", 8000, ready=False),
    "GpuUnhealthy": having("node4", 8000, stale=True),
    "NodeUnschedulable": having("node7", 8000, unschedulable=True),
    "TaintNotTolerated": having("node8", 8000, taints=TAINTED),
    "InsufficientResources": having("node5", 8000, allocatable={"pods": 0}),
    "InsufficientGpuMemory": having("node9", 7000),
    "NodeAffinityMismatch": having("node10", 8000, labels={"zone": "b"}),
    "GpuNotFound": node("node11"),
}


@pytest.mark.parametrize("number", range(len(FAILING)))
def test_the_reason_of_the_closest_nodes_is_reported(number: int) -> None:
    """A pod reports why the nodes fail that are closest to fitting."""
    reasons = list(FAILING)[number:]
    zone = {"constraints": SchedulingConstraints({"zone": "a"})}
    nodes = [FAILING[reason] for reason in reversed(reasons)]
    labelled = [each if each.labels else having_zone(each) for each in nodes]

    assert cluster_of(*labelled).wait(asking(memory=8000, others=zone)).reason == reasons[0]


def having_zone(node: Node) -> Node:
    """Return the node with the label of zone a."""
    return replace(node, labels={"zone": "a"})


def test_of_one_node_the_highest_ranked_reason_is_reported() -> None:
    """A cordon ranks higher than held GPUs; GPUs that are too small rank higher than a cordon."""
    assert cluster_of(having("node1", 8000, unschedulable=True)).wait(asking()).reason == "NodeUnschedulable"
    small = having("node1", 8000, unschedulable=True)
    assert cluster_of(small).wait(asking(memory=9000)).reason == "InsufficientGpuMemory"


def test_a_message_names_the_free_unhealthy_gpu() -> None:
    """Two GPUs are unhealthy and one of them is held: only the other could fit the pod."""
    unhealthy = {0: DeviceReading(health=Health.UNHEALTHY), **UNHEALTHY}

    assert "GPU 1 of node1 is unhealthy" in cluster_of(having("node1", 1, 1, readings=unhealthy)).wait(asking()).message


def test_a_topic_has_no_numbers_of_nodes() -> None:
    """The topic changes with the reason and with the request, not when one more node is full."""
    full = cluster_of(having("node1", 1))
    first = full.wait(asking())
    full.apply_nodes(having("node2", 1))
    full.ledger.apply(held("0", "node2"))
    second = full.wait(asking(name="other"))

    assert first.message != second.message
    assert first.topic == second.topic
    assert full.wait(asking(2)).topic != first.topic
    full.apply_nodes(having("node3", 1, allocatable={"pods": 0}))
    full.forget_node("node1")
    full.forget_node("node2")
    assert full.wait(asking()).topic != first.topic
