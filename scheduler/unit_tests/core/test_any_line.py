"""Pods whose index is decided when they are placed: each gets the lowest line that is free and feasible."""

from dataclasses import replace

import pytest

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import AnyIndexFreed
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim, Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm, SchedulingConstraints
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says, text_of
from unit_tests.core.asking import ClusterState
from unit_tests.core.build import (
    POLICY,
    bound,
    container,
    decided,
    exists,
    ledger,
    node,
    nodes,
    placed,
    pod,
    running,
    seeing,
)

TEXT = "0=node1:0\n1=node2:1\n2=node3:2"
OLD, NEW = (Owner("ReplicaSet", f"web-{version}") for version in ("5d9f7c", "2456789"))


def replica(suffix: str, text: str = TEXT, *, owner: Owner = OLD, **others: object) -> Pod:
    """Return a Deployment's pod."""
    return pod(
        f"{owner.name}-{suffix}",
        text,
        owner=owner,
        labels={"pod-template-hash": owner.name.removeprefix("web-")},
        generate_name=f"{owner.name}-",
        **others,  # type: ignore[arg-type]
    )


def on(given: Pod, where: str, index: int, devices: str) -> Pod:
    """Return the pod as the watch shows it after a bind to this node, index and devices."""
    return bound(given, placed(where, devices, index), "")


FIRST = on(replica("aaaaa"), "node1", 0, "0")
SECOND = on(replica("bbbbb"), "node2", 1, "1")
THIRD = on(replica("ccccc"), "node3", 2, "2")
OTHER_WORKLOAD = running("other-0", "node1", "0=node1:0")
CLAIMING = replica("zzzzz", annotations={"agentaflow.gpu/index": "0"})
TERMINATING = replace(FIRST, deleting_since="2026-11-21T01:00:00Z")

TAKEN = {
    "the first pod has the first line": (ledger(), nodes(), 0),
    "the second pod has the second": (ledger(FIRST), nodes(), 1),
    "a freed line is taken before a higher line": (ledger(SECOND), nodes(), 0),
    "a line that a pending pod claims is not given to another pod": (ledger(CLAIMING), nodes(), 1),
    "a claim ends with the pod's deletion": (
        ledger(replace(CLAIMING, deleting_since="2026-11-21T01:00:00Z")),
        nodes(),
        0,
    ),
    "a terminating pod still holds its line": (ledger(TERMINATING), nodes(), 1),
    "a finished pod holds no line": (ledger(replace(FIRST, phase="Succeeded")), nodes(), 0),
    "a line whose GPU another workload holds is skipped": (ledger(OTHER_WORKLOAD), nodes(), 1),
    "a line whose node does not exist is skipped": (ledger(), nodes(node("node2"), node("node3")), 1),
    "a line whose node is not Ready is skipped": (
        ledger(),
        nodes(node("node1", ready=False), node("node2", unschedulable=True), node("node3")),
        2,
    ),
}


@pytest.mark.promise("index-9", "index-11", "index-17")
@pytest.mark.parametrize(("held", "known", "index"), TAKEN.values(), ids=TAKEN)
def test_a_pod_gets_the_lowest_feasible_line(held: Ledger, known: Nodes, index: int) -> None:
    """A line is feasible when it is free, no pending pod claims it, and its node and devices pass all filters."""
    decision = decided(replica("ddddd"), held, known)

    assert isinstance(decision, Bind)
    assert (decision.placement.index, decision.placement.value) == (index, str(index))
    assert decision.message.endswith(f"with GPU {index} (index {index})")


@pytest.mark.parametrize(("where", "index"), [("node2", 1), ("node4", None)])
def test_a_pod_of_a_daemon_set_takes_a_line_of_its_own_node(where: str, index: int | None) -> None:
    """Its controller names its node in an affinity, so a map serves only a DaemonSet whose nodes all have lines."""
    named = NodeSelectorTerm(fields=(NodeSelectorRequirement("metadata.name", "In", (where,)),))
    each = pod("", TEXT, owner=Owner("DaemonSet", "agent"), generate_name="agent-")
    decision = decided(replace(each, constraints=SchedulingConstraints(affinity=(named,))))

    assert (decision.placement.index if isinstance(decision, Bind) else None) == index


