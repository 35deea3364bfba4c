"""Pods that start together: no one is bound until all lines can be had, and nobody else gets a line afterwards."""

from dataclasses import replace
from typing import Any

import pytest

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Decision, Refuse, Wait
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.core.explanation.explanation import Explanation
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.availability import node_devices
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.namespace_limits import Limit, NamespaceLimits
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.nodes.nodes import Nodes
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner
from tests.messages import says, text_of
from unit_tests.core.asking import ClusterState, asking, having
from unit_tests.core.build import POLICY, bound, decided, ledger, node, nodes, own, pod, running, seeing
from unit_tests.core.situation import PORT

START = "agentaflow.gpu/start"
TOGETHER = {START: "together"}
MAP = "0=node1:0\n1=node1:1\n2=node2:0\n"
FOUR = Inventory(tuple(Device(index) for index in range(4)))
CLUSTER = nodes(node("node1", inventory=FOUR), node("node2", inventory=FOUR))


def member(index: int, text: str = MAP, **others: Any) -> Pod:
    """Return a pod of the StatefulSet train, whose pods start together."""
    return pod(f"train-{index}", text, annotations=TOGETHER, **others)


def rival(index: int, text: str) -> Pod:
    """Return a pod of another StatefulSet whose pods start together."""
    return pod(f"rival-{index}", text, annotations=TOGETHER, owner=Owner("StatefulSet", "rival"))


def other(text: str) -> Pod:
    """Return a pod that starts alone, at the line of index 0."""
    return pod("other-0", text, owner=Owner("StatefulSet", "other"))


def ledger_of(*pods: Pod, known: Nodes = CLUSTER) -> Ledger:
    return ledger(*pods, known=known)


def bind(pending: Pod, held: Ledger, known: Nodes = CLUSTER) -> Pod:
    decision = decided(pending, held, known)
    assert isinstance(decision, Bind), decision
    held.assume(pending, decision.placement)
    after = bound(pending, decision.placement)
    held.apply(after)
    return after


def message(decision: Decision | None) -> str:
    """Return why the pod waits."""
    assert isinstance(decision, Wait), decision
    return decision.message


def ended(pending: Pod, held: Ledger) -> None:
    """Let the pod be gone."""
    assert held.forget(pending.ref.uid)


@pytest.mark.promise("together-1")
def test_nobody_is_bound_while_one_line_is_held() -> None:
    """GPU 0 of node2 is held: pods of all lines wait for its holder, and are tried again when it goes."""
    blocker = running("other-0", "node2", "0=node2:0\n", owner=None)
    held = ledger_of(blocker)

    waits = [decided(member(index), held, CLUSTER) for index in range(2)]
    freed = held.forget(blocker.ref.uid)
    for decision in waits:
        says(message(decision), "GpuHeld", "index 2", "GPU 0", "node2", "default/other-0")
        assert isinstance(decision, Wait)
        assert freed & decision.cured_by
    bind(member(0), held)


@pytest.mark.promise("together-1")
def test_pods_of_any_line_start_together_too() -> None:
    """A Deployment's pods take any line: none is taken before all can be had."""
    blocker = running("other-0", "node2", "0=node2:0\n", owner=None)
    held = ledger_of(blocker)
    replicas = [
        pod(f"web-{name}", MAP, annotations=TOGETHER, owner=Owner("ReplicaSet", "web"), generate_name="web-")
        for name in "abc"
    ]

    assert "because of index 2" in message(decided(replicas[0], held, CLUSTER))
    ended(blocker, held)
    for each in replicas:
        bind(each, held)
    assert {each.index for each in held} == {0, 1, 2}


@pytest.mark.promise("together-1")
def test_lines_that_share_gpus_of_known_uuids_start_together() -> None:
    """Each GPU is named by two lines, at another place of each."""
    text = "0=node2:0,2\n1=node2:1,3\n2=node2:1,2\n"
    known = Inventory(tuple(Device(index, f"GPU-0000000{index}-0000-4000-8000-000000000000") for index in range(4)))

    assert isinstance(decided(member(2, text), ledger_of(), nodes(node("node2", inventory=known))), Bind)


