from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged, ResourceFreed
from gpu_scheduler.core.filters.node_filters import node_selected, node_usable, ports_free, room_left, taints_tolerated
from gpu_scheduler.core.ledger.used_resources import UsedResources
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    Taint,
    Toleration,
)
from gpu_scheduler.core.pods.pod import ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.refs import PodRef
from tests.core.build import pod

GI = 2**30


def wishing(**constraints: object) -> Pod:
    return pod(constraints=SchedulingConstraints(**constraints))  # type: ignore[arg-type]


def asking(requests: Mapping[str, int] | None = None, *ports: HostPort) -> Pod:
    return pod(resource_request=ResourceRequest(requests or {}, frozenset(ports)))


def taken(*demands: ResourceRequest) -> UsedResources:
    """Pods web-0, web-1 … on node1, and one on node2 that takes plenty."""
    occupancy = UsedResources()
    for number, resource_request in enumerate(demands):
        occupancy.put(ForeignPod(PodRef("default", f"web-{number}", f"uid-{number}"), "node1", resource_request))
    plenty = ResourceRequest(
        {"cpu": 64000, "memory": 512 * GI, "example.com/fpga": 8}, frozenset({tcp(8080), tcp(9090)})
    )
    occupancy.put(ForeignPod(PodRef("default", "far", "uid-far"), "node2", plenty))
    return occupancy


def tcp(port: int, address: str = "0.0.0.0") -> HostPort:  # noqa: S104 - every address of the host
    return HostPort("TCP", address, port)


def changed(aspect: Aspect) -> frozenset[ClusterEvent]:
    return frozenset({NodeChanged("node1", aspect)})


CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
ALL = Toleration("", "Exists", "", "")
ML = Taint("dedicated", "ml", "NoSchedule")
NODE = Node(
    "node1",
    labels={"disk": "ssd", "zone": "a"},
    allocatable={"pods": 3, "cpu": 4000, "memory": 8 * GI, "ephemeral-storage": 100 * GI, "example.com/fpga": 2},
)

USABLE = {
    "a node that is Ready": (pod(), NODE),
    "a cordoned node, to a pod that tolerates the cordon": (
        wishing(tolerations=(Toleration(CORDON.key, "Exists", "", "NoSchedule"),)),
        replace(NODE, unschedulable=True, taints=(CORDON,)),
    ),
}


@pytest.mark.parametrize(("given", "node"), USABLE.values(), ids=USABLE)
def test_a_usable_node(given: Pod, node: Node) -> None:
    """It takes pods."""
    assert node_usable(given, node) is None


UNUSABLE = {
    "a node that is not Ready": (
        replace(NODE, ready=False),
        "NodeNotReady: cannot use node node1: it is not Ready; see why: kubectl describe node node1",
        changed(Aspect.READY),
    ),
    "a node that is neither Ready nor open": (
        replace(NODE, ready=False, unschedulable=True),
        "NodeNotReady: cannot use node node1: it is not Ready; see why: kubectl describe node node1",
        changed(Aspect.READY),
    ),
    "a cordoned node": (
        replace(NODE, unschedulable=True),
        "NodeUnschedulable: cannot use node node1: it is cordoned; kubectl uncordon node1",
        changed(Aspect.UNSCHEDULABLE),
    ),
}


@pytest.mark.parametrize(("node", "message", "cured_by"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_node(node: Node, message: str, cured_by: frozenset[ClusterEvent]) -> None:
    """Why it takes no pods, and the one change that cures it."""
    obstacle = node_usable(pod(), node)

    assert obstacle is not None
    assert (message, cured_by) == (obstacle.message, obstacle.cured_by)


TOLERATED = {
    "no taint": (pod(), ()),
    "a taint that only asks": (pod(), (Taint("busy", "", "PreferNoSchedule"),)),
    "taints that are all tolerated": (wishing(tolerations=(ALL,)), (ML, Taint("old", "", "NoExecute"))),
    "a cordon, which is the business of another question": (pod(), (CORDON,)),
    "a taint that lags behind the node's condition": (
        pod(),
        (
            Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
            Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),
        ),
    ),
}


@pytest.mark.parametrize(("given", "taints"), TOLERATED.values(), ids=TOLERATED)
def test_taints_that_bar_nobody(given: Pod, taints: tuple[Taint, ...]) -> None:
    """The pod may go there."""
    assert taints_tolerated(given, replace(NODE, taints=taints)) is None


BARRED = {
    "a taint that keeps new pods off": (
        (ML,),
        (
            'TaintNotTolerated: cannot use node node1: the pod does not tolerate its taint "dedicated=ml:NoSchedule"; '
            "add a toleration for it to the pod's template, or remove the taint: "
            "kubectl taint node node1 dedicated:NoSchedule-"
        ),
    ),
    "a taint that would evict the pod": (
        (Taint("busy", "", "PreferNoSchedule"), Taint("node.kubernetes.io/not-ready", "", "NoExecute")),
        (
            "TaintNotTolerated: cannot use node node1: the pod does not tolerate its taint "
            '"node.kubernetes.io/not-ready:NoExecute"; add a toleration for it to the pod\'s template, or remove the '
            "taint: kubectl taint node node1 node.kubernetes.io/not-ready:NoExecute-"
        ),
    ),
}


@pytest.mark.parametrize(("taints", "message"), BARRED.values(), ids=BARRED)
def test_a_taint_that_is_not_tolerated(taints: tuple[Taint, ...], message: str) -> None:
    """The taint is named, and a change of the node's taints cures it."""
    obstacle = taints_tolerated(pod(), replace(NODE, taints=taints))

    assert obstacle is not None
    assert (message, changed(Aspect.TAINTS)) == (obstacle.message, obstacle.cured_by)


SSD = NodeSelectorRequirement("disk", "In", ("ssd",))
HDD = NodeSelectorRequirement("disk", "In", ("hdd",))

SELECTED = {
    "no wish": pod(),
    "a selector with the node's labels": wishing(selector={"disk": "ssd", "zone": "a"}),
    "an affinity to the node": wishing(affinity=(NodeSelectorTerm((SSD,)),)),
    "an affinity of which the second term matches": wishing(
        affinity=(NodeSelectorTerm((HDD,)), NodeSelectorTerm((SSD,)))
    ),
    "an affinity to the node's name": wishing(
        affinity=(NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("node1",)),)),)
    ),
}


