"""Why a pod that asks for a count fits nowhere: each word, and its sentence."""

from typing import Any

import pytest

from gpu_scheduler.core.cluster_events import ClassChanged
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, ForeignPod, HostPort, ResourceRequest
from gpu_scheduler.core.refs import PodRef
from tests.core.asking import World, asking, having, words
from tests.core.build import node, running

ILL = {1: DeviceReading(health=Health.UNHEALTHY)}
WEB = HostPort("TCP", ANY_ADDRESS, 80)
TAINTED = (Taint("dedicated", "ml", "NoSchedule"),)


def held(devices: str, where: str = "node1") -> Any:
    """A pod that has these."""
    return running(f"holder-{where}-{devices[0]}", where, None, annotations=words(assigned_devices=devices))


Row = tuple[tuple[Node, ...], dict[str, Any], dict[str, Any], str]
# The nodes, what is asked for, other fields of the pod, and the sentence. On node1 GPU 0 is held, and port 80.
SENTENCES: dict[str, Row] = {
    "a GPU that is unhealthy": (
        (having("node1", 8000, 8000, readings=ILL),),
        {"memory": 8000},
        {},
        (
            "GpuUnhealthy: cannot get 1 GPU with 8000 MiB: 1 node has such GPUs free, but GPU 1 of node1 is unhealthy; "
            "wait until their health is good again: kubectl gpu-scheduler health"
        ),
    ),
    "monitors that are silent": (
        (having("node2", stale=True), having("node3", stale=True), having("node1", 1)),
        {"count": 2},
        {},
        (
            "GpuUnhealthy: cannot get 2 GPUs on one node: 2 nodes have such GPUs free, but the monitor of node2 is "
            "silent; wait until their health is good again: kubectl gpu-scheduler health"
        ),
    ),
    "GPUs that are held": (
        (having("node1", 8000),),
        {},
        {},
        (
            "NotEnoughGpus: cannot get 1 GPU: 1 node has such GPUs, but none is free and at most 80 % utilized; "
            "wait until pods that hold them end"
        ),
    ),
    "too few that are free on one node": (
        (having("node1", 1, 1), having("node2", 1, 1, readings={0: DeviceReading(0, 81)}), having("node3", 1)),
        {"count": 2},
        {},
        (
            "NotEnoughGpus: cannot get 2 GPUs on one node: 2 nodes have such GPUs, but no more than 1 on a node is "
            "free and at most 80 % utilized; wait until pods that hold them end, or ask for fewer"
        ),
    ),
    "GPUs that are too small": (
        (having("node2", 16384), having("node3", 24576), having("node1")),
        {"memory": 90000},
        {},
        (
            "InsufficientGpuMemory: cannot get 1 GPU with 90000 MiB: 3 nodes have such GPUs, but with 40960 MiB at "
            "most; ask for less in annotation agentaflow.gpu/memory, or add nodes with larger GPUs"
        ),
    ),
    "too few that are large": (
        (having("node1", 90000, 16384, model="NVIDIA L4"),),
        {"count": 2, "memory": 90000, "type": "L4"},
        {},
        (
            'InsufficientGpuMemory: cannot get 2 GPUs of type "L4" with 90000 MiB each on one node: 1 node has such '
            "GPUs, but with 16384 MiB each at most; "
            "ask for less in annotation agentaflow.gpu/memory, or add nodes with larger GPUs"
        ),
    ),
    "memory that nobody knows": (
        (having("node1", None),),
        {"memory": 1},
        {},
        (
            "InsufficientGpuMemory: cannot get 1 GPU with 1 MiB: 1 node has such GPUs, but of unknown memory; "
            "ask for less in annotation agentaflow.gpu/memory, or add nodes with larger GPUs"
        ),
    ),
    "no GPU of the type": (
        (having("node1"), having("node2")),
        {"type": "H100"},
        {},
        (
            'GpuNotFound: cannot get 1 GPU of type "H100": no node has such a GPU; '
            "ask for other GPUs, or add nodes; which there are: kubectl gpu-scheduler nodes"
        ),
    ),
    "not so many GPUs": (
        (having("node1"), having("node2", 1)),
        {"count": 8},
        {},
        (
            "GpuNotFound: cannot get 8 GPUs on one node: no node has more than 4 such GPUs; "
            "ask for other GPUs, or add nodes; which there are: kubectl gpu-scheduler nodes"
        ),
    ),
    "no node at all": (
        (),
        {},
        {},
        (
            "GpuNotFound: cannot get 1 GPU: no node has such a GPU; "
            "ask for other GPUs, or add nodes; which there are: kubectl gpu-scheduler nodes"
        ),
    ),
    "a node that is not Ready": (
        (having("node2", ready=False), node("node1")),
        {},
        {},
        "NodeNotReady: cannot use node node2: it is not Ready; see why: kubectl describe node node2",
    ),
    "cordoned nodes": (
        (having("node2", unschedulable=True), having("node3", unschedulable=True)),
        {},
        {},
        (
            "NodeUnschedulable: cannot use node node2: it is cordoned (and so on 1 more node with such GPUs); "
            "kubectl uncordon node2"
        ),
    ),
    "tainted nodes": (
        tuple(having(f"node{number}", taints=TAINTED) for number in (2, 3, 4)),
        {},
        {},
        (
            'TaintNotTolerated: cannot use node node2: the pod does not tolerate its taint "dedicated=ml:NoSchedule" '
            "(and so on 2 more nodes with such GPUs); add a toleration for it to the pod's template, "
            "or remove the taint: kubectl taint node node2 dedicated:NoSchedule-"
        ),
    ),
    "another zone": (
        (having("node2"),),
        {},
        {"constraints": SchedulingConstraints({"zone": "a"})},
        (
            "NodeAffinityMismatch: cannot use node node2: the pod's nodeSelector asks for "
            '"zone=a", which it does not have; '
            "correct the pod's template, or label nodes: kubectl label node NODE KEY=VALUE"
        ),
    ),
    "too little processor time": (
        (having("node2"),),
        {},
        {"resource_request": ResourceRequest({"cpu": 9000})},
        (
            "InsufficientResources: cannot fit on node node2: asks for 9 cpu, 0 of 8 are used, 8 are free; "
            "wait until pods of such nodes end, or lower the request in the pod's template"
        ),
    ),
    "a port that somebody has": (
        (having("node1", 1, 1),),
        {},
        {"resource_request": ResourceRequest(ports=frozenset({WEB}))},
        (
            "PortInUse: cannot use host port 80/TCP of node node1: other/web has it; "
            "wait until the pods that have it end, or take another hostPort"
        ),
    ),
}


