"""Automatic placement in a cluster that changes, compared with a model that filters every node each time."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gpu_scheduler.core.decide import decide, filtering
from gpu_scheduler.core.decision import Bind, Wait
from gpu_scheduler.core.nodes import generations
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.constraints import SchedulingConstraints, Taint
from gpu_scheduler.core.pods.count_request import CountRequest, Strategy
from gpu_scheduler.core.pods.pod import ANY_ADDRESS, ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.core.strategies import candidates
from unit_tests.core.asking import ClusterState, asking, having, words
from unit_tests.core.build import bound, node, running
from unit_tests.core.naive_placement import BoundPod, NaiveCluster, PodRequest

if TYPE_CHECKING:
    from gpu_scheduler.core.cluster_events import ClusterEvent

GPU = "nvidia.com/gpu"
PORT = HostPort("TCP", ANY_ADDRESS, 80)
NAMES = ("node1", "node2", "node10")

DEVICES = st.builds(
    lambda model, memory, mig: Device(
        0, None, ("MIG-00000000-0000-0000-0000-000000000000",) if mig else (), model, memory
    ),
    st.sampled_from(["NVIDIA A100", "NVIDIA L4", ""]),
    st.sampled_from([None, 4000, 8000, 8000]),
    st.sampled_from([False] * 9 + [True]),
)
READINGS = st.builds(
    DeviceReading,
    st.sampled_from([0, 0, 3000, 8000]),
    st.sampled_from([0, 0, 40, 80, 81]),
    st.sampled_from([*Health, Health.HEALTHY, Health.HEALTHY]),
)


@st.composite
def some_node(draw: st.DrawFn) -> Node:
    """Draw a node; most nodes are Ready, healthy and without taints."""
    devices = draw(st.lists(DEVICES, max_size=4))
    plugin = draw(st.sampled_from([None, None, None, len(devices)]))
    rarely = st.sampled_from([False] * 7 + [True])
    allocatable = {"pods": draw(st.sampled_from([2, 9, 9])), "cpu": 4}
    return node(
        draw(st.sampled_from(NAMES)),
        inventory=Inventory(tuple(replace(device, index=index) for index, device in enumerate(devices))),
        readings=draw(st.dictionaries(st.integers(0, 3), READINGS, max_size=3)),
        ready=not draw(rarely),
        unschedulable=draw(rarely),
        stale=draw(rarely),
        taints=(Taint("a", "b", "NoSchedule"),) if draw(rarely) else (),
        labels={"zone": draw(st.sampled_from(["a", "b"]))},
        advertised=plugin,
        allocatable=allocatable if plugin is None else {**allocatable, GPU: plugin},
    )


REQUESTS = st.builds(
    PodRequest,
    st.builds(
        CountRequest,
        count=st.sampled_from([1, 1, 1, 2, 3]),
        memory=st.sampled_from([0, 0, 1000, 3000, 8000, 9000]),
        gpu_type=st.sampled_from(["", "", "", "a100"]),
    ),
    st.sampled_from(Strategy),
    sharing_any=st.sampled_from([False, False, True]),
    observer=st.sampled_from([False] * 7 + [True]),
    limit=st.sampled_from([0, 0, 1]),
    cpu=st.sampled_from([0, 1, 2]),
    port=st.sampled_from([False] * 7 + [True]),
    zone=st.sampled_from(["", "", "", "a"]),
)


@st.composite
def some_request(draw: st.DrawFn) -> PodRequest:
    """Draw a request whose parts agree: a shared one states its memory, and a limit is as large as the count."""
    pod_request = draw(REQUESTS)
    request = pod_request.request
    if request.memory:
        request = replace(request, exclusive=draw(st.booleans()))
    return replace(pod_request, request=request, limit=pod_request.limit * request.count)


def pod_of(pod_request: PodRequest, name: str) -> Pod:
    request = pod_request.request
    given: dict[str, object] = {
        "scheduling_strategy": pod_request.strategy,
        "exclusive": str(request.exclusive).lower(),
    }
    if request.memory:
        given["memory"] = request.memory
    if request.gpu_type:
        given["type"] = request.gpu_type
    if pod_request.sharing_any:
        given["sharing"] = "any"
    if pod_request.observer:
        given["observer"] = "true"
    requests = {resource: amount for resource, amount in (("cpu", pod_request.cpu), (GPU, pod_request.limit)) if amount}
    return asking(
        request.count,
        name,
        **given,
        others={
            "resource_request": ResourceRequest(requests, frozenset({PORT} if pod_request.port else ())),
            "constraints": SchedulingConstraints({"zone": pod_request.zone} if pod_request.zone else {}),
            "gpu_limits": (("main", pod_request.limit),) if pod_request.limit else (),
        },
    )


class CandidatesMachine(RuleBasedStateMachine):
    """`bound_pods` has the model's bound pods, `waiting` the pods that wait, each with its reason and decision."""

    @initialize(sharing=st.sampled_from([*Sharing, Sharing.SAME_WORKLOAD]), first=st.lists(some_node(), min_size=2))
    def start(self, sharing: Sharing, first: list[Node]) -> None:
        """Begin with some nodes."""
        self.sharing = sharing
        self.state = ClusterState(policy=Policy(sharing=sharing))
        self.nodes: dict[str, Node] = {}
        self.bound_pods: dict[str, BoundPod] = {}
        self.pods: dict[str, Pod] = {}
        self.waiting: dict[str, tuple[PodRequest, str, Wait]] = {}
        self.created = 0
        for each in first:
            self.apply_node(each)

    @property
    def model(self) -> NaiveCluster:
        return NaiveCluster(tuple(self.nodes.values()), tuple(self.bound_pods.values()), self.sharing)

    def name(self) -> str:
        self.created += 1
        return f"pod-{self.created}"

    @rule(value=some_node())
    def apply_node(self, value: Node) -> None:
        """Add a node, or show it in another state."""
        self.nodes[value.name] = value
        self.state.apply_nodes(value)
        self.check_events()

    @rule(which=st.sampled_from(NAMES))
    def forget_node(self, which: str) -> None:
        """Delete a node; its pods still exist."""
        self.nodes.pop(which, None)
        self.state.forget_node(which)
        self.check_events()

    @rule(pod_request=some_request(), confirmed=st.booleans())
    def create_pod(self, pod_request: PodRequest, confirmed: bool) -> None:  # noqa: FBT001
        """Create a pod: it gets the model's placement, or waits with the model's reason."""
        pod, expected = pod_of(pod_request, self.name()), self.model.place(pod_request)
        # As the loop does. It may be interrupted, and nodes change until the decision.
        for _ in islice(filtering(pod, self.state.cluster), len(pod.ref.name) % 3):
            pass
        decision = self.state.decide(pod)
        if isinstance(expected, str):
            assert isinstance(decision, Wait)
            assert decision.reason == expected.partition(",")[0]
            self.waiting[pod.ref.name] = pod_request, expected, decision
            return
        assert isinstance(decision, Bind)
        placement = decision.placement
        assert (placement.node, tuple(map(int, placement.devices))) == expected
        self.state.ledger.assume(pod, placement)
        pod = bound(pod, placement, f"2026-11-21T01:00:00.{self.created:06}Z")
        if confirmed:
            self.state.ledger.apply(pod)
        self.bind(pod, pod_request, () if pod_request.observer else placement.devices, confirmed=confirmed)

    def bind(self, pod: Pod, pod_request: PodRequest, devices: tuple[str, ...], *, confirmed: bool) -> None:
        name, request, node = pod.ref.name, pod_request.request, pod.node or ""
        number = self.created if confirmed else self.created + 10**6
        self.pods[name] = pod
        self.bound_pods[name] = BoundPod(
            name,
            node,
            number,
            devices,
            request.memory,
            not request.exclusive,
            pod_request.sharing_any,
            pod_request.limit,
            pod_request.cpu,
            pod_request.port,
        )
        self.check_events()

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 9))
    def confirm(self, number: int) -> None:
        """Apply a bound pod as the watch shows it, once or again."""
        name = sorted(self.pods)[number % len(self.pods)]
        self.state.ledger.apply(self.pods[name])
        number_of_bind = self.bound_pods[name].number
        self.bound_pods[name] = replace(self.bound_pods[name], number=number_of_bind % 10**6)
        self.check_events()

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 9))
    def end(self, number: int) -> None:
        """Delete a pod."""
        name = sorted(self.pods)[number % len(self.pods)]
        self.state.end(self.pods.pop(name))
        del self.bound_pods[name]
        self.check_events()

    @rule(where=st.sampled_from(NAMES), device=st.integers(0, 3))
    def bind_by_map(self, where: str, device: int) -> None:
        """Add a bound pod with a map, which holds a device by its index."""
        name = self.name()
        at = f"2026-11-21T01:00:00.{self.created:06}Z"
        pod = running(name, where, f"0={where}:{device}", annotations=words(index=0, assigned_at=at))
        self.state.ledger.apply(pod)
        pod_request = PodRequest(CountRequest(1), Strategy.BEST_FIT)
        self.bind(pod, pod_request, (str(device),), confirmed=True)

    @rule(where=st.sampled_from(NAMES), cpu=st.integers(0, 3))
    def apply_foreign_pod(self, where: str, cpu: int) -> None:
        """Add a foreign pod, or change its resource request."""
        name = f"other-{where}"
        self.state.ledger.apply_foreign_pod(
            ForeignPod(PodRef("other", name, name), where, ResourceRequest({"cpu": cpu} if cpu else {}))
        )
        self.bound_pods[name] = BoundPod(name, where, 0, cpu=cpu)
        self.check_events()

    def check_events(self) -> None:
        """The events requeue exactly the pods for which the model's result changed."""
        events = self.state.cluster.candidates.pop_events()
        expected: set[ClusterEvent] = set()
        for name, (pod_request, before, wait) in list(self.waiting.items()):
            if self.model.place(pod_request) != before:
                expected |= wait.cured_by
                del self.waiting[name]
        assert events == expected