@pytest.mark.parametrize("given", SELECTED.values(), ids=SELECTED)
def test_a_node_that_is_selected(given: Pod) -> None:
    """The pod's own wishes agree with its map line."""
    assert node_selected(given, NODE) is None


CURE = (
    "let the map name another node, correct the pod's template, or label the node: kubectl label node node1 KEY=VALUE"
)
MISMATCH = {
    "a label with another value": (
        wishing(selector={"zone": "a", "disk": "hdd"}),
        'the pod\'s nodeSelector asks for "disk=hdd", and it has "disk=ssd"',
    ),
    "a label that the node lacks": (
        wishing(selector={"rack": "7"}),
        'the pod\'s nodeSelector asks for "rack=7", which it does not have',
    ),
    "an affinity to other nodes": (
        wishing(affinity=(NodeSelectorTerm((SSD, NodeSelectorRequirement("zone", "NotIn", ("a",)))),)),
        'the pod\'s required node affinity does not allow it, "zone NotIn a" does not hold',
    ),
    "an affinity of which no term matches": (
        wishing(affinity=(NodeSelectorTerm(), NodeSelectorTerm((HDD,)), NodeSelectorTerm((HDD,)))),
        (
            'the pod\'s required node affinity does not allow it, "disk In hdd" does not hold, '
            "and none of its other 2 matches"
        ),
    ),
    "an affinity without terms": (
        wishing(affinity=()),
        "the pod's required node affinity does not allow it, it has no term that could match",
    ),
    "a selector is asked before an affinity": (
        wishing(selector={"rack": "7"}, affinity=()),
        'the pod\'s nodeSelector asks for "rack=7", which it does not have',
    ),
}


@pytest.mark.parametrize(("given", "why"), MISMATCH.values(), ids=MISMATCH)
def test_a_node_that_the_pod_itself_rules_out(given: Pod, why: str) -> None:
    """The wish is quoted, and a change of the node's labels may cure it."""
    obstacle = node_selected(given, NODE)

    assert obstacle is not None
    assert obstacle.message == f"NodeAffinityMismatch: cannot use node node1: {why}; {CURE}"
    assert obstacle.cured_by == changed(Aspect.LABELS)


HALF = ResourceRequest({"cpu": 3500, "memory": 6 * GI, "example.com/fpga": 1})

ROOM = {
    "exactly what is left": (asking({"cpu": 500, "memory": 2 * GI, "example.com/fpga": 1}), taken(HALF)),
    "nothing of a resource that is overbooked": (asking({"memory": GI}), taken(ResourceRequest({"cpu": 9000}))),
    "cards, which the ledger counts": (asking({"nvidia.com/gpu": 8}), taken()),
    "the last place": (asking(), taken(HALF, ResourceRequest())),
}


@pytest.mark.parametrize(("given", "occupancy"), ROOM.values(), ids=ROOM)
def test_room_for_the_pod(given: Pod, occupancy: UsedResources) -> None:
    """Only the node's own pods count, and a request of nothing never fails."""
    assert room_left(given, NODE, occupancy) is None


def test_a_node_that_does_not_count_pods_takes_any_number() -> None:
    """A node object that no kubelet has filled in yet says nothing of them."""
    assert room_left(asking(), Node("node1"), taken(HALF)) is None


WAIT = "wait until pods of that node end, delete some, lower the request, or let the map name another node"
NEVER = "no waiting helps: lower the request in the pod's template, or let the map name another node"

