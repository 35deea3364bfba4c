from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.container_env import Container, ContainerKind
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Reason
from tests.messages import says, text_of
from unit_tests.core.build import (
    ANEW,
    FIELD_REF,
    KEEP,
    PCI,
    container,
    decided,
    exists,
    ledger,
    node,
    nodes,
    placed,
    pod,
    running,
    visible,
)

BOUND = {
    "pod 0 of the map is bound to node1 and sees GPUs 0 and 1": (pod("train-0"), "node1", "0,1", 0),
    "pod 1 of the map is bound to node2 and sees GPU 2": (pod("train-1"), "node2", "2", 1),
    "pod 2 of the map sees three GPUs": (pod("train-2"), "node3", "0,1,2", 2),
    "the devices are in the order of the line": (pod("train-0", "0=node1:3,1,2"), "node1", "3,1,2", 0),
    "a line without GPUs places a pod that sees no GPU": (pod("train-5", "5=node1:"), "node1", "", 5),
    "an annotation names the line": (pod("web", annotations={"agentaflow.gpu/index": "3"}), "node4", "3", 3),
    "a container may read the devices from our annotation": (
        pod("train-1", containers=(container((FIELD_REF, PCI)),)),
        "node2",
        "2",
        1,
    ),
    "a container may keep its own devices when the pod has keep-env": (
        pod("train-1", annotations=KEEP, containers=(container((visible("7"), PCI)),)),
        "node2",
        "2",
        1,
    ),
    "a pod with an empty list of containers": (pod("train-1", containers=()), "node2", "2", 1),
}


@pytest.mark.promise("map-1", "map-2", "map-9", "env-8")
@pytest.mark.parametrize(("pending", "node", "devices", "index"), BOUND.values(), ids=BOUND)
def test_a_pod_is_bound_as_its_line_says(pending: Pod, node: str, devices: str, index: int) -> None:
    """In an empty cluster every pod gets the node and the devices of its line."""
    decision = decided(pending)

    assert isinstance(decision, Bind)
    assert (pending.ref, placed(node, devices, index)) == (decision.pod, decision.placement)


SUCCESS = {
    "several GPUs": ("0=node1:0,1", "Successfully assigned default/train-0 to node1 with GPUs 0,1 (index 0)"),
    "one GPU": ("0=node1:3", "Successfully assigned default/train-0 to node1 with GPU 3 (index 0)"),
    "no GPU": ("0=node1:", "Successfully assigned default/train-0 to node1 with no GPU (index 0)"),
}


@pytest.mark.parametrize(("text", "message"), SUCCESS.values(), ids=SUCCESS)
def test_the_scheduled_event_names_the_placement(text: str, message: str) -> None:
    """The message names pod, node, devices and index, and begins as the message of kube-scheduler."""
    decision = decided(pod("train-0", text))

    assert isinstance(decision, Bind)
    assert message == decision.message


IGNORED = {
    "a pod of another scheduler": pod(scheduler_name="default-scheduler"),
    "a pod that is bound": pod(node="node1"),
    "a pod that is being deleted": pod(deleting_since="2026-11-21T01:00:00Z"),
    "a pod that is gated": pod(gated=True),
    "a pod that failed before it had a node": pod(phase="Failed"),
}


@pytest.mark.promise("place-1", "place-2", "place-3", "place-4")
@pytest.mark.parametrize("given", IGNORED.values(), ids=IGNORED)
def test_the_scheduler_ignores_other_pods(given: Pod) -> None:
    """A pod that is deleted, gated, bound, finished or of another scheduler gets no decision."""
    assert None is decided(given)


def test_an_assumed_pod_is_not_decided_again() -> None:
    """A pod has one bind in flight at most, even when an update of the pod arrives before the answer."""
    pending, held = pod("train-0"), ledger()
    held.assume(pending, placed("node1", "0,1"))

    assert None is decided(pending, held)