def world(*nodes: Node) -> World:
    """A cluster in which GPU 0 and port 80 of node1 are taken."""
    made = World(*nodes)
    made.ledger.apply(held("0"))
    made.ledger.apply_foreign_pod(
        ForeignPod(PodRef("other", "web", "web"), "node1", ResourceRequest(ports=frozenset({WEB})))
    )
    return made


@pytest.mark.parametrize(("nodes", "given", "others", "message"), SENTENCES.values(), ids=SENTENCES)
def test_sentences(nodes: tuple[Node, ...], given: dict[str, Any], others: dict[str, Any], message: str) -> None:
    """The word, what was asked, what there is on how many nodes, and what helps; any such node may cure it."""
    wait = world(*nodes).wait(asking(others=others, **given))

    assert message == wait.message
    assert [type(wake) for wake in wait.cured_by] == [ClassChanged]


WELL, FULL = having("node2", 8000), having("node1", 8000)
LACKING = {
    "GpuUnhealthy": having("node4", 8000, stale=True),
    "NotEnoughGpus": FULL,
    "InsufficientResources": having("node5", 8000, allocatable={"pods": 0}),
    "NodeNotReady": having("node6", 8000, ready=False),
    "NodeUnschedulable": having("node7", 8000, unschedulable=True),
    "TaintNotTolerated": having("node8", 8000, taints=TAINTED),
    "InsufficientGpuMemory": having("node9", 7000),
    "NodeAffinityMismatch": having("node10", 8000, labels={"zone": "b"}),
    "GpuNotFound": node("node11"),
}


@pytest.mark.parametrize("number", range(len(LACKING)))
def test_what_is_told_of_many_nodes(number: int) -> None:
    """What is in the way on the nodes that are closest to fitting."""
    words = list(LACKING)[number:]
    zone = {"constraints": SchedulingConstraints({"zone": "a"})}
    nodes = [LACKING[word] for word in reversed(words)]
    labelled = [each if each.labels else having_zone(each) for each in nodes]

    assert world(*labelled).wait(asking(memory=8000, others=zone)).reason == words[0]


def having_zone(node: Node) -> Node:
    """The node in zone a."""
    return Node(**{field: getattr(node, field) for field in Node.__slots__} | {"labels": {"zone": "a"}})


def test_an_obstacle_of_the_node_comes_before_who_holds_its_gpus() -> None:
    """Where the pod may not go, it does not matter who is there; where GPUs are too small, nothing else does."""
    assert world(having("node1", 8000, unschedulable=True)).wait(asking()).reason == "NodeUnschedulable"
    small = having("node1", 8000, unschedulable=True)
    assert world(small).wait(asking(memory=9000)).reason == "InsufficientGpuMemory"


def test_the_gpu_that_is_named_is_the_one_that_is_missing() -> None:
    """Of two that are ill, one is held: the other is what the pod could have."""
    ill = {0: DeviceReading(health=Health.UNHEALTHY), **ILL}

    assert "GPU 1 of node1 is unhealthy" in world(having("node1", 1, 1, readings=ill)).wait(asking()).message


def test_numbers_do_not_make_it_another_obstacle() -> None:
    """It is told again when the reason changes, or what is asked for; not when one more node is full."""
    full = world(having("node1", 1))
    first = full.wait(asking())
    full.show(having("node2", 1))
    full.ledger.apply(held("0", "node2"))
    second = full.wait(asking(name="other"))

    assert first.message != second.message
    assert first.topic == second.topic
    assert full.wait(asking(2)).topic != first.topic
    full.show(having("node3", 1, stale=True))
    assert full.wait(asking()).topic != first.topic


def test_cards_that_may_be_anybodys_are_not_free() -> None:
    """A device plugin gave some, and nobody can tell which."""
    made = World(having("node1", 1, 1, advertised=2, allocatable={"pods": 9, "nvidia.com/gpu": 2}))
    made.ledger.apply_foreign_pod(
        ForeignPod(PodRef("other", "a", "a"), "node1", ResourceRequest({"nvidia.com/gpu": 1}))
    )

    assert "1 node has such GPUs, but none is free" in made.wait(asking()).message