class SharingMachine(CandidatesMachine):
    """The pods of most classes share an event: it requeues all that could be placed now, and others too."""

    def check_events(self) -> None:
        """No pod that could be placed stays waiting."""
        events = self.state.cluster.candidates.pop_events()
        for name, (pod_request, _, wait) in list(self.waiting.items()):
            if events & wait.cured_by:
                del self.waiting[name]
            else:
                assert isinstance(self.model.place(pod_request), str)


@pytest.fixture(autouse=True)
def _few_rankings_are_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep few rankings while the machine runs, so that it often drops rankings and builds them again."""
    machine = request.cls in {TestCandidatesMachine, TestSharingMachine}
    sharing = request.cls is TestSharingMachine
    with (
        patch.object(candidates, "MAX_WAITING", 1 if sharing else 16),
        patch.object(candidates, "MAX_WAITING_NODES", 0 if sharing else 40_000),
        patch.object(candidates, "MAX_RANKINGS", 2 if machine else 16),
        patch.object(candidates, "MAX_RANKED_NODES", 0),
        patch.object(generations, "_SLACK", 1 if machine else 64),
    ):
        yield


TestCandidatesMachine = CandidatesMachine.TestCase
TestSharingMachine = SharingMachine.TestCase


def kept(state: ClusterState) -> int:
    """Return the number of rankings."""
    return len(state.cluster.candidates._rankings)


def test_nodes_are_filtered_one_by_one_for_the_first_pod_of_a_class() -> None:
    """A node that changes before the decision is filtered again."""
    state = ClusterState(*(having(f"node{number}", 10, 20) for number in range(5)))
    steps = filtering(asking(memory=15), state.cluster)
    for _ in range(3):
        next(steps)
    for number in range(4):
        state.apply_nodes(having(f"node{number}", 10))
    state.forget_node("node3")
    assert len(list(steps)) == 2

    decision = state.decide(asking(memory=15))
    assert isinstance(decision, Bind)
    assert (decision.placement.node, decision.placement.devices) == ("node4", ("1",))
    assert list(filtering(asking(memory=15), state.cluster)) == []


def test_the_rankings_that_were_used_last_are_kept() -> None:
    """There are more equivalence classes than kept rankings, and the placements are the same as for one class alone."""
    state = ClusterState(having("node1", *range(1, 41)), strategy=Strategy.BEST_FIT)
    for memory in [*range(1, 41), *range(1, 41, 3), *range(40, 1, -1)]:
        decision = state.decide(asking(memory=memory))
        assert isinstance(decision, Bind)
        assert decision.placement.devices == (str(memory - 1),)
        assert kept(state) <= candidates.MAX_RANKINGS

    assert {each.of_devices.memory for each in state.cluster.candidates._rankings} == set(range(2, 18))


def test_a_cluster_of_few_nodes_keeps_more_rankings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that request other cpu or memory are in other equivalence classes: their rankings stay."""
    monkeypatch.setattr(candidates, "MAX_RANKED_NODES", 60)
    state = ClusterState(having("node1", *range(1, 41)), having("node2", 1), strategy=Strategy.BEST_FIT)
    for memory in range(1, 41):
        state.decide(asking(memory=memory))

    assert kept(state) == 60 // 2