@pytest.mark.promise("together-2")
def test_after_the_first_nobody_else_gets_a_line() -> None:
    """Neither by map nor by strategy. The pods of the workload get their own."""
    held = ledger_of()
    bind(member(0), held)

    says(
        message(decided(other("0=node2:0\n"), held, CLUSTER)),
        "GpuHeld",
        text_of("a GPU is kept for pods that start together"),
    )
    counted = decided(asking(4, "counted"), held, CLUSTER)
    assert isinstance(counted, Wait)
    for index in (1, 2):
        bind(member(index), held)
    assert held.conflicts() == ()


@pytest.mark.promise("together-2")
def test_a_pod_that_goes_leaves_its_line_to_the_workload() -> None:
    """The last one frees all."""
    held = ledger_of()
    pods = [bind(member(index), held) for index in range(3)]

    ended(pods[1], held)
    assert isinstance(decided(other("0=node1:1\n"), held, CLUSTER), Wait)
    bind(member(1), held)
    for each in pods:
        ended(each, held)
    assert list(held.devices.held("node1")) == []
    assert held.differences(ledger_of()) == 0
    assert isinstance(decided(other("0=node1:1\n"), held, CLUSTER), Bind)


def kept(held: Ledger) -> dict[int | None, str]:
    """Return the kept lines: index → node."""
    return {each.index: each.node for each in held.kept_lines}


@pytest.mark.promise("together-2")
def test_the_lines_that_no_pod_has_are_kept_and_no_others() -> None:
    """A line that two pods have for a moment is kept when both are gone. What the last pod frees cures who waits."""
    held = ledger_of()
    first = bind(member(0), held)
    waits = decided(other("0=node2:0\n"), held, CLUSTER)
    assert isinstance(waits, Wait)
    assert kept(held) == {1: "node1", 2: "node2"}

    third = bind(member(2), held)
    twin = replace(third, ref=replace(third.ref, uid="uid-of-the-twin"))
    held.apply(twin)
    ended(twin, held)
    assert kept(held) == {1: "node1"}
    ended(third, held)
    assert kept(held) == {1: "node1", 2: "node2"}

    assert held.forget(first.ref.uid) & waits.cured_by
    assert kept(held) == {}


@pytest.mark.promise("together-2")
def test_a_kept_line_follows_the_name_of_its_node() -> None:
    """Its alias is given to another node."""
    with_alias, other_node = node("node9", inventory=FOUR, alias="big"), node("node8", inventory=FOUR)
    known = nodes(node("node1", inventory=FOUR), with_alias, other_node)
    held = ledger_of(known=known)
    bind(member(0, "0=node1:0\n1=big:0\n"), held, known)
    assert kept(held) == {1: "node9"}

    held.apply_node(replace(with_alias, alias=None))
    assert kept(held) == {}
    held.apply_node(replace(other_node, alias="big"))
    assert kept(held) == {1: "node8"}
    assert held.devices.holders_of("node8", 0)
    assert not held.devices.holders_of("node9", 0)


@pytest.mark.promise("together-5")
def test_of_two_workloads_that_want_each_others_gpus_one_starts() -> None:
    """The other waits for all of its own, and holds nothing meanwhile."""
    held = ledger_of()
    first, second = "0=node1:0\n1=node2:0\n", "0=node1:3\n1=node2:0\n2=node1:0\n"
    pods = [bind(member(0, first), held)]
    for index, why in (
        (0, "because of index 1: GPU 0 of node2 is held by StatefulSet default/train (line 1"),
        (2, "train-0"),
    ):
        assert why in message(decided(rival(index, second), held, CLUSTER))
    pods.append(bind(member(1, first), held))
    for each in pods:
        ended(each, held)
    bind(rival(0, second), held)


@pytest.mark.promise("together-5")
def test_a_pod_that_cannot_follow_says_that_the_others_run() -> None:
    """Node2 is cordoned between the first Binding and the last. What runs stays."""
    held = ledger_of()
    bind(member(0), held)
    closed = nodes(node("node1", inventory=FOUR), node("node2", inventory=FOUR, unschedulable=True))

    says(message(decided(member(2), held, closed)), "NodeUnschedulable")
    bind(member(1), held, closed)


