"""Explanations of pods with a map: all obstacles of a line, a row for each device, and the smallest remedy."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.decision import Bind, Refuse, Wait
from gpu_scheduler.core.explanation.explain import explain
from gpu_scheduler.core.explanation.explanation import DeviceAnswer, DeviceUse, Explanation, Holder, Remedy
from gpu_scheduler.core.filters.volumes import StorageClass, VolumeClaim, Volumes
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.reasons import REFUSED_AT_ADMISSION, RankedReason, Reason
from gpu_scheduler.core.refs import Owner, PodRef
from tests.messages import text_of
from unit_tests.core.build import (
    AT,
    POLICY,
    bound,
    claimed,
    container,
    device_id,
    isolated,
    ledger,
    limit,
    node,
    nodes,
    placed,
    pod,
    pools,
    running,
)
from unit_tests.core.situation import ORDER, TOO_LARGE, Situation

OTHER = Owner("StatefulSet", "other")
UNLISTED = text_of("explain: a GPU that is not in the inventory")
REPLICA: dict[str, Any] = {"owner": Owner("ReplicaSet", "web-1"), "generate_name": "web-1-"}
UNTIL = "2026-11-21T03:00:00+00:00"
NO_LINE = frozenset({Reason.MAP_INVALID, Reason.INDEX_UNKNOWN, Reason.INDEX_NOT_IN_MAP})
"""Faults of a text that names no line: what else is in the way is unknown."""
OF_TEXT = NO_LINE | {Reason.REQUEST_INVALID, Reason.UNSUPPORTED, Reason.ENV_CONFLICT, Reason.ENV_NOT_INJECTED}
HIDES: dict[RankedReason, frozenset[RankedReason]] = {
    (Reason.REQUEST_INVALID, False): frozenset({(Reason.UNSUPPORTED, False)}),
    (Reason.ENV_CONFLICT, False): frozenset({(Reason.ENV_NOT_INJECTED, False)}),
    TOO_LARGE: frozenset({(Reason.INSUFFICIENT_RESOURCES, False)}),
    (Reason.GPU_NOT_FOUND, False): frozenset({(Reason.GPU_UNHEALTHY, False)}),
    (Reason.NODE_NOT_FOUND, False): frozenset(
        each for each in ORDER if each[0] not in OF_TEXT | {Reason.NODE_NOT_FOUND}
    ),
}
"""One question has one answer: a fault hides others that are answers to the same question."""


def four(name: str, **others: Any) -> Node:
    return node(name, inventory=counted(4), **others)


def explained(
    pending: Pod,
    *held: Pod,
    known: Nodes | None = None,
    volumes: Volumes | None = None,
    ends: Mapping[str, str] | None = None,
    most: int = 20,
) -> Explanation:
    """Return the explanation of a pod; by default on node1 and node2 with four devices each."""
    known = known or nodes(four("node1"), four("node2"))
    return explain(pending, Cluster(ledger(*held, known=known), known, volumes or Volumes(), POLICY), ends or {}, most)


def reasons(found: Explanation) -> list[RankedReason]:
    """Return the ranked reasons of the pod itself and of its first place."""
    of_pod = [(each.reason, False) for each in found.of_pod]
    return of_pod + [each.ranked_reason for place in found.places[:1] for each in place.obstacles]


@pytest.mark.promise("explain-1")
@given(st.frozensets(st.sampled_from([each for each in ORDER if each[0] not in NO_LINE]), max_size=6))
def test_all_obstacles_are_named_once_and_the_first_is_the_decision(faults: frozenset[RankedReason]) -> None:
    """Any faults together: none of one question hides that of another."""
    situation = Situation(faults)
    found = explain(situation.pod(), situation.cluster(), {})
    named = reasons(found)

    hidden = frozenset().union(*(HIDES.get(each, frozenset()) for each in faults))
    assert sorted(named, key=ORDER.index) == sorted(faults - hidden, key=ORDER.index)
    if named:
        assert isinstance(found.decision, Wait | Refuse)
        assert found.decision.reason is named[0][0]
        assert isinstance(found.decision, Refuse) == (named[0][0] in REFUSED_AT_ADMISSION)
        assert found.remedy is not None
        assert {reason for step in found.remedy.steps for reason in step.reasons} == {reason for reason, _ in named}
        commands = [step.command for step in found.remedy.steps]
        assert all(commands) or not any(commands)
    else:
        assert isinstance(found.decision, Bind)
        assert found.remedy is None


@pytest.mark.parametrize("reason", sorted(NO_LINE))
def test_a_text_that_names_no_line_has_its_fault_alone(reason: Reason) -> None:
    """Which node and devices the author meant is unknown, so no line is explained, and none is proposed."""
    situation = Situation(frozenset({(reason, False), (Reason.NODE_NOT_READY, False)}))
    found = explain(situation.pod(), situation.cluster(), {})

    assert [each.reason for each in found.of_pod] == [reason]
    assert found.places == ()
    assert found.remedy is not None
    assert [(step.reasons, step.command) for step in found.remedy.steps] == [((reason,), "")]
    assert (found.remedy.node, found.remedy.index, found.remedy.line) == ("", None, "")


def test_a_pod_that_needs_no_placement_has_no_explanation() -> None:
    """It is bound, finished, gated, deleted, or of another scheduler."""
    assert explained(running("train-0", "node1")) == Explanation(None)


HELD = Holder(PodRef("default", "other-0", "uid-of-default/other-0"), AT, "", "")
ENDS = replace(HELD, until=UNTIL)
HOLDER = bound(pod("other-0", "0=node1:1", owner=OTHER), placed("node1", "1"))
DELETED = replace(HOLDER, deleting_since="2026-11-21T02:00:00Z")
DELETE = "kubectl delete pod -n default other-0"
SICK = {1: DeviceReading(health=Health.UNHEALTHY)}
UUIDS = Inventory((Device(0, uuid="GPU-00000000-0000-4000-8000-000000000000"), Device(1)))


def answer(device: str, use: DeviceUse, why: str = "", *holders: Holder, node: str = "node1") -> DeviceAnswer:
    return DeviceAnswer(node, device, use, why, holders)


ZERO, ONE, BOTH = (pod("train-0", f"0=node1:{devices}") for devices in ("0", "1", "0,1"))
Shown = tuple[Pod, tuple[Pod, ...], Mapping[str, str], tuple[DeviceAnswer, ...]]


def shown(
    pending: Pod, *rows: DeviceAnswer, held: tuple[Pod, ...] = (), ends: Mapping[str, str] | None = None
) -> Shown:
    return pending, held, ends or {}, rows


DEVICES = {
    "free devices": shown(BOTH, answer("0", DeviceUse.FREE), answer("1", DeviceUse.FREE)),
    "a held device names its holder, and since when it holds": shown(
        BOTH, answer("0", DeviceUse.FREE), answer("1", DeviceUse.HELD, "", HELD), held=(HOLDER,)
    ),
    "the holder's workload says until when": shown(
        ONE, answer("1", DeviceUse.HELD, "", ENDS), held=(HOLDER,), ends={"uid-of-default/other-0": UNTIL}
    ),
    "a holder that is being deleted": shown(
        ONE, answer("1", DeviceUse.HELD, "", replace(HELD, deleting_since="2026-11-21T02:00:00Z")), held=(DELETED,)
    ),
    "a pod that shares has no obstacle in the other that shares": shown(
        pod("train-0", "0=node1:1", annotations={"agentaflow.gpu/sharing": "any"}),
        answer("1", DeviceUse.FREE, "", HELD),
        held=(replace(HOLDER, request=replace(HOLDER.request, sharing_any=True)),),
    ),
    "an observer takes a held device": shown(
        pod("train-0", "0=node1:1", annotations={"agentaflow.gpu/observer": "true"}),
        answer("1", DeviceUse.FREE, "", HELD),
        held=(HOLDER,),
    ),
    "a device that the node does not have": shown(
        pod("train-0", "0=node1:7"), answer("7", DeviceUse.MISSING, UNLISTED)
    ),
    "devices of a node that does not exist": shown(
        pod("train-0", "0=node9:0"),
        answer("0", DeviceUse.MISSING, text_of("explain: a node that does not exist"), node="node9"),
    ),
}


@pytest.mark.promise("explain-2")
@pytest.mark.parametrize(("pending", "held", "ends", "rows"), DEVICES.values(), ids=DEVICES)
def test_each_device_of_the_line_has_a_row(
    pending: Pod, held: tuple[Pod, ...], ends: Mapping[str, str], rows: tuple[DeviceAnswer, ...]
) -> None:
    """Free, held by whom, since when and until when, or missing."""
    (place,) = explained(pending, *held, ends=ends).places

    assert place.devices == rows


GPU_1 = "GPU-11111111-0000-4000-8000-000000000000"
PUBLISHED = node("node1", inventory=Inventory((Device(0, UUIDS.devices[0].uuid), Device(1, GPU_1))))
ISOLATED = isolated("other-0", "0=node1:1", owner=OTHER)
OURS, TEAM = (
    AllocatedClaim(namespace, name, f"uid-of-{namespace}", (device_id("node1", GPU_1),))
    for namespace, name in (("default", ISOLATED.resource_claims[0]), ("team", "training"))
)
OF_CLAIM = Holder(PodRef("team", "training", "uid-of-team"), "", "", "", kind="ResourceClaim")
CLAIMS = {
    "a claim of others names itself": (ONE, (), TEAM, (OF_CLAIM,), DeviceUse.HELD, ""),
    "of a pod and its claim the pod": (
        ONE,
        (bound(ISOLATED, placed("node1", GPU_1)),),
        OURS,
        (HELD,),
        DeviceUse.HELD,
        DELETE,
    ),
    "a pod's own claim is no holder": (ISOLATED, (), OURS, (), DeviceUse.FREE, None),
}


@pytest.mark.promise("explain-2")
@pytest.mark.parametrize(("pending", "held", "claim", "holders", "use", "command"), CLAIMS.values(), ids=CLAIMS)
def test_a_device_names_the_claim_that_holds_it(  # noqa: PLR0913, PLR0917 - the columns of the table
    pending: Pod,
    held: tuple[Pod, ...],
    claim: AllocatedClaim,
    holders: tuple[Holder, ...],
    use: DeviceUse,
    command: str,
) -> None:
    """It has no end, and no pod whose deletion frees it."""
    known = nodes(PUBLISHED)
    cluster = Cluster(claimed(ledger(*held, known=known), known, claim), known, Volumes(), POLICY, pools=pools(known))
    found = explain(pending, cluster, {})

    (place,) = found.places
    assert place.devices == (answer("1", use, "", *holders),)
    assert (None if found.remedy is None else found.remedy.steps[0].command) == command


def test_an_unhealthy_device_has_its_row() -> None:
    """Whatever its holders are."""
    (place,) = explained(ONE, HOLDER, known=nodes(four("node1", readings=SICK))).places

    assert place.devices == (answer("1", DeviceUse.UNHEALTHY, text_of("explain: an unhealthy GPU"), HELD),)


def test_devices_that_a_plugin_chooses_have_no_row() -> None:
    """Nobody knows which ones they will be."""
    (place,) = explained(pod("train-0", "0=node1:0", **limit()), known=nodes(four("node1", advertised=4))).places

    assert place.devices == ()
    assert [each.reason for each in place.obstacles] == [Reason.NOT_ENOUGH_GPUS]


Step = tuple[tuple[Reason, ...], str, str]
"""Reasons, command and end."""


def step(reason: Reason, command: str, until: str = "") -> Step:
    return (reason,), command, until


def steps(remedy: Remedy | None) -> list[Step]:
    assert remedy is not None
    return [(each.reasons, each.command, each.until) for each in remedy.steps]


TAINTED = (Taint("dedicated", "ml", "NoSchedule"),)
Remedied = tuple[Pod, tuple[Pod, ...], Node, list[Step]]


def remedied(pending: Pod, node1: Node, *expected: Step, held: tuple[Pod, ...] = ()) -> Remedied:
    return pending, held, node1, [*expected]


REMEDIES = {
    "a cordoned node is uncordoned": remedied(
        ZERO, four("node1", unschedulable=True), step(Reason.NODE_UNSCHEDULABLE, "kubectl uncordon node1")
    ),
    "a taint is removed": remedied(
        ZERO,
        four("node1", taints=TAINTED),
        step(Reason.TAINT_NOT_TOLERATED, "kubectl taint node node1 dedicated:NoSchedule-"),
    ),
    "a label is written": remedied(
        pod("train-0", "0=node1:0", constraints=SchedulingConstraints(selector={"zone": "a"})),
        four("node1"),
        step(Reason.NODE_AFFINITY_MISMATCH, "kubectl label node node1 zone=a"),
    ),
    "the holder of the device is deleted": remedied(
        ONE, four("node1"), step(Reason.GPU_HELD, DELETE, UNTIL), held=(HOLDER,)
    ),
    "several obstacles take several steps, in the order of the reasons": remedied(
        ONE,
        four("node1", unschedulable=True, taints=TAINTED),
        step(Reason.TAINT_NOT_TOLERATED, "kubectl taint node node1 dedicated:NoSchedule-"),
        step(Reason.NODE_UNSCHEDULABLE, "kubectl uncordon node1"),
        step(Reason.GPU_HELD, DELETE, UNTIL),
        held=(HOLDER,),
    ),
    "a holder that is being deleted already needs no command": remedied(
        ONE, four("node1"), step(Reason.GPU_HELD, ""), held=(DELETED,)
    ),
    "holders in two namespaces are deleted by two commands": remedied(
        pod("train-0", "0=node1:1,2"),
        four("node1"),
        step(Reason.GPU_HELD, f"{DELETE} && kubectl delete pod -n ml job-0"),
        held=(HOLDER, bound(pod("job-0", "0=node1:2", namespace="ml", owner=OTHER), placed("node1", "2"))),
    ),
    "a node that is not Ready is waited for": remedied(
        ZERO, four("node1", ready=False), step(Reason.NODE_NOT_READY, "")
    ),
    "one pod that holds index and device is one step": remedied(
        pod("train-b", "1=node1:1", annotations={"agentaflow.gpu/index": "1"}, owner=None),
        four("node1"),
        ((Reason.INDEX_HELD, Reason.GPU_HELD), "kubectl delete pod -n default train-a", ""),
        held=(running("train-a", "node1", "1=node1:1", annotations={"agentaflow.gpu/index": "1"}, owner=None),),
    ),
    "a pod without its environment is deleted, and its controller makes it anew": remedied(
        pod("train-0", "0=node1:0", containers=(container(None),)),
        four("node1"),
        step(Reason.ENV_NOT_INJECTED, "kubectl delete pod -n default train-0"),
    ),
    "a bare pod without its environment must be created again": remedied(
        pod("train-0", "0=node1:0", containers=(container(None),), owner=None),
        four("node1"),
        step(Reason.ENV_NOT_INJECTED, ""),
    ),
}


@pytest.mark.promise("explain-3")
@pytest.mark.parametrize(("pending", "held", "node1", "expected"), REMEDIES.values(), ids=REMEDIES)
def test_the_remedy_has_steps_for_all_obstacles(
    pending: Pod, held: tuple[Pod, ...], node1: Node, expected: list[Step]
) -> None:
    """As a command where there is one, and with the time until which one may wait instead."""
    found = explained(pending, *held, known=nodes(node1), ends={"uid-of-default/other-0": UNTIL})

    assert steps(found.remedy) == expected
    assert found.remedy is not None
    assert {each.remedy for each in found.remedy.steps} <= {each.remedy for each in found.places[0].obstacles}


BY_UUID = node("node1", inventory=Inventory((Device(0, UUIDS.devices[0].uuid), Device(1, GPU_1))))
NO_GPU = "GPU-99999999-0000-4000-8000-000000000000"


def test_no_pod_holds_a_gpu_that_the_node_does_not_have() -> None:
    """Two pods hold GPUs of the node by number. The inventory has all UUIDs, so none of them is the one of the line."""
    first, second = running("a-0", "node1", "0=node1:0"), running("b-0", "node1", "0=node1:1")
    found = explained(pod("train-0", f"0=node1:{NO_GPU}", owner=OTHER), first, second, known=nodes(BY_UUID))

    (place,) = found.places
    assert place.devices == (answer(NO_GPU, DeviceUse.MISSING, UNLISTED),)
    assert [each.reason for each in place.obstacles] == [Reason.GPU_NOT_FOUND]
    assert steps(found.remedy) == [step(Reason.GPU_NOT_FOUND, "")]


def test_of_the_gpus_of_a_line_only_one_that_exists_is_held() -> None:
    """Its holder is an obstacle, but its end alone would not place the pod, so it is not to be deleted."""
    found = explained(pod("train-0", "0=node1:1,7"), HOLDER)

    (place,) = found.places
    assert [(each.reason, each.what) for each in place.obstacles] == [
        (Reason.GPU_NOT_FOUND, "cannot find GPU 7 on node node1: its inventory has GPUs 0 to 3"),
        (Reason.GPU_HELD, "GPU 1 of node1 is held by default/other-0"),
    ]
    assert steps(found.remedy) == [step(Reason.GPU_NOT_FOUND, ""), step(Reason.GPU_HELD, "")]


PLUGIN = four("node1", advertised=4, allocatable={"nvidia.com/gpu": 4})
HARMLESS: dict[str, tuple[Pod, tuple[Pod, ...], Node, list[Reason]]] = {
    "pods that name their GPUs in another way, of a node whose UUIDs are unknown": (
        pod("train-0", f"0=node1:{NO_GPU}"),
        (HOLDER, running("b-0", "node1", "0=node1:2", owner=OTHER)),
        four("node1"),
        [Reason.GPU_HELD],
    ),
    "a pod that names a GPU, for one whose GPU a device plugin chooses": (
        pod("train-0", "0=node1:0", **limit()),
        (HOLDER,),
        PLUGIN,
        [Reason.GPU_HELD],
    ),
    "a pod whose GPU a device plugin chose, for one that names a GPU": (
        ZERO,
        (running("b-0", "node1", "0=node1:0", owner=OTHER, **limit()),),
        PLUGIN,
        [Reason.GPU_HELD],
    ),
    "the holder of an unhealthy GPU": (
        ONE,
        (HOLDER,),
        four("node1", readings=SICK),
        [Reason.GPU_UNHEALTHY, Reason.GPU_HELD],
    ),
    "the holder of a GPU, if another of the line is unhealthy, and the node is closed besides": (
        BOTH,
        (running("b-0", "node1", "0=node1:0", owner=OTHER),),
        four("node1", readings=SICK, unschedulable=True, taints=TAINTED),
        [Reason.TAINT_NOT_TOLERATED, Reason.NODE_UNSCHEDULABLE, Reason.GPU_UNHEALTHY, Reason.GPU_HELD],
    ),
    "the holder of a GPU of a node that is not Ready": (
        ONE,
        (HOLDER,),
        four("node1", ready=False),
        [Reason.GPU_HELD, Reason.NODE_NOT_READY],
    ),
    "the holder of a GPU of the control plane": (
        ONE,
        (HOLDER,),
        four("node1", taints=(Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),)),
        [Reason.TAINT_NOT_TOLERATED, Reason.GPU_HELD],
    ),
    "the holder of a GPU of a node that is too small": (
        pod("train-0", "0=node1:1", resource_request=ResourceRequest({"cpu": 9000})),
        (HOLDER,),
        four("node1", allocatable={"cpu": 8000}),
        [Reason.INSUFFICIENT_RESOURCES, Reason.GPU_HELD],
    ),
    "the old pod of a rolling update, which has another map": (
        pod("other-1", "1=node1:1", owner=OTHER),
        (HOLDER,),
        four("node1"),
        [Reason.GPU_HELD],
    ),
}


@pytest.mark.parametrize(("pending", "held", "node1", "expected"), HARMLESS.values(), ids=HARMLESS)
def test_no_pod_is_to_be_deleted_whose_end_would_not_place_this_one(
    pending: Pod, held: tuple[Pod, ...], node1: Node, expected: list[Reason]
) -> None:
    """Nor is anything else done to the node: neither as a command nor in the words of a remedy."""
    found = explained(pending, *held, known=nodes(node1))

    assert steps(found.remedy) == [step(each, "") for each in expected]
    assert found.remedy is not None
    for each in found.remedy.steps:
        assert "delete" not in each.remedy
        assert "kubectl taint" not in each.remedy
        assert "kubectl uncordon" not in each.remedy
    assert isinstance(found.decision, Wait)
    assert "delete" not in found.decision.message


def test_nothing_is_deleted_for_a_gpu_that_a_pod_and_a_claim_hold() -> None:
    """The claim of others keeps one of the two GPUs when the pod is gone."""
    known = nodes(BY_UUID)
    claim = AllocatedClaim("team", "training", "uid-of-team", (device_id("node1", GPU_1),))
    first = running("a-0", "node1", "0=node1:0", owner=OTHER)
    cluster = Cluster(claimed(ledger(first, known=known), known, claim), known, Volumes(), POLICY)
    found = explain(BOTH, cluster, {})

    assert steps(found.remedy) == [step(Reason.GPU_HELD, "")]


def test_all_pods_that_have_the_ports_are_deleted() -> None:
    """One that is left has a port that the pod needs."""
    ports = [HostPort("TCP", ANY_ADDRESS, number) for number in (80, 81)]
    holders = [
        running(f"p{port.port}", "node1", None, owner=None, resource_request=ResourceRequest(ports=frozenset({port})))
        for port in ports
    ]
    asking = pod("train-0", "0=node1:0", resource_request=ResourceRequest(ports=frozenset(ports)))
    found = explained(asking, *holders)

    assert steps(found.remedy) == [step(Reason.PORT_IN_USE, "kubectl delete pod -n default p80 p81")]


def test_a_command_quotes_what_the_pods_author_wrote() -> None:
    """An operator copies the command: no text of a tenant may become another command."""
    hostile = SchedulingConstraints(selector={"zone": "a; kubectl delete ns prod"})
    found = explained(pod("train-0", "0=node1:0", constraints=hostile))

    assert steps(found.remedy) == [
        step(Reason.NODE_AFFINITY_MISMATCH, "kubectl label node node1 'zone=a; kubectl delete ns prod'")
    ]


LINES = {
    "another device of the same node": (ONE, (HOLDER,), "0=node1:0"),
    "as many devices as the line has": (pod("train-0", "0=node1:1,2"), (HOLDER,), "0=node1:0,2"),
    "of another node, if the node has too few": (pod("train-0", "0=node1:0,1,2,3"), (HOLDER,), "0=node2:0,1,2,3"),
    "the same devices of the node that the author probably meant": (pod("train-0", "0=nodee2:3"), (), "0=node2:3"),
    "other devices of that node, if these are not free": (pod("train-0", "0=nodee1:1"), (HOLDER,), "0=node1:0"),
    "any node, if no name is similar": (pod("train-0", "0=gpu-host:1"), (), "0=node1:0"),
    "nothing for a MIG device": (pod("train-0", "0=node1:MIG-41b3359c-e721-56e5-8009-12e5797ed514"), (HOLDER,), ""),
    "nothing if no node has as many": (pod("train-0", "0=node1:0,1,2,3,4"), (), ""),
}


@pytest.mark.promise("explain-4")
@pytest.mark.parametrize(("pending", "held", "line"), LINES.values(), ids=LINES)
def test_a_line_is_proposed_that_the_pod_could_have_now(pending: Pod, held: tuple[Pod, ...], line: str) -> None:
    """A pod whose map has that line is placed at once."""
    found = explained(pending, *held)

    assert found.remedy is not None
    assert found.remedy.line == line
    if line:
        assert isinstance(explained(pod("train-0", line), *held).decision, Bind)


@pytest.mark.promise("explain-4")
def test_no_line_is_proposed_on_a_node_that_is_closed() -> None:
    """Its devices are free, but the pod could not have them."""
    known = nodes(four("node1", unschedulable=True), four("node2", ready=False), four("node3"))
    found = explained(ONE, known=known)

    assert found.remedy is not None
    assert found.remedy.line == "0=node3:0"


def test_no_unhealthy_device_is_proposed() -> None:
    """Nor one that is divided into MIG devices."""
    divided = Device(2, mig_devices=("MIG-41b3359c-e721-56e5-8009-12e5797ed514",))
    known = nodes(node("node1", inventory=Inventory((Device(0), Device(1), divided, Device(3))), readings={0: SICK[1]}))
    found = explained(ONE, HOLDER, known=known)

    assert found.remedy is not None
    assert found.remedy.line == "0=node1:3"


MAP = "0=node1:0\n1=node1:1\n2=node2:0"


def test_a_pod_that_takes_any_line_has_all_free_lines_the_nearest_first() -> None:
    """Line 0 is held by a replica. Line 2 is nearer than line 1: a command opens it."""
    known = nodes(four("node1", readings=SICK), four("node2", unschedulable=True))
    replica = pod("web-1-xyz", MAP, **REPLICA)
    first = bound(pod("web-1-abc", MAP, **REPLICA), placed("node1", "0", 0))
    found = explained(replica, first, known=known)

    assert [(place.index, [each.reason for each in place.obstacles]) for place in found.places] == [
        (2, [Reason.NODE_UNSCHEDULABLE]),
        (1, [Reason.GPU_UNHEALTHY]),
    ]
    assert steps(found.remedy) == [step(Reason.NODE_UNSCHEDULABLE, "kubectl uncordon node2")]


def test_if_no_line_is_free_the_holders_of_all_lines_are_named() -> None:
    """The steps are those of the nearest line; the pod itself waits because no line is free.

    No running replica is to be deleted so that its twin starts: their controller would make it anew.
    """
    replica = pod("web-1-xyz", "0=node1:0", **REPLICA)
    first = bound(pod("web-1-abc", "0=node1:0", **REPLICA), placed("node1", "0", 0))
    found = explained(replica, first)

    assert [each.reason for each in found.of_pod] == [Reason.NO_FREE_INDEX]
    assert [each.reason for each in found.places[0].obstacles] == [Reason.INDEX_HELD, Reason.GPU_HELD]
    assert steps(found.remedy) == [step(Reason.INDEX_HELD, ""), step(Reason.GPU_HELD, "")]


def test_lines_that_are_claimed_leave_the_reason_of_the_pod() -> None:
    """A waiting pod with a static index claims the only line, and nothing else is in its way."""
    claims = pod("web-0", "0=node1:0", owner=REPLICA["owner"])
    found = explained(pod("web-1-xyz", "0=node1:0", **REPLICA), claims)

    assert [each.reason for each in found.of_pod] == [Reason.NO_FREE_INDEX]
    assert found.places[0].obstacles == ()
    assert found.remedy is not None
    assert steps(found.remedy) == [step(Reason.NO_FREE_INDEX, "")]


def test_a_line_that_is_reserved_for_the_pod_comes_first() -> None:
    """Its volume is being made there: the pod waits for it and for nothing else."""
    volumes = Volumes()
    volumes.class_applied(StorageClass("local", waits_for_consumer=True))
    volumes.claim_applied(VolumeClaim("default", "data", storage_class="local"))
    known = nodes(four("node1"), four("node2"))
    replica = pod("web-1-xyz", MAP, claims=("data",), **REPLICA)
    held = ledger(replica, known=known)
    assert replica.request.line is not None
    held.reserve_index(replica.ref.uid, (replica.request.line.workload, 2))
    found = explain(replica, Cluster(held, known, volumes, POLICY), {})

    assert isinstance(found.decision, Wait)
    assert found.decision.selection is not None
    assert found.decision.selection.node == "node2"
    assert {place.index for place in found.places} == {0, 1, 2}
    assert {each.reason for place in found.places for each in place.obstacles} == {Reason.VOLUME_NOT_BOUND}


def test_lines_beyond_the_most_are_counted_by_reason() -> None:
    """A map may have 8,000 lines."""
    text = "\n".join(f"{index}=node{1 + index % 2}:9" for index in range(50))
    known = nodes(four("node1"), four("node2", ready=False))
    found = explained(pod("web-1-xyz", text, **REPLICA), known=known, most=4)

    assert len(found.places) == 4
    assert found.others == ((Reason.GPU_NOT_FOUND, 46),)


def test_a_pod_that_can_be_placed_has_no_remedy() -> None:
    """The place where it would be bound comes first."""
    found = explained(ZERO)

    assert isinstance(found.decision, Bind)
    assert [(place.node, place.obstacles) for place in found.places] == [("node1", ())]
    assert found.remedy is None


def test_a_claimed_volume_on_another_node_is_freed_by_a_command() -> None:
    """The volume is provisioned for node2, and the line says node1."""
    volumes = Volumes()
    volumes.class_applied(StorageClass("local", waits_for_consumer=True))
    volumes.claim_applied(VolumeClaim("default", "data", storage_class="local", selected_node="node2"))
    found = explained(pod("train-0", "0=node1:0", claims=("data",)), volumes=volumes)

    command = "kubectl annotate pvc -n default data volume.kubernetes.io/selected-node-"
    assert steps(found.remedy) == [step(Reason.VOLUME_NOT_BOUND, command)]


def test_an_alias_on_two_nodes_is_left_on_one() -> None:
    """With a third node nobody knows which two labels to remove."""
    known = nodes(four("node1", alias="fast"), four("node2", alias="fast"))
    pending = pod("train-0", "0=fast:0")
    command = "kubectl label node node2 gpu-node-name-"

    assert steps(explained(pending, known=known).remedy) == [step(Reason.NODE_AMBIGUOUS, command)]

    known.apply(four("node3", alias="fast"))
    assert steps(explained(pending, known=known).remedy) == [step(Reason.NODE_AMBIGUOUS, "")]