TEXT_FAULTS = {
    "a map that cannot be read": (
        pod("train-1", "0=node1:0\n1=node9:x"),
        ("MapInvalid", "line 2", '"1=node9:x"', "1=node2:0,1", "gpu-scheduling-map"),
    ),
    "a container that sets its devices itself": (
        pod("train-1", containers=(container((visible("7"), PCI)),)),
        ("EnvConflict", 'CUDA_VISIBLE_DEVICES="2"', '"main"', '"7"', "agentaflow.gpu/keep-env"),
    ),
}


@pytest.mark.parametrize(("pending", "said"), TEXT_FAULTS.values(), ids=TEXT_FAULTS)
def test_a_pod_with_a_fault_is_refused(pending: Pod, said: tuple[str, ...]) -> None:
    """The fault is in the pod's own text; only a change of the pod removes it."""
    decision = decided(pending)

    assert isinstance(decision, Refuse)
    assert decision.pod == pending.ref
    says(decision.message, *said)
    assert decision.reason in REFUSED_AT_ADMISSION


GATE = {
    "a container without any environment": (
        (container(None),),
        ("EnvNotInjected", '"main"', 'CUDA_VISIBLE_DEVICES="2"'),
    ),
    "a container without CUDA_DEVICE_ORDER": ((container((visible("2"),)),), ("EnvNotInjected",)),
    "a second container without any environment": (
        (container((visible("2"), PCI)), container((), position=1, name="side")),
        ("EnvNotInjected", '"side"'),
    ),
    "an empty literal where the map has a GPU": ((container((visible(""), PCI)),), ("EnvConflict",)),
    "a value from a Secret": (
        (container((replace(visible("2"), value=None), PCI)),),
        ("EnvConflict", 'CUDA_VISIBLE_DEVICES="2"', '"main"'),
    ),
    "another field of the pod": ((container((replace(FIELD_REF, field_path="metadata.name"), PCI)),), ("EnvConflict",)),
    "another order": ((container((visible("2"), replace(PCI, value="FASTEST_FIRST"))),), ("EnvConflict",)),
    "an ephemeral container with another value": (
        (container((visible("2"), PCI)), container((visible("7"), PCI), ContainerKind.EPHEMERAL, name="debug")),
        ("EnvConflict", text_of("an ephemeral container sets another value")),
    ),
    "a second entry that overrides the first": ((container((visible("2"), PCI, visible("3"))),), ("EnvConflict",)),
}


@pytest.mark.promise("gate-1", "gate-2", "gate-3")
@pytest.mark.parametrize(("containers", "said"), GATE.values(), ids=GATE)
def test_the_bind_gate_holds_back_a_pod(containers: tuple[Container, ...], said: tuple[str, ...]) -> None:
    """A pod is bound only if each of its containers sees exactly the GPUs of its line."""
    decision = decided(pod("train-1", containers=containers))

    assert isinstance(decision, Wait | Refuse)
    says(decision.message, *said)


def test_the_bind_gate_accepts_a_debug_container_with_the_kept_devices() -> None:
    """A debug container that is added before the bind does not prevent the bind."""
    seeing = container((visible("7"), PCI)), container((visible("7"), PCI), ContainerKind.EPHEMERAL, 0, "debug")
    other = container((visible("6"), PCI), ContainerKind.EPHEMERAL, 1, "other")

    assert isinstance(decided(pod("train-1", annotations=KEEP, containers=seeing)), Bind)
    assert isinstance(decided(pod("train-1", annotations=KEEP, containers=(*seeing, other))), Refuse)


KEPT_ELSEWHERE = {
    "one device that the node does not have": ("7", ("GpuNotFound", "GPU 7", "node2")),
    "one device of several": ("2,1,4", ("GpuNotFound", "GPU 4", "node2")),
}


@pytest.mark.promise("env-15")
@pytest.mark.parametrize(("value", "said"), KEPT_ELSEWHERE.values(), ids=KEPT_ELSEWHERE)
@pytest.mark.parametrize("more", [{}, {"agentaflow.gpu/observer": "true"}], ids=["a holder", "an observer"])
def test_kept_devices_are_on_the_node(value: str, said: tuple[str, ...], more: dict[str, str]) -> None:
    """The devices that a container keeps are checked against the inventory, as the devices of a line are."""
    pending = pod("train-1", annotations={**KEEP, **more}, containers=(container((visible(value), PCI)),))
    decision = decided(pending, known=nodes(node("node2", inventory=counted(4))))

    assert isinstance(decision, Wait)
    says(decision.message, *said)


