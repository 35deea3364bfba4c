from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster_events import Aspect, ClusterEvent, NodeChanged
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.container_env import Container, ContainerKind, EnvVar
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, Reason
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
    "a pod with an empty list of containers": (
        pod("train-1", containers=()),
        "node2",
        "2",
        1,
    ),
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
        (
            'MapInvalid: cannot read placement map, line 2: "1=node9:x": GPU must be a number, GPU-<uuid> or '
            "MIG-<uuid> (example: 1=node2:0,1); correct annotation gpu-scheduling-map" + ANEW
        ),
    ),
    "an index that is no number": (
        pod("train-1", annotations={"agentaflow.gpu/index": "one"}),
        (
            'IndexUnknown: cannot read annotation agentaflow.gpu/index: "one": an index must be a number without sign '
            'or leading zero, at most 2147483647; correct it (example: agentaflow.gpu/index: "0")' + ANEW
        ),
    ),
    "an index that the map does not have": (
        pod("train-7"),
        (
            "IndexNotInMap: cannot find index 7 in the map: it has lines for 0-4; "
            "run fewer replicas, or add a line (example: 7=node1:0)" + ANEW
        ),
    ),
    "an index that a map with gaps does not have": (
        pod("train-7", "0=a:0\n2=a:1\n3=a:2\n9=a:3"),
        (
            "IndexNotInMap: cannot find index 7 in the map: it has lines for 0, 2-3, 9; "
            "run fewer replicas, or add a line (example: 7=node1:0)" + ANEW
        ),
    ),
    "a count that is invalid": (
        pod("train-0", None, annotations={"agentaflow.gpu/count": "-1"}),
        (
            'RequestInvalid: cannot read annotation agentaflow.gpu/count: "-1": it must be a number from 1 to 1024, '
            'without plus sign or leading zero; correct it (example: agentaflow.gpu/count: "1") or write a map instead'
            + ANEW
        ),
    ),
    "a container that sets its devices itself": (
        pod("train-1", containers=(container((visible("7"), PCI)),)),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="2" in container "main": it says "7" itself; leave the '
            'variable out or keep it with annotation agentaflow.gpu/keep-env: "true"' + ANEW
        ),
    ),
}


@pytest.mark.parametrize(("pending", "message"), TEXT_FAULTS.values(), ids=TEXT_FAULTS)
def test_a_pod_with_a_fault_is_refused(pending: Pod, message: str) -> None:
    """The fault is in the pod's own text; only a change of the pod removes it."""
    decision = decided(pending)

    assert isinstance(decision, Refuse)
    assert (message, pending.ref) == (decision.message, decision.pod)
    assert decision.reason in REFUSED_AT_ADMISSION


GATE = {
    "a container without any environment": (
        (container(None),),
        (
            'EnvNotInjected: cannot start container "main" without CUDA_VISIBLE_DEVICES="2": it would not see its '
            "GPUs; delete the pod: its controller makes it anew and admission completes it; "
            "a bare pod must be created again"
        ),
    ),
    "a container without CUDA_DEVICE_ORDER": ((container((visible("2"),)),), "EnvNotInjected: "),
    "a second container without any environment": (
        (container((visible("2"), PCI)), container((), position=1, name="side")),
        'EnvNotInjected: cannot start container "side" without',
    ),
    "an empty literal where the map has a GPU": ((container((visible(""), PCI)),), "EnvConflict: "),
    "a value from a Secret": (
        (container((replace(visible("2"), value=None), PCI)),),
        'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="2" in container "main": it takes it from elsewhere (valueFrom)',
    ),
    "another field of the pod": (
        (container((replace(FIELD_REF, field_path="metadata.name"), PCI)),),
        "EnvConflict: ",
    ),
    "another order": ((container((visible("2"), replace(PCI, value="FASTEST_FIRST"))),), "EnvConflict: "),
    "an ephemeral container with another value": (
        (container((visible("2"), PCI)), container((visible("7"), PCI), ContainerKind.EPHEMERAL, name="debug")),
        (
            'EnvConflict: cannot set CUDA_VISIBLE_DEVICES="2" in container "debug": it says "7" itself; '
            "leave the variable out: it sees what its pod's containers see; "
            "if the pod already has this container, make the pod anew"
        ),
    ),
    "a second entry that overrides the first": ((container((visible("2"), PCI, visible("3"))),), "EnvConflict: "),
}


@pytest.mark.promise("gate-1", "gate-2", "gate-3")
@pytest.mark.parametrize(("containers", "start"), GATE.values(), ids=GATE)
def test_the_bind_gate_holds_back_a_pod(containers: tuple[Container, ...], start: str) -> None:
    """A pod is bound only if each of its containers sees exactly the GPUs of its line."""
    decision = decided(pod("train-1", containers=containers))

    assert isinstance(decision, Wait | Refuse)
    assert decision.message.startswith(start)


NOT_KEPT = {
    "an abbreviated UUID": (visible("GPU-8f5b1c3e"), PCI),
    "an expansion": (visible("$(FOO)"), PCI),
    "a source": (replace(visible("2"), value=None), PCI),
    "another order, in which numbers mean other devices": (visible("2"), replace(PCI, value="FASTEST_FIRST")),
}