def test_rankings_for_which_pods_wait_are_kept() -> None:
    """Only a node that fits a class requeues the pods of that class; afterwards the rankings are dropped."""
    state = ClusterState(having("node1", 1, labels={"gpus": "small"}))
    waits = {memory: state.wait(asking(memory=memory)) for memory in range(2, 42)}
    assert kept(state) == 40
    for memory in range(2, 42):
        state.apply_nodes(having("node2", memory))
        assert state.cluster.candidates.pop_events() == waits.pop(memory).cured_by
    state.decide(asking())

    assert kept(state) == candidates.MAX_RANKINGS


def test_rankings_of_deleted_pods_are_dropped() -> None:
    """No pod keeps the event, so no event is returned and the ranking is dropped."""
    state = ClusterState(having("node1", 1))
    for memory in range(2, 42):
        state.wait(asking(memory=memory))
    assert kept(state) <= candidates.MAX_RANKINGS + 1
    state.apply_nodes(having("node2", 100))

    assert state.cluster.candidates.pop_events() == frozenset()


def fill_node2(state: ClusterState) -> None:
    """Apply node2, which has a free GPU and no place for another pod."""
    state.ledger.apply_foreign_pod(ForeignPod(PodRef("other", "a", "a"), "node2", ResourceRequest()))
    state.apply_nodes(having("node2", 1, allocatable={"pods": 1}))