@pytest.mark.promise("together-3")
def test_a_pod_without_the_annotation_of_the_binding_keeps_nothing() -> None:
    """Whoever may edit a pod would otherwise keep any GPU for it, with a map of the editor's choice."""
    edited = running("train-0", "node1", MAP, annotations={**TOGETHER, "agentaflow.gpu/assigned-devices": "0"})
    another = replace(edited.assignment, together="another map")

    for each in (edited, replace(edited, assignment=another)):
        assert isinstance(decided(other("0=node2:0\n"), ledger_of(each), CLUSTER), Bind)
    line = edited.request.line
    assert line is not None
    started = replace(edited, assignment=replace(edited.assignment, together=line.workload.map))
    assert isinstance(decided(other("0=node2:0\n"), ledger_of(started), CLUSTER), Wait)


@pytest.mark.promise("together-1")
@pytest.mark.parametrize(
    ("cpu", "pods", "missing"),
    [(1500, 2, ""), (2500, 2, "asks for 5 cpu, and the node has 4 in all"), (1, 1, "asks for room for 2 pods, and")],
)
def test_the_lines_of_one_node_need_room_for_all(cpu: int, pods: int, missing: str) -> None:
    """Two pods of node1 request 1.5 or 2.5 of its 4 CPUs each."""
    room = {"cpu": 4000, "pods": pods, "memory": 1 << 40}
    small = nodes(node("node1", inventory=FOUR, allocatable=room), node("node2", inventory=FOUR))
    request = replace(member(0).resource_request, requests={"cpu": cpu})
    decision = decided(replace(member(0), resource_request=request), ledger_of(known=small), small)

    if missing:
        found = message(decision)
        assert "because of index 1, one of 2 lines of node1: " in found
        assert missing in found
    else:
        assert isinstance(decision, Bind)


FORGED = "x\x1b[2K\nNormal  Scheduled  pod/a  assigned"
"""Ends the line of a listing and writes over it."""


@pytest.mark.parametrize("owner", [Owner(FORGED, "train"), Owner("StatefulSet", FORGED)], ids=["kind", "name"])
def test_a_victims_message_shows_a_forged_owner_in_quotes(owner: Owner) -> None:
    """The API server takes any text as kind and name of an owner; the pod of another tenant waits for its line (S4)."""
    held = ledger_of()
    bind(member(0, owner=owner), held)

    found = message(decided(other("0=node2:0\n"), held, CLUSTER))
    assert found.isprintable()
    says(found, "GpuHeld", r'"x\x1b[2K\nNormal  Scheduled  pod/a  assigned"', "line 2")


def test_owners_whose_names_have_slashes_are_told_apart() -> None:
    """Kind A with name b/C, and kind A/b with name C (S8)."""
    held = ledger_of()
    pods = []
    for number, owner in enumerate((Owner("A", "b/C"), Owner("A/b", "C"))):
        first = pod(f"a-{number}", "0=node1:\n1=node1:\n2=node2:\n", annotations=TOGETHER, owner=owner)
        pods.append(bind(replace(first, ref=replace(first.ref, uid=f"uid-{number}")), held))

    assert sum(1 for _ in held.kept_lines) == 4
    for each in pods:
        held.forget(each.ref.uid)
    assert list(held.kept_lines) == []


def test_a_port_of_the_host_fits_once_on_a_node() -> None:
    """Two lines name node1."""
    pending = member(0, resource_request=replace(member(0).resource_request, ports=frozenset({PORT})))

    says(message(decided(pending, ledger_of(), CLUSTER)), "PortInUse", "index 1", "2 lines", "node1")
    assert isinstance(
        decided(replace(pending, request=member(0, "0=node1:0\n1=node2:0\n").request), ledger_of(), CLUSTER), Bind
    )


GPUS = ("GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111")
MIGS = ("MIG-00000000-0000-0000-0000-00000000000a", "MIG-00000000-0000-0000-0000-00000000000b")
PARTED = Inventory((Device(0, GPUS[0], MIGS), Device(1, GPUS[1])))