@pytest.mark.promise("index-6", "index-9")
def test_assumed_pods_hold_their_lines() -> None:
    """Three pods that are placed before the watch shows any of them get three lines."""
    held, taken = ledger(), []
    for suffix in ("aaaaa", "bbbbb", "ccccc"):
        pending = replica(suffix)
        decision = decided(pending, held)
        assert isinstance(decision, Bind)
        held.assume(pending, decision.placement)
        taken.append(decision.placement.index)

    assert taken == [0, 1, 2]


def test_a_bound_pod_keeps_its_index() -> None:
    """A new scheduler that lists the same pods gives the next pod the same line, in whatever order it lists them."""
    pods = [THIRD, on(replica("eeeee"), "node1", 0, "0")]
    for listed in (pods, pods[::-1]):
        decision = decided(replica("ddddd"), ledger(*listed))
        assert isinstance(decision, Bind)
        assert decision.placement.index == 1


NONE_FREE = {
    "the holder of the lowest line is named": (
        (THIRD, SECOND, FIRST),
        (
            "NoFreeIndex",
            "3 lines",
            "index 0",
            "default/web-5d9f7c-aaaaa",
            "index 1",
            "default/web-5d9f7c-bbbbb",
            "index 2",
            "default/web-5d9f7c-ccccc",
        ),
    ),
    "a terminating holder is named as terminating": (
        (TERMINATING, SECOND, THIRD),
        ("NoFreeIndex", text_of("if no index of the map is free, a terminating holder is named as such")),
    ),
    "a line that is only claimed has no holder": (
        (CLAIMING, SECOND, THIRD),
        ("NoFreeIndex", text_of("if no index of the map is free, what is only claimed is counted")),
    ),
    "no pod is named where all lines are only claimed": (
        tuple(replica(f"zzzz{n}", annotations={"agentaflow.gpu/index": str(n)}) for n in range(3)),
        ("NoFreeIndex", "3 lines"),
    ),
}


@pytest.mark.promise("index-12")
@pytest.mark.parametrize(("pods", "said"), NONE_FREE.values(), ids=NONE_FREE)
def test_a_pod_waits_for_a_free_index(pods: tuple[Pod, ...], said: tuple[str, ...]) -> None:
    """The message names the holder of the lowest line and a remedy; the end of any of the pods requeues the pod."""
    held = ledger(*pods)
    decision = decided(replica("ddddd"), held)

    assert isinstance(decision, Wait)
    says(decision.message, *said)
    assert all(held.forget(each.ref.uid) & decision.cured_by for each in pods)


@pytest.mark.promise("text-14")
@pytest.mark.parametrize(("lines", "more"), [(3, "; "), (4, ", and 1 more; "), (6, ", and 3 more; ")])
def test_at_most_three_holders_of_indices_are_named(lines: int, more: str) -> None:
    """The others are counted, and the topic has the first alone."""
    text = "".join(f"{index}=node1:{index}\n" for index in range(lines))
    pods = (on(replica(f"aaaa{index}", text), "node1", index, str(index)) for index in range(lines))
    decision = decided(replica("zzzzz", text), ledger(*pods))

    assert isinstance(decision, Wait)
    names = [f"default/web-5d9f7c-aaaa{index}" for index in range(3)]
    says(decision.message, "NoFreeIndex", f"{lines} lines", *names)
    assert f"index 0 is held by {names[0]}, index 1 by {names[1]}, index 2 by {names[2]}{more}" in decision.message
    assert decision.message.startswith(decision.topic)
    assert decision.topic.endswith(f" {names[0]}")


