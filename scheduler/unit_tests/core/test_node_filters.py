import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged, ResourceFreed
from gpu_scheduler.core.filters.node_filters import (
    node_selected,
    ports_free,
    resources_exist,
    resources_left,
    taints_tolerated,
)
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
from tests.messages import RECREATE, says
from unit_tests.core.build import pod

GI = 2**30


def constrained(**constraints: object) -> Pod:
    return pod(constraints=SchedulingConstraints(**constraints))  # type: ignore[arg-type]


def asking(requests: Mapping[str, int] | None = None, *ports: HostPort) -> Pod:
    return pod(resource_request=ResourceRequest(requests or {}, frozenset(ports)))


def taken(*resource_requests: ResourceRequest) -> UsedResources:
    """Return the used resources of pods web-0, web-1 … on node1, and of a large pod on node2."""
    used = UsedResources()
    for number, resource_request in enumerate(resource_requests):
        used.put(ForeignPod(PodRef("default", f"web-{number}", f"uid-{number}"), "node1", resource_request))
    plenty = ResourceRequest(
        {"cpu": 64000, "memory": 512 * GI, "example.com/fpga": 8}, frozenset({tcp(8080), tcp(9090)})
    )
    used.put(ForeignPod(PodRef("default", "far", "uid-far"), "node2", plenty))
    return used


def tcp(port: int, address: str = "0.0.0.0") -> HostPort:  # noqa: S104 - every address of the host
    return HostPort("TCP", address, port)


def changed(aspect: Aspect) -> frozenset[ClusterEvent]:
    return frozenset({NodeChanged("node1", aspect)})


ANEW = f"or name another node {RECREATE}"
CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
ALL = Toleration("", "Exists", "", "")
ML = Taint("dedicated", "ml", "NoSchedule")
NODE = Node(
    "node1",
    labels={"disk": "ssd", "zone": "a"},
    allocatable={"pods": 3, "cpu": 4000, "memory": 8 * GI, "ephemeral-storage": 100 * GI, "example.com/fpga": 2},
)


TOLERATED = {
    "no taint": (pod(), ()),
    "a taint of effect PreferNoSchedule": (pod(), (Taint("busy", "", "PreferNoSchedule"),)),
    "taints that are all tolerated": (constrained(tolerations=(ALL,)), (ML, Taint("old", "", "NoExecute"))),
    "the taint of a cordon, which another filter checks": (pod(), (CORDON,)),
    "the taints of a node that is not Ready, which another filter checks": (
        pod(),
        (
            Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),
            Taint("node.kubernetes.io/unreachable", "", "NoSchedule"),
        ),
    ),
}


@pytest.mark.parametrize(("given", "taints"), TOLERATED.values(), ids=TOLERATED)
def test_taints_that_the_pod_may_ignore(given: Pod, taints: tuple[Taint, ...]) -> None:
    """The filter passes."""
    assert taints_tolerated(given, replace(NODE, taints=taints)) is None


BARRED = {
    "a taint of effect NoSchedule": ((ML,), ("TaintNotTolerated", "node1", '"dedicated=ml:NoSchedule"')),
    "a taint of effect NoExecute": (
        (Taint("busy", "", "PreferNoSchedule"), Taint("node.kubernetes.io/not-ready", "", "NoExecute")),
        ("TaintNotTolerated", "node1", '"node.kubernetes.io/not-ready:NoExecute"'),
    ),
}


@pytest.mark.promise("fit-4")
@pytest.mark.parametrize(("taints", "said"), BARRED.values(), ids=BARRED)
def test_a_taint_that_is_not_tolerated(taints: tuple[Taint, ...], said: tuple[str, ...]) -> None:
    """The message names the taint; a change of the node's taints requeues the pod."""
    unschedulable = taints_tolerated(pod(), replace(NODE, taints=taints))

    assert unschedulable is not None
    says(unschedulable.message, *said)
    assert unschedulable.cured_by == changed(Aspect.TAINTS)


SSD = NodeSelectorRequirement("disk", "In", ("ssd",))
HDD = NodeSelectorRequirement("disk", "In", ("hdd",))