@pytest.mark.promise("together-1")
@pytest.mark.parametrize(
    ("text", "sharing", "starts"),
    [
        ("0=node1:0\n1=node1:0\n", Sharing.SAME_WORKLOAD, True),
        ("0=node1:0\n1=node1:1,0\n", Sharing.SAME_WORKLOAD, True),
        ("0=node1:0\n1=node1:0\n", Sharing.NONE, False),
        (f"0=node1:{MIGS[0]}\n1=node1:{MIGS[1]}\n", Sharing.NONE, True),
        (f"0=node1:0,1\n1=node1:{MIGS[1]}\n", Sharing.NONE, False),
        (f"0=node2:0\n1=node2:{GPUS[1]}\n", Sharing.SAME_WORKLOAD, False),
    ],
)
def test_lines_that_exclude_each_other_never_start(text: str, sharing: Sharing, *, starts: bool) -> None:
    """Node2 has no inventory, so that its GPU 0 may be GPU-1."""
    known = nodes(node("node1", inventory=PARTED), node("node2"))
    policy = Policy(sharing=sharing)
    decision = decided(member(0, text), ledger(known=known, policy=policy), known, policy)

    assert isinstance(decision, Bind) == starts
    if not starts:
        assert "because of index 1 and another line of the map: " in message(decision)


@pytest.mark.promise("together-4")
def test_what_the_namespace_holds_counts_beside_the_lines() -> None:
    """It holds one GPU, and three more are too many. After the start, the lines count."""
    held = ledger_of(running("other-0", "node2", "0=node2:3\n", owner=None))
    limits = NamespaceLimits({"default": Limit(3)})
    cluster = Cluster(held, CLUSTER, Volumes(), POLICY, limits=limits)
    assert "cannot give 3 more GPUs to the 3 lines of its map" in message(decide(member(0), cluster))

    held.forget("uid-of-default/other-0")
    bind(member(0), held)
    assert "QuotaExceeded" in message(decide(other("0=node2:3\n"), cluster))
    assert isinstance(decide(member(1), cluster), Bind)


HELD_HERE = running("other-0", "node1", "0=node1:0\n", owner=None, annotations={"agentaflow.gpu/sharing": "any"})
LIMITS = {
    "each line counts all of its GPUs": ("0=node1:0,1\n1=node1:2,3\n", (), 4, ""),
    "and one fewer is too few": ("0=node1:0,1\n1=node1:2,3\n", (), 3, "cannot give 4 GPUs to the 2 lines"),
    "lines of two nodes add up": (MAP, (), 3, ""),
    "and may be too many": (MAP, (), 2, "which start together: namespace default may hold 2"),
    "a GPU of two lines counts once": ("0=node1:0\n1=node1:0\n", (), 1, ""),
    "the rest of them counts too": ("0=node1:0,1\n1=node1:1,2\n", (), 2, "cannot give 3 GPUs to the 2 lines"),
    "what its pods hold already counts once": ("0=node1:0\n1=node1:1\n", (HELD_HERE,), 2, ""),
    "beside the others": ("0=node1:1\n1=node1:2\n", (HELD_HERE,), 2, "cannot give 2 more GPUs to the 2 lines"),
}


@pytest.mark.promise("together-4")
@pytest.mark.parametrize(("text", "there", "limit", "missing"), LIMITS.values(), ids=LIMITS)
def test_the_limit_counts_each_gpu_of_the_lines_once(
    text: str, there: tuple[Pod, ...], limit: int, missing: str
) -> None:
    """Right at the limit they start; more than it allows in all never do, and the message says so."""
    limits = NamespaceLimits({"default": Limit(limit)})
    pending = pod("train-0", text, annotations={**TOGETHER, "agentaflow.gpu/sharing": "any"})
    decision = decide(pending, Cluster(ledger_of(*there), CLUSTER, Volumes(), POLICY, limits=limits))

    if missing:
        assert missing in message(decision)
    else:
        assert isinstance(decision, Bind)


@pytest.mark.promise("together-1")
def test_a_pod_that_waits_for_the_others_is_tried_again_when_one_of_them_is_bound() -> None:
    """An earlier leader may have bound it: this pod's own line is free, and it need not wait any longer."""
    held = ledger_of(running("other-0", "node2", "0=node2:0\n", owner=None))
    waits = decided(member(1), held, CLUSTER)
    assert isinstance(waits, Wait)

    seen = held.apply(bind(member(0), ledger_of()))

    assert seen & waits.cured_by
    bind(member(1), held)