def test_keep_env_does_not_replace_the_webhook() -> None:
    """A pod that may keep its own variables must still have variables."""
    decision = decided(pod("train-1", annotations=KEEP, containers=(container(None),)))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.ENV_NOT_INJECTED


def test_a_pod_that_requests_nothing_waits() -> None:
    """The pod has neither map nor count: the message says what to write, and the pod is not refused."""
    decision = decided(pod("train-0", None))

    assert isinstance(decision, Wait)
    says(decision.message, "NothingRequested", '"gpu-scheduler"', "gpu-scheduling-map", "agentaflow.gpu/count")


NODE_FAULTS = {
    "a node that does not exist": (
        nodes(node("node9")),
        ("NodeNotFound", '"node2"', "kubectl label node NODE gpu-node-name=node2"),
        {exists("node2")},
    ),
    "an alias on two nodes": (
        nodes(node("a", alias="node2"), node("b", alias="node2"), node("c", alias="node2")),
        ("NodeAmbiguous", text_of("an alias of three nodes, of which one is counted")),
        {exists("node2")},
    ),
    "an alias on two nodes and no more": (
        nodes(node("a", alias="node2"), node("b", alias="node2")),
        ("NodeAmbiguous", '"node2"', "gpu-node-name=node2", "a, b", "kubectl label node b gpu-node-name-"),
        {exists("node2")},
    ),
    "a node that is not Ready": (
        nodes(node("node2", ready=False)),
        ("NodeNotReady", "kubectl describe node node2"),
        {exists("node2"), NodeChanged("node2", Aspect.READY)},
    ),
    "a cordoned node, named by its alias": (
        nodes(node("vmss2", unschedulable=True, alias="node2")),
        ("NodeUnschedulable", "vmss2"),
        {exists("node2"), exists("vmss2"), NodeChanged("vmss2", Aspect.UNSCHEDULABLE)},
    ),
}


@pytest.mark.promise("map-11", "fit-1", "fit-2", "fit-3")
@pytest.mark.parametrize(("known", "said", "cured_by"), NODE_FAULTS.values(), ids=NODE_FAULTS)
def test_a_pod_waits_for_its_node(known: Nodes, said: tuple[str, ...], cured_by: set[ClusterEvent]) -> None:
    """The message says why the pod waits, and only changes of this node requeue it."""
    decision = decided(pod("train-1"), known=known)

    assert isinstance(decision, Wait)
    says(decision.message, *said)
    assert cured_by == decision.cured_by


@pytest.mark.promise("map-10")
def test_a_node_name_overrides_an_alias() -> None:
    """A label on another node cannot take the pods of the node that has the name."""
    decision = decided(pod("train-1"), known=nodes(node("node2"), node("node9", alias="node2")))

    assert isinstance(decision, Bind)
    assert decision.placement.node == "node2"


def test_messages_with_long_names_fit_an_event() -> None:
    """A message has at most 1,000 bytes and ends with its remedy, however long names, devices and environments are."""
    long = "n" * 253
    uuids = ",".join(f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(99))
    pending = pod(
        f"{'p' * 250}-0", f"0={long}:{uuids}", containers=(container((visible("9" * 9999), PCI), name="c" * 63),)
    )
    refused = decided(pending, known=nodes(node(long)))
    held = decided(
        pod(f"{'p' * 250}-0", f"0={long}:0", owner=None),
        ledger(replace(running(f"{'q' * 250}-0", long, f"0={long}:0"), deleting_since="2026-11-21T01:00:00Z")),
        nodes(node(long, ready=False)),
    )

    for decision in (refused, held):
        assert isinstance(decision, Wait | Refuse)
        assert len(decision.message.encode()) <= 1000
    assert isinstance(refused, Refuse)
    assert refused.message.endswith(ANEW)
    assert isinstance(held, Wait)
    assert held.message.endswith(f"or name another node{ANEW}")