SELECTED = {
    "no constraint": pod(),
    "a selector with the node's labels": constrained(selector={"disk": "ssd", "zone": "a"}),
    "an affinity to the node": constrained(affinity=(NodeSelectorTerm((SSD,)),)),
    "an affinity of which the second term matches": constrained(
        affinity=(NodeSelectorTerm((HDD,)), NodeSelectorTerm((SSD,)))
    ),
    "an affinity to the node's name": constrained(
        affinity=(NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", ("node1",)),)),)
    ),
}


@pytest.mark.parametrize("given", SELECTED.values(), ids=SELECTED)
def test_a_node_that_is_selected(given: Pod) -> None:
    """The pod's own constraints allow the node of its map line."""
    assert node_selected(given, NODE) is None


MISMATCH = {
    "a label with another value": (
        constrained(selector={"zone": "a", "disk": "hdd"}),
        'nodeSelector asks for "disk=hdd", and it has "disk=ssd"',
        "nodeSelector",
        "kubectl label node node1 disk=hdd --overwrite",
    ),
    "a label that the node does not have": (
        constrained(selector={"rack": "7"}),
        'nodeSelector asks for "rack=7", ',
        "nodeSelector",
        "kubectl label node node1 rack=7",
    ),
    "two labels that the node does not have: one of them is not enough": (
        constrained(selector={"rack": "7", "row": "2"}),
        'nodeSelector asks for "rack=7", ',
        "nodeSelector",
        "",
    ),
    "an affinity to nodes with another value": (
        constrained(affinity=(NodeSelectorTerm((SSD, NodeSelectorRequirement("zone", "NotIn", ("a",)))),)),
        '"zone NotIn a" does not hold',
        "the affinity",
        "kubectl label node node1 zone-",
    ),
    "an affinity to nodes without a label": (
        constrained(affinity=(NodeSelectorTerm((NodeSelectorRequirement("zone", "DoesNotExist"),)),)),
        '"zone DoesNotExist" does not hold',
        "the affinity",
        "kubectl label node node1 zone-",
    ),
    "an affinity to nodes with any value": (
        constrained(affinity=(NodeSelectorTerm((NodeSelectorRequirement("rack", "Exists"),)),)),
        '"rack Exists" does not hold',
        "the affinity",
        "",
    ),
    "an affinity to a node of another name, which no label can be": (
        constrained(affinity=(NodeSelectorTerm((), (NodeSelectorRequirement("metadata.name", "In", ("node9",)),)),)),
        '"metadata.name In node9" does not hold',
        "the affinity",
        "",
    ),
    "an affinity of which no term matches": (
        constrained(affinity=(NodeSelectorTerm(), NodeSelectorTerm((HDD,)), NodeSelectorTerm((HDD,)))),
        '"disk In hdd" does not hold, and none of its other 2 ',
        "the affinity",
        "kubectl label node node1 disk=hdd --overwrite",
    ),
    "an affinity without terms": (
        constrained(affinity=()),
        "required node affinity does not allow it, ",
        "the affinity",
        "",
    ),
    "a selector is checked before an affinity": (
        constrained(selector={"rack": "7"}, affinity=()),
        'nodeSelector asks for "rack=7", ',
        "nodeSelector",
        "",
    ),
}


@pytest.mark.promise("fit-5", "fit-6")
@pytest.mark.parametrize(("given", "why", "field", "command"), MISMATCH.values(), ids=MISMATCH)
def test_a_node_that_is_not_selected(given: Pod, why: str, field: str, command: str) -> None:
    """The message quotes the constraint and says what to edit; a change of the node's labels requeues the pod.

    What labels the node is a command beside the message, if one label is enough and needs no choice.
    """
    unschedulable = node_selected(given, NODE)

    assert unschedulable is not None
    says(unschedulable.message, "NodeAffinityMismatch", "node1", field, *re.findall(r'"[^"]*"', why))
    assert unschedulable.command == command
    assert unschedulable.cured_by == changed(Aspect.LABELS)


OWNED = {
    "of the kubelet": ("kubernetes.io/hostname", "node2"),
    "of the platform": ("kubernetes.io/os", "windows"),
    "of the control plane": ("node-role.kubernetes.io/control-plane", ""),
    "of Kubernetes' sub-projects": ("node.k8s.io/pool", "a"),
    "of a cloud": ("eks.amazonaws.com/nodegroup", "a"),
    "of a cloud without a domain": ("agentpool", "a"),
    "of our monitor": ("agentaflow.gpu/schedulable", "true"),
    "the alias by which maps name the node": ("gpu-node-name", "node2"),
}


@pytest.mark.parametrize(("key", "value"), OWNED.values(), ids=OWNED)
def test_no_label_or_taint_that_users_do_not_own_is_to_be_changed(key: str, value: str) -> None:
    """The pod's text is to be edited: neither message nor command writes or removes what others own."""
    absent = NodeSelectorTerm((NodeSelectorRequirement(key, "DoesNotExist"),))
    labelled = replace(NODE, labels={key: "other"})
    found = (
        (node_selected(constrained(selector={key: value}), NODE), "correct nodeSelector"),
        (node_selected(constrained(selector={key: value}), labelled), "correct nodeSelector"),
        (node_selected(constrained(affinity=(absent,)), labelled), "correct the affinity"),
        (taints_tolerated(pod(), replace(NODE, taints=(Taint(key, value, "NoSchedule"),))), "add a toleration"),
    )

    for each, edit in found:
        assert each is not None
        assert each.remedy == f"{edit} {ANEW}"
        assert each.command == ""


def test_a_taint_is_removed_by_a_command_only_with_all_the_others() -> None:
    """One that is left keeps the pod off the node."""
    old, theirs = Taint("old", "", "NoExecute"), Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")

    both = taints_tolerated(pod(), replace(NODE, taints=(ML, old)))
    assert both is not None
    assert both.command == "kubectl taint node node1 dedicated:NoSchedule- old:NoExecute-"

    one_of_others = taints_tolerated(pod(), replace(NODE, taints=(ML, theirs)))
    assert one_of_others is not None
    assert one_of_others.command == ""


HALF = ResourceRequest({"cpu": 3500, "memory": 6 * GI, "example.com/fpga": 1})

ROOM = {
    "devices, which the ledger counts": (asking({"nvidia.com/gpu": 8}), taken()),
    "the last pod that the node takes": (asking(), taken(HALF, ResourceRequest())),
}


@pytest.mark.parametrize(("given", "used"), ROOM.values(), ids=ROOM)
def test_room_for_the_pod(given: Pod, used: UsedResources) -> None:
    """Only the node's own pods count, and a pod without a request always fits."""
    assert resources_left(given, NODE, used) is None


def test_a_node_that_does_not_count_pods_takes_any_number() -> None:
    """A Node without allocatable pods, which no kubelet has written yet, has no such limit."""
    assert resources_left(asking(), Node("node1"), taken(HALF)) is None


LOWER = f"lower the request {ANEW}"
WAIT = f"wait until pods of that node end, or {LOWER}"
NO_LESS = f"wait until pods of that node end, {ANEW}"
NEVER = f"no waiting helps: {LOWER}"

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
        ("ephemeral-storage", "1Ti of ephemeral-storage", "and the node has 100Gi in all", NEVER),
    ),
    "too few devices of another kind": (
        asking({"example.com/fpga": 2}),
        taken(HALF),
        ("example.com/fpga", "2 example.com/fpga", "1 of 2 are used, 1 are free", WAIT),
    ),
    "pages that the node does not have": (
        asking({"hugepages-2Mi": 2**21}),
        taken(),
        ("hugepages-2Mi", "2Mi of hugepages-2Mi", "and the node has 0 in all", NEVER),
    ),
    "more than there are units for": (
        asking({"memory": 2**63 * 2048}),
        taken(ResourceRequest({"memory": 9 * GI})),
        ("memory", "16384Ei of memory", "and the node has 8Gi in all", NEVER),
    ),
    "no room for another pod, which is checked first": (
        asking({"cpu": 4000}),
        taken(HALF, HALF, HALF),
        ("pods", "room for 1 pod", "3 of 3 are used, 0 are free", NO_LESS),
    ),
}