@pytest.mark.promise("together-1")
def test_a_line_that_is_alone_on_its_node_is_not_counted() -> None:
    """The other two lines name another node."""
    small = nodes(node("node1", inventory=FOUR), node("node2", inventory=FOUR, allocatable={"cpu": 1000, "pods": 9}))
    request = replace(member(0).resource_request, requests={"cpu": 2000})

    said = message(decided(replace(member(0), resource_request=request), ledger_of(known=small), small))
    says(said, "InsufficientResources", "index 2")


@pytest.mark.promise("together-5")
def test_a_pod_whose_own_text_is_wrong_does_not_blame_the_others() -> None:
    """They run, and it could follow."""
    held = ledger_of()
    bind(member(0), held)
    decision = decided(seeing(member(1), *own("7")), held, CLUSTER)

    assert isinstance(decision, Refuse)
    says(decision.message, "EnvConflict", 'CUDA_VISIBLE_DEVICES="1"', '"main"')


@pytest.mark.promise("together-2")
def test_a_line_is_kept_from_pods_whose_nodes_were_ranked_before_the_start() -> None:
    """Its node is ranked anew for them when the line is kept, and when it is free again."""
    state = ClusterState(having("node1", 1, 1), having("node2", 1))
    first, counted = member(0, "0=node1:0\n1=node2:0\n"), asking(1, "counted")
    blocker = pod("blocker-0", "0=node1:1", owner=Owner("StatefulSet", "blocker"))
    state.place(blocker)
    ranked = state.decide(counted)
    assert isinstance(ranked, Bind)

    state.place(first)
    waits = state.wait(counted)
    assert waits.reason is Reason.NOT_ENOUGH_GPUS

    state.end(first)
    assert state.decide(counted) == ranked


def test_a_line_that_a_pod_has_already_counts_as_had() -> None:
    """The annotation is added to a StatefulSet that runs: its update makes one pod anew after the other."""
    old = [running(f"train-{index}", node_name, MAP) for index, node_name in ((0, "node1"), (1, "node1"))]
    held = ledger_of(*old)

    bind(member(2), held)
    ended(old[1], held)
    bind(member(1), held)


@pytest.mark.promise("together-2")
def test_a_node_that_comes_later_has_its_lines_kept() -> None:
    """By its alias too, and a rebuilt ledger has the same."""
    text = "0=node1:0\n1=big:0\n2=node1:1\n"
    both = nodes(node("node1", inventory=FOUR), node("node9", inventory=FOUR, alias="big"))
    first = bind(member(0, text), ledger_of(known=both), both)
    held = ledger_of(first, known=nodes(node("node1", inventory=FOUR)))
    assert not held.devices.holders_of("node9", 0)
    held.apply_node(node("node9", inventory=FOUR, alias="big"))

    assert [each.holder for each in held.devices.holders_of("node9", 0).values()] == [
        "StatefulSet default/train (line 1, to start together)"
    ]
    assert held.differences(ledger_of(first, known=both)) == 0
    held.apply_node(node("node1", inventory=FOUR, alias="another"))
    assert held.devices.holders_of("node1", 1), "the line has its name"
    held.apply_node(node("node8", inventory=FOUR, alias="big"))
    assert not held.devices.holders_of("node9", 0), "two nodes have the alias"
    held.forget_node("node8")
    assert held.devices.holders_of("node9", 0)
    assert held.forget_node("node9")
    assert not held.devices.holders_of("node9", 0)
    held.forget_node("node9")


def test_a_missing_node_is_named() -> None:
    """Before the start."""
    says(message(decided(member(0, "0=node1:0\n1=node7:0\n"), ledger_of(), CLUSTER)), "NodeNotFound", "index 1")


def test_bare_pods_with_one_map_start_together() -> None:
    """A kept line names them by their namespace."""
    held = ledger_of()
    bind(pod("one", MAP, annotations={**TOGETHER, "agentaflow.gpu/index": "0"}, owner=None), held)

    assert "held by pods of namespace default that have one map (line 2, to start together)" in message(
        decided(other("0=node2:0\n"), held, CLUSTER)
    )


def test_a_changed_map_waits_for_the_old_pods() -> None:
    """A rolling update to another map cannot go on: the message says what to do."""
    held = ledger_of()
    old = [bind(member(index), held) for index in range(3)]
    ended(old[2], held)
    text = MAP.replace("node2:0", "node2:0,1")

    assert "scale to 0 before a change of the map" in message(decided(member(2, text), held, CLUSTER))
    for each in old[:2]:
        ended(each, held)
    bind(member(2, text), held)