FULL = {
    "too little processor": (
        asking({"cpu": 4000}),
        taken(HALF),
        ("cpu", "4 cpu", "3.5 of 4 are used, 0.5 are free", WAIT),
    ),
    "a thousandth too little": (
        asking({"cpu": 501}),
        taken(HALF),
        ("cpu", "0.501 cpu", "3.5 of 4 are used, 0.5 are free", WAIT),
    ),
    "too little memory, though it seems to be enough": (
        asking({"memory": 2 * GI + 1}),
        taken(HALF),
        ("memory", "2.1Gi of memory", "6Gi of 8Gi are used, 2Gi are free", WAIT),
    ),
    "less than a kibibyte": (
        asking({"memory": 1000}),
        taken(ResourceRequest({"memory": 8 * GI - 1})),
        ("memory", "1000B of memory", "8Gi of 8Gi are used, 1B are free", WAIT),
    ),
    "more disk than the node has": (
        asking({"ephemeral-storage": 2**40}),
        taken(),
        ("ephemeral-storage", "1Ti of ephemeral-storage", "0 of 100Gi are used, 100Gi are free", NEVER),
    ),
    "too few devices of another kind": (
        asking({"example.com/fpga": 2}),
        taken(HALF),
        ("example.com/fpga", "2 example.com/fpga", "1 of 2 are used, 1 are free", WAIT),
    ),
    "pages that the node does not have": (
        asking({"hugepages-2Mi": 2**21}),
        taken(),
        ("hugepages-2Mi", "2Mi of hugepages-2Mi", "0 of 0 are used, 0 are free", NEVER),
    ),
    "more than there are units for": (
        asking({"memory": 2**63 * 2048}),
        taken(ResourceRequest({"memory": 9 * GI})),
        ("memory", "16384Ei of memory", "9Gi of 8Gi are used, 0 are free", NEVER),
    ),
    "no place for another pod, which is asked first": (
        asking({"cpu": 9000}),
        taken(HALF, HALF, HALF),
        ("pods", "room for 1 pod", "3 of 3 are used, 0 are free", WAIT),
    ),
}


@pytest.mark.parametrize(("given", "occupancy", "expected"), FULL.values(), ids=FULL)
def test_a_full_node(given: Pod, occupancy: UsedResources, expected: tuple[str, str, str, str]) -> None:
    """Asked, used and free are told in people's units; it is one obstacle while they change."""
    resource, thing, state, cure = expected
    obstacle = room_left(given, NODE, occupancy)

    assert obstacle is not None
    assert obstacle.message == (f"InsufficientResources: cannot fit on node node1: asks for {thing}, {state}; {cure}")
    assert obstacle.cured_by == changed(Aspect.ALLOCATABLE) | {ResourceFreed("node1", resource)}
    assert obstacle.topic == f"InsufficientResources: {thing} on node node1"


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/fpga"]), st.integers(0, 6))


@given(AMOUNTS, AMOUNTS, st.lists(AMOUNTS, max_size=3))
def test_room_is_plain_arithmetic(
    there: Mapping[str, int], asked: Mapping[str, int], used: list[dict[str, int]]
) -> None:
    """A pod fits when of everything that it asks for, the node has that much beside all its pods."""
    fits = all(
        not amount or amount + sum(each.get(resource, 0) for each in used) <= there.get(resource, 0)
        for resource, amount in asked.items()
    )

    answer = room_left(asking(asked), Node("node1", allocatable=there), taken(*map(ResourceRequest, used)))

    assert fits is (answer is None)


WEB = ResourceRequest(ports=frozenset({tcp(8080), tcp(53, "10.0.0.1")}))

FREE_PORTS = {
    "no port": asking(),
    "another port": asking(None, tcp(8081)),
    "another protocol": asking(None, HostPort("UDP", "0.0.0.0", 8080)),  # noqa: S104 - every address of the host
    "another address": asking(None, tcp(53, "10.0.0.2")),
    "a port that only another node's pod has": asking(None, tcp(9090)),
}


@pytest.mark.parametrize("given", FREE_PORTS.values(), ids=FREE_PORTS)
def test_ports_that_are_free(given: Pod) -> None:
    """One protocol, address and port is given once a node."""
    assert ports_free(given, NODE, taken(ResourceRequest(), WEB)) is None


USED_PORTS = {
    "the very port": (asking(None, tcp(8080)), "8080/TCP of node node1: default/web-1 has it"),
    "the port of one address, where every one is taken": (
        asking(None, tcp(80), tcp(8080, "10.0.0.2")),
        "10.0.0.2:8080/TCP of node node1: default/web-1 has it as 8080/TCP",
    ),
    "the port of every address, where one is taken": (
        asking(None, tcp(53)),
        "53/TCP of node node1: default/web-1 has it as 10.0.0.1:53/TCP",
    ),
}


@pytest.mark.parametrize(("given", "what"), USED_PORTS.values(), ids=USED_PORTS)
def test_a_port_that_is_in_use(given: Pod, what: str) -> None:
    """The pod that has it is named; the wait is for a port of that node."""
    obstacle = ports_free(given, NODE, taken(ResourceRequest(), WEB))

    assert obstacle is not None
    assert obstacle.message == (
        f"PortInUse: cannot use host port {what}; "
        "wait until that pod ends, take another hostPort, or let the map name another node"
    )
    assert obstacle.cured_by == frozenset({ResourceFreed("node1", "ports")})