@pytest.mark.parametrize("kind", ContainerKind)
@pytest.mark.parametrize("env", NOT_KEPT.values(), ids=NOT_KEPT)
def test_the_bind_gate_refuses_kept_values_that_name_no_devices(env: tuple[EnvVar, ...], kind: ContainerKind) -> None:
    """keep-env keeps only devices that the ledger can record, in every kind of container."""
    containers = (container((visible("2"), PCI)), container(env, kind, 0, "side"))
    decision = decided(pod("train-1", annotations=KEEP, containers=containers))

    assert isinstance(decision, Refuse)
    assert decision.message.startswith("EnvConflict: cannot ")
    assert ' in container "side": ' in decision.message


def test_the_bind_gate_accepts_a_debug_container_with_the_kept_devices() -> None:
    """A debug container that is added before the bind does not prevent the bind."""
    seeing = container((visible("7"), PCI)), container((visible("7"), PCI), ContainerKind.EPHEMERAL, 0, "debug")
    other = container((visible("6"), PCI), ContainerKind.EPHEMERAL, 1, "other")

    assert isinstance(decided(pod("train-1", annotations=KEEP, containers=seeing)), Bind)
    assert isinstance(decided(pod("train-1", annotations=KEEP, containers=(*seeing, other))), Refuse)


KEPT_ELSEWHERE = {
    "one device that the node does not have": ("7", "GpuNotFound: cannot find GPU 7 on node node2"),
    "one device of several": ("2,1,4", "GpuNotFound: cannot find GPU 4 on node node2"),
}


@pytest.mark.promise("env-15")
@pytest.mark.parametrize(("value", "start"), KEPT_ELSEWHERE.values(), ids=KEPT_ELSEWHERE)
@pytest.mark.parametrize("more", [{}, {"agentaflow.gpu/observer": "true"}], ids=["a holder", "an observer"])
def test_kept_devices_are_on_the_node(value: str, start: str, more: dict[str, str]) -> None:
    """The devices that a container keeps are checked against the inventory, as the devices of a line are."""
    pending = pod("train-1", annotations={**KEEP, **more}, containers=(container((visible(value), PCI)),))
    decision = decided(pending, known=nodes(node("node2", inventory=counted(4))))

    assert isinstance(decision, Wait)
    assert decision.message.startswith(start)


def test_keep_env_does_not_replace_the_webhook() -> None:
    """A pod that may keep its own variables must still have variables."""
    decision = decided(pod("train-1", annotations=KEEP, containers=(container(None),)))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.ENV_NOT_INJECTED


def test_a_pod_that_requests_nothing_waits() -> None:
    """The pod has neither map nor count: the message says what to write, and the pod is not refused."""
    decision = decided(pod("train-0", None))

    assert isinstance(decision, Wait)
    assert decision.message == (
        'NothingRequested: cannot place a pod that asks for nothing: it has schedulerName "gpu-scheduler" but neither '
        'a map nor a count; write one (annotation gpu-scheduling-map, example: "0=node1:0,1", or annotation '
        'agentaflow.gpu/count, example: "1") or leave out schedulerName' + ANEW
    )


NODE_FAULTS = {
    "a node that does not exist": (
        nodes(node("node9")),
        (
            'NodeNotFound: cannot find node "node2" of the map: no node has that name, nor the label '
            "gpu-node-name=node2; label the node that it means: kubectl label node NODE gpu-node-name=node2, "
            "or name another node in the pod's template or manifest, and make the pod anew"
        ),
        {exists("node2")},
    ),
    "an alias on two nodes": (
        nodes(node("a", alias="node2"), node("b", alias="node2"), node("c", alias="node2")),
        (
            'NodeAmbiguous: cannot tell which node "node2" of the map is: label gpu-node-name=node2 is on a, b and 1 '
            "more; leave it on one node: kubectl label node b gpu-node-name-"
        ),
        {exists("node2")},
    ),
    "an alias on two nodes and no more": (
        nodes(node("a", alias="node2"), node("b", alias="node2")),
        (
            'NodeAmbiguous: cannot tell which node "node2" of the map is: label gpu-node-name=node2 is on a, b; '
            "leave it on one node: kubectl label node b gpu-node-name-"
        ),
        {exists("node2")},
    ),
    "a node that is not Ready": (
        nodes(node("node2", ready=False)),
        (
            "NodeNotReady: cannot use node node2: it is not Ready; wait until it is Ready; "
            "why it is not: kubectl describe node node2"
        ),
        {exists("node2"), NodeChanged("node2", Aspect.READY)},
    ),
    "a cordoned node, named by its alias": (
        nodes(node("vmss2", unschedulable=True, alias="node2")),
        (
            "NodeUnschedulable: cannot use node vmss2: it is cordoned; wait until it is uncordoned, or name another "
            "node in the pod's template or manifest, and make the pod anew"
        ),
        {exists("node2"), exists("vmss2"), NodeChanged("vmss2", Aspect.UNSCHEDULABLE)},
    ),
}


@pytest.mark.promise("map-11", "fit-1", "fit-2", "fit-3")
@pytest.mark.parametrize(("known", "message", "cured_by"), NODE_FAULTS.values(), ids=NODE_FAULTS)
def test_a_pod_waits_for_its_node(known: Nodes, message: str, cured_by: set[ClusterEvent]) -> None:
    """The message says why the pod waits, and only changes of this node requeue it."""
    decision = decided(pod("train-1"), known=known)

    assert isinstance(decision, Wait)
    assert message == decision.message
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