@pytest.mark.parametrize(
    ("pending", "named"),
    [
        (asking(1, start="together"), ("agentaflow.gpu/start",)),
        (pod(annotations={START: "at once"}), ("agentaflow.gpu/start", '"at once"', '"together"')),
        (
            pod(text="".join(f"{index}=node1:{index}\n" for index in range(257)), annotations=TOGETHER),
            ("257 lines", "256"),
        ),
        (
            pod(text="".join(f"{index}=node1:0,1,2,3,4,5,6,7,8\n" for index in range(228)), annotations=TOGETHER),
            ("2052 GPUs", "2048"),
        ),
        (pod(annotations={**TOGETHER, "agentaflow.gpu/observer": "true"}), ("observers",)),
        (pod(annotations=TOGETHER, gpu_limits=(("main", 2),)), ("nvidia.com/gpu",)),
    ],
)
def test_what_cannot_start_together_is_refused(pending: Pod, named: tuple[str, ...]) -> None:
    """The webhook refuses it by the same text."""
    decision = decided(pending, ledger_of(), CLUSTER)

    assert isinstance(decision, Refuse)
    says(decision.message, "RequestInvalid", *named)


def test_the_binding_says_which_map_is_kept() -> None:
    """Only for pods that start together."""
    for annotations, kept in ((TOGETHER, True), ({}, False)):
        decision = decided(pod("train-0", MAP, annotations=annotations), ledger_of(), CLUSTER)
        assert isinstance(decision, Bind)
        assert ("agentaflow.gpu/assigned-together" in decision.placement.annotations) == kept


def explained(pending: Pod, held: Ledger, known: Nodes = CLUSTER) -> Explanation:
    return explain(pending, Cluster(held, known, Volumes(), POLICY), {})


def test_an_explanation_has_every_line_that_is_waited_for() -> None:
    """With the holders, and the command that lets all pods start. No other line would help."""
    held = ledger_of(
        running("other-0", "node2", "0=node2:0\n", owner=None), running("other-1", "node1", "1=node1:1\n", owner=None)
    )
    found = explained(member(0), held)

    first, second = found.of_pod
    says(first.message, "GpuHeld", "index 1", "GPU 1", "node1")
    says(second.message, "GpuHeld", "index 2", "GPU 0", "node2")
    assert found.remedy is not None
    assert [step.command for step in found.remedy.steps] == [
        "kubectl delete pod -n default other-1",
        "kubectl delete pod -n default other-0",
    ]
    assert not found.remedy.line


def test_an_explanation_names_the_workload_for_which_a_line_is_kept() -> None:
    """It is no pod, so that no command deletes it."""
    held = ledger_of()
    bind(member(0), held)
    by_map = explained(other("0=node2:0\n"), held)
    by_count = explained(asking(4), held)

    (device,) = by_map.places[0].devices
    assert [(str(each.ref), each.line, each.kind) for each in device.holders] == [("default/train", 2, "StatefulSet")]
    for each in (by_map, by_count):
        assert each.remedy is not None
        assert [step.command for step in each.remedy.steps] == [""]


def test_listings_show_what_is_kept() -> None:
    """On a node with an inventory, and on one without."""
    held = ledger_of(known=(known := nodes(node("node1", inventory=FOUR), node("node2"))))
    bind(member(0), held, known)

    found = [
        (each.node.name, state.name, state.available) for each in node_devices(known, held) for state in each.devices
    ]
    assert found == [
        ("node1", "0", False),
        ("node1", "1", False),
        ("node1", "2", True),
        ("node1", "3", True),
        ("node2", "0", False),
    ]


@pytest.mark.promise("together-2")
def test_the_end_of_one_workload_leaves_the_lines_of_another() -> None:
    """Both name the same nodes."""
    held = ledger_of()
    first = bind(member(0, "0=node1:0\n1=node2:0\n"), held)
    bind(rival(0, "0=node1:1\n1=node2:1\n"), held)
    ended(first, held)

    assert isinstance(decided(other("0=node2:0\n"), held, CLUSTER), Bind)
    assert "StatefulSet default/rival (line 1" in message(decided(other("0=node2:1\n"), held, CLUSTER))