@pytest.mark.promise("fit-8", "fit-9")
@pytest.mark.parametrize(("given", "used", "expected"), FULL.values(), ids=FULL)
def test_a_full_node(given: Pod, used: UsedResources, expected: tuple[str, str, str, str]) -> None:
    """The message has requested, used and free amounts in readable units; the topic stays when they change."""
    resource, thing, state, remedy = expected
    unschedulable = resources_exist(given, NODE) or resources_left(given, NODE, used)

    assert unschedulable is not None
    says(unschedulable.message, "InsufficientResources", "node1", thing, *re.findall(r"\d\S*", state))
    freed = set() if unschedulable.beyond else {ResourceFreed("node1", resource)}
    assert (unschedulable.beyond, unschedulable.cured_by) == (remedy == NEVER, changed(Aspect.ALLOCATABLE) | freed)
    assert unschedulable.message.startswith(unschedulable.topic)
    says(unschedulable.topic, "InsufficientResources", "node1", thing)


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/fpga"]), st.integers(0, 6))


@given(AMOUNTS, AMOUNTS, st.lists(AMOUNTS, max_size=3))
def test_room_is_plain_arithmetic(
    there: Mapping[str, int], asked: Mapping[str, int], used: list[dict[str, int]]
) -> None:
    """A pod fits when the node has, beside the requests of all its pods, enough of every resource."""
    fits = all(
        not amount or amount + sum(each.get(resource, 0) for each in used) <= there.get(resource, 0)
        for resource, amount in asked.items()
    )

    pod, node = asking(asked), Node("node1", allocatable=there)
    answer = resources_exist(pod, node) or resources_left(pod, node, taken(*map(ResourceRequest, used)))

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
    """Each combination of protocol, address and port can be used once a node."""
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


@pytest.mark.promise("fit-7")
@pytest.mark.parametrize(("given", "what"), USED_PORTS.values(), ids=USED_PORTS)
def test_a_port_that_is_in_use(given: Pod, what: str) -> None:
    """The message names the pod that uses it; a freed port of the node requeues the pod."""
    unschedulable = ports_free(given, NODE, taken(ResourceRequest(), WEB))

    assert unschedulable is not None
    says(unschedulable.message, "PortInUse", f"port {what}")
    assert unschedulable.cured_by == frozenset({ResourceFreed("node1", "ports")})