def test_a_pod_that_begins_to_wait_takes_no_event_from_others() -> None:
    """The reason changes before the second pod waits, with the new reason; the first pod is still requeued."""
    state = ClusterState(having("node1", 1), strategy=Strategy.BEST_FIT)
    state.place(asking(name="a"))
    first = state.wait(asking(name="b"))
    fill_node2(state)
    second = state.wait(asking(name="c"))

    assert (first.reason, second.reason) == (Reason.NOT_ENOUGH_GPUS, Reason.INSUFFICIENT_RESOURCES)
    assert state.cluster.candidates.pop_events() == first.cured_by


def test_names_of_deleted_nodes_are_forgotten() -> None:
    """Nodes are created and deleted for years: no list keeps the names of deleted nodes."""
    state = ClusterState(having("node1", 1))
    wait = state.wait(asking(2))
    for number in range(500):
        state.apply_nodes(having(f"gone-{number}", 1))
        assert state.cluster.candidates.pop_events() == frozenset()
        state.forget_node(f"gone-{number}")
        assert state.cluster.candidates.pop_events() == frozenset()
        state.decide(asking())
    assert all(len(ranking.diagnosis._failures) < 100 for ranking in state.cluster.candidates._rankings.values())
    state.apply_nodes(having("node2", 1, 1))

    assert state.cluster.candidates.pop_events() == wait.cured_by