@pytest.mark.promise("index-13")
def test_a_pod_without_a_feasible_line_reports_the_lowest_free_line() -> None:
    """The event of its class requeues it for every line: it takes the line that becomes feasible first."""
    for repaired in (node("node2"), node("node3")):
        state = ClusterState(node("node2", ready=False), node("node3", unschedulable=True))
        for each in (OTHER_WORKLOAD, FIRST):
            state.ledger.apply(each)
        pending = replica("ddddd")
        decision = state.wait(pending)

        says(decision.message, "NodeNotReady", "kubectl describe node node2")
        line = pending.request.line
        assert line is not None
        assert {AnyIndexFreed(line.workload), exists("node2")} <= decision.cured_by
        state.apply_nodes(repaired)
        assert state.cluster.pop_events() & decision.cured_by
        assert state.ledger.forget(FIRST.ref.uid) & decision.cured_by


def test_kubeflows_masters_and_workers_are_one_workload() -> None:
    """Kubeflow numbers the replicas of each type from 0; the map gives every replica its own line."""
    owner = Owner("PyTorchJob", "train")
    master, worker = (
        pod(f"train-{kind}-0", TEXT, owner=owner, labels={"training.kubeflow.org/replica-type": kind})
        for kind in ("master", "worker")
    )
    decision = decided(worker, ledger(on(master, "node1", 0, "0")))

    assert isinstance(decision, Bind)
    assert decision.placement.index == 1


@pytest.mark.promise("index-7", "index-18")
def test_a_surge_pod_waits_for_a_line_of_the_same_map() -> None:
    """A new ReplicaSet of the same Deployment with the same map belongs to the same workload."""
    decision = decided(replica("ddddd", owner=NEW), ledger(FIRST, SECOND, THIRD))

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.NO_FREE_INDEX
    says(decision.message, "NoFreeIndex", "index 0", "default/web-5d9f7c-aaaaa", "maxUnavailable")


@pytest.mark.promise("index-18", "share-2")
def test_a_surge_pod_waits_for_a_gpu_of_a_changed_map() -> None:
    """A changed map is another workload, and the old pod still holds the GPU of its first line."""
    decision = decided(replica("ddddd", "0=node1:0", owner=NEW), ledger(FIRST, SECOND, THIRD))

    assert isinstance(decision, Wait)
    says(decision.message, "GpuHeld", "GPU 0", "node1", "default/web-5d9f7c-aaaaa")


@pytest.mark.promise("index-19")
def test_a_spare_line_lets_a_surge_pod_start() -> None:
    """The remedy in the message of NoFreeIndex is correct."""
    decision = decided(replica("ddddd", owner=NEW), ledger(FIRST, SECOND))

    assert isinstance(decision, Bind)
    assert decision.placement.index == 2


WORKLOADS = {
    "another Deployment": (replica("aaaaa", owner=Owner("ReplicaSet", "shop-5d9f7c")), 0),
    "another namespace": (replica("aaaaa", namespace="b"), 0),
    "the same map, formatted otherwise": (replica("ddddd", "# mine\n2=node3:2\n 0 = node1:0\n1=node2:1"), 1),
    "bare pods": (pod("run", TEXT, owner=None), 0),
}


@pytest.mark.parametrize(("pending", "index"), WORKLOADS.values(), ids=WORKLOADS)
def test_lines_are_counted_per_workload(pending: Pod, index: int) -> None:
    """Namespace, controller and parsed map identify a workload; another workload has all its lines free."""
    policy = Policy(sharing=Sharing.ANY)
    decision = decided(pending, ledger(FIRST, policy=policy), policy=policy)

    assert isinstance(decision, Bind)
    assert decision.placement.index == index


def test_the_bind_gate_requires_our_annotation() -> None:
    """A literal fits no line in advance: the pod is not bound, and the message names the value of the first line."""
    own = seeing(replica("ddddd"), container(None))
    decision = decided(own, policy=POLICY)

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.ENV_NOT_INJECTED
    assert "without CUDA_VISIBLE_DEVICES: " in decision.message


SPREAD = "0=node1:0\n1=node1:1\n2=node2:0"
CLAIM = VolumeClaim("default", "data", storage_class="local")


def storing(*claims: VolumeClaim, volume: str | None = None) -> Volumes:
    """Return volumes with these claims and, if given, one volume."""
    result = Volumes()
    result.class_applied(StorageClass("local", waits_for_consumer=True))
    for each in claims:
        result.claim_applied(each)
    if volume is not None:
        result.volume_applied(Volume(volume))
    return result


def test_a_line_is_reserved_while_its_volumes_are_provisioned() -> None:
    """The volume is provisioned on the line's node: the pod gets this line, and no other pod takes it before."""
    held, known = ledger(on(replica("aaaaa", SPREAD), "node1", 0, "0")), nodes()
    pending = replica("ddddd", SPREAD, claims=("data",))
    waiting = decide(pending, Cluster(held, known, storing(CLAIM), POLICY))
    assert isinstance(waiting, Wait)
    assert waiting.selection is not None
    assert waiting.reserve is not None
    assert (waiting.reason, waiting.selection.node, waiting.reserve[1]) == (Reason.VOLUME_NOT_BOUND, "node1", 1)

    held.reserve_index(pending.ref.uid, waiting.reserve)
    held.forget(FIRST.ref.uid)
    held.apply(pending)
    others = [decided(replica(name, SPREAD), held, known) for name in ("eeeee", "fffff")]
    provisioned = storing(replace(CLAIM, volume="pv-1", selected_node="node1"), volume="pv-1")
    placed = decide(pending, Cluster(held, known, provisioned, POLICY))

    assert [each.placement.index for each in others if isinstance(each, Bind)] == [0, 0]
    assert isinstance(placed, Bind)
    assert placed.placement.index == 1


def test_a_reserved_line_is_free_when_its_pod_drops_it() -> None:
    """The pod no longer waits for volumes, reserves another line, or is deleted."""
    pending = replica("ddddd")
    line = pending.request.line
    assert line is not None
    workload = line.workload
    held = ledger()
    held.reserve_index(pending.ref.uid, (workload, 0))
    decision = decided(replica("eeeee"), held)

    assert isinstance(decision, Bind)
    assert decision.placement.index == 1
    assert held.reserve_index(pending.ref.uid, None) == {AnyIndexFreed(workload)}
    assert held.reserved(pending.ref.uid) is None
    held.reserve_index(pending.ref.uid, (workload, 0))
    assert held.reserve_index(pending.ref.uid, (workload, 1)) == {AnyIndexFreed(workload)}
    assert held.apply(replace(pending, deleting_since="2026-11-21T01:00:00Z")) == {AnyIndexFreed(workload)}


def test_lines_of_one_node_have_one_reason() -> None:
    """A node that fails a node filter is filtered once for all its lines; the lowest line's message is reported."""
    text = "".join(f"{index}=node1:{index}\n" for index in range(2000)) + "9000=gone:0"
    for changed in (node("node1"), node("gone")):
        state = ClusterState(node("node1", ready=False))
        decision = state.wait(replica("ddddd", text))

        assert decision.reason is Reason.NODE_NOT_READY
        assert exists("node1") in decision.cured_by
        state.apply_nodes(changed)
        assert state.cluster.pop_events() & decision.cured_by


def test_a_node_with_two_names_is_filtered_once() -> None:
    """A map names the node by its name and by its alias: the reason is one, and events of both names requeue."""
    known = nodes(node("node1", ready=False, alias="gpus"))
    decision = decided(replica("ddddd", "0=gpus:0\n1=node1:1"), known=known)

    assert isinstance(decision, Wait)
    assert decision.reason is Reason.NODE_NOT_READY
    assert {exists("gpus"), exists("node1")} <= decision.cured_by