def test_a_name_that_is_only_an_alias_is_no_node() -> None:
    """A pod on a deleted node marks the node's name as changed, and another node may have this name as its alias."""
    state = ClusterState(having("node1", 1, alias="gone"))
    state.decide(asking())
    state.ledger.apply(running("x", "gone", None, annotations=words(assigned_devices="0")))

    assert state.where(asking()) == "node1:0"
    assert state.wait(asking(name="b")).reason is Reason.NOT_ENOUGH_GPUS


def test_another_ledger_has_other_candidates() -> None:
    """A cluster with a replaced part does not keep the rankings of the replaced part."""
    state = ClusterState(having("node1", 1))
    state.place(asking())
    other = ClusterState(having("node1", 1))
    changed = replace(state.cluster, ledger=other.ledger)

    assert isinstance(decide(asking(name="b"), state.cluster), Wait)
    assert isinstance(decide(asking(name="b"), changed), Bind)
    restarted = replace(state.cluster, strategy=Strategy.BEST_FIT)
    assert restarted.candidates is not state.cluster.candidates


def crowded(state: ClusterState, monkeypatch: pytest.MonkeyPatch) -> list[Wait]:
    """Let pods of five classes wait, of which two have room for an event of their own."""
    monkeypatch.setattr(candidates, "MAX_WAITING", 2)
    monkeypatch.setattr(candidates, "MAX_WAITING_NODES", 0)
    requests = [{"resource_request": ResourceRequest({"cpu": cpu})} for cpu in range(1, 6)]
    return [state.wait(asking(name=f"pod-{number}", others=each)) for number, each in enumerate(requests)]


def requeued(state: ClusterState, waits: list[Wait]) -> list[bool]:
    events = state.cluster.candidates.pop_events()
    return [bool(events & wait.cured_by) for wait in waits]


def test_pods_of_many_classes_share_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a free GPU requeues them; one without, none. So a change costs a bounded number of classes (P2)."""
    state = ClusterState(having("node1", 1))
    state.place(asking(name="holder"))
    waits = crowded(state, monkeypatch)

    assert len({wait.cured_by for wait in waits}) == 3
    assert len(state.cluster.candidates._waiting) == 3
    state.apply_nodes(having("node1", 1, labels={"zone": "a"}))
    assert requeued(state, waits) == [False] * 5
    state.apply_nodes(having("node2", 1, allocatable={"pods": 9, "cpu": 2}))
    assert requeued(state, waits) == [True] * 5


def test_pods_of_many_classes_are_requeued_for_what_is_freed_beside_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU is free all the time, and a pod that ends releases the processor time that they need (P2)."""
    state = ClusterState(having("node1", 1, allocatable={"pods": 9, "cpu": 5}))
    other = ForeignPod(PodRef("other", "a", "a"), "node1", ResourceRequest({"cpu": 5}))
    state.ledger.apply_foreign_pod(other)
    waits = crowded(state, monkeypatch)
    state.ledger.forget_foreign_pod(other)

    assert requeued(state, waits) == [True] * 5


def test_pods_of_deleted_classes_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their pods are gone: pods of other classes have an event of their own again."""
    state = ClusterState(having("node1", 1))
    state.place(asking(name="holder"))
    crowded(state, monkeypatch)
    others = {"resource_request": ResourceRequest({"cpu": 7})}
    waits = [state.wait(asking(name=name, others=others)) for name in ("other", "fellow")]

    assert waits[0].cured_by == waits[1].cured_by
    assert [each.of_node.requests for each in state.cluster.candidates._waiting] == [frozenset({("cpu", 7)})]
