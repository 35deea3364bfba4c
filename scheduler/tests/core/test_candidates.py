"""Automatic placement in a cluster that lives, against a model that looks at every node each time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from gpu_scheduler.core.decide import decide
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
from tests.core import by_hand
from tests.core.asking import World, asking, having, words
from tests.core.build import bound, node, running

if TYPE_CHECKING:
    from gpu_scheduler.core.cluster_events import ClusterEvent

GPU = "nvidia.com/gpu"
PORT = HostPort("TCP", ANY_ADDRESS, 80)
NAMES = ("node1", "node2", "node10")

CARDS = st.builds(
    lambda model, memory, sliced: Device(
        0, None, ("MIG-00000000-0000-0000-0000-000000000000",) if sliced else (), model, memory
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
    """A node that is mostly well."""
    cards = draw(st.lists(CARDS, max_size=4))
    plugin = draw(st.sampled_from([None, None, None, len(cards)]))
    rarely = st.sampled_from([False] * 7 + [True])
    allocatable = {"pods": draw(st.sampled_from([2, 9, 9])), "cpu": 4}
    return node(
        draw(st.sampled_from(NAMES)),
        inventory=Inventory(tuple(replace(card, index=index) for index, card in enumerate(cards))),
        readings=draw(st.dictionaries(st.integers(0, 3), READINGS, max_size=3)),
        ready=not draw(rarely),
        unschedulable=draw(rarely),
        stale=draw(rarely),
        taints=(Taint("a", "b", "NoSchedule"),) if draw(rarely) else (),
        labels={"zone": draw(st.sampled_from(["a", "b"]))},
        advertised=plugin,
        allocatable=allocatable if plugin is None else {**allocatable, GPU: plugin},
    )


ASKS = st.builds(
    by_hand.Ask,
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
def some_ask(draw: st.DrawFn) -> by_hand.Ask:
    """What goes together: who shares says how much, and a limit is as large as the count."""
    ask = draw(ASKS)
    request = ask.request
    if request.memory:
        request = replace(request, exclusive=draw(st.booleans()))
    return replace(ask, request=request, limit=ask.limit * request.count)


def pod_of(ask: by_hand.Ask, name: str) -> Pod:
    """The pod that asks for this."""
    request = ask.request
    given: dict[str, object] = {"scheduling_strategy": ask.strategy, "exclusive": str(request.exclusive).lower()}
    if request.memory:
        given["memory"] = request.memory
    if request.gpu_type:
        given["type"] = request.gpu_type
    if ask.sharing_any:
        given["sharing"] = "any"
    if ask.observer:
        given["observer"] = "true"
    requests = {resource: amount for resource, amount in (("cpu", ask.cpu), (GPU, ask.limit)) if amount}
    return asking(
        request.count,
        name,
        **given,
        others={
            "resource_request": ResourceRequest(requests, frozenset({PORT} if ask.port else ())),
            "constraints": SchedulingConstraints({"zone": ask.zone} if ask.zone else {}),
            "gpu_limits": (("main", ask.limit),) if ask.limit else (),
        },
    )


class Lives(RuleBasedStateMachine):
    """`live` is the model's list of bound pods; `waiting` who was told what."""

    @initialize(sharing=st.sampled_from([*Sharing, Sharing.SAME_WORKLOAD]), first=st.lists(some_node(), min_size=2))
    def start(self, sharing: Sharing, first: list[Node]) -> None:
        """A cluster with some nodes."""
        self.sharing = sharing
        self.world = World(policy=Policy(sharing=sharing))
        self.nodes: dict[str, Node] = {}
        self.live: dict[str, by_hand.Live] = {}
        self.pods: dict[str, Pod] = {}
        self.waiting: dict[str, tuple[by_hand.Ask, str, Wait]] = {}
        self.made = 0
        for each in first:
            self.show(each)

    @property
    def model(self) -> by_hand.Cluster:
        return by_hand.Cluster(tuple(self.nodes.values()), tuple(self.live.values()), self.sharing)

    def name(self) -> str:
        self.made += 1
        return f"pod-{self.made}"

    @rule(value=some_node())
    def show(self, value: Node) -> None:
        """A node comes, or is seen in another state."""
        self.nodes[value.name] = value
        self.world.show(value)
        self.hear()

    @rule(which=st.sampled_from(NAMES))
    def hide(self, which: str) -> None:
        """A node is gone; its pods are not, yet."""
        self.nodes.pop(which, None)
        self.world.hide(which)
        self.hear()

    @rule(ask=some_ask(), confirmed=st.booleans())
    def ask(self, ask: by_hand.Ask, confirmed: bool) -> None:  # noqa: FBT001
        """A pod comes: it gets what the model says, or waits with the word that the model says."""
        pod, expected = pod_of(ask, self.name()), self.model.place(ask)
        decision = self.world.decide(pod)
        if isinstance(expected, str):
            assert isinstance(decision, Wait)
            assert decision.reason == expected
            self.waiting[pod.ref.name] = ask, expected, decision
            return
        assert isinstance(decision, Bind)
        placement = decision.placement
        assert (placement.node, tuple(map(int, placement.devices))) == expected
        self.world.ledger.assume(pod, placement)
        pod = bound(pod, placement, f"2026-11-21T01:00:00.{self.made:06}Z")
        if confirmed:
            self.world.ledger.apply(pod)
        self.hold(pod, ask, () if ask.observer else placement.devices, confirmed=confirmed)

    def hold(self, pod: Pod, ask: by_hand.Ask, devices: tuple[str, ...], *, confirmed: bool) -> None:
        name, request, node = pod.ref.name, ask.request, pod.node or ""
        came = self.made if confirmed else self.made + 10**6
        self.pods[name] = pod
        self.live[name] = by_hand.Live(
            name,
            node,
            came,
            devices,
            request.memory,
            not request.exclusive,
            ask.sharing_any,
            ask.limit,
            ask.cpu,
            ask.port,
        )
        self.hear()

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 9))
    def confirm(self, number: int) -> None:
        """The watch shows what was bound, perhaps again."""
        name = sorted(self.pods)[number % len(self.pods)]
        self.world.ledger.apply(self.pods[name])
        came = self.live[name].came
        self.live[name] = replace(self.live[name], came=came % 10**6)
        self.hear()

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 9))
    def end(self, number: int) -> None:
        """A pod ends."""
        name = sorted(self.pods)[number % len(self.pods)]
        self.world.end(self.pods.pop(name))
        del self.live[name]
        self.hear()

    @rule(where=st.sampled_from(NAMES), device=st.integers(0, 3))
    def pin(self, where: str, device: int) -> None:
        """A pod with a map holds a card by its name."""
        name = self.name()
        at = f"2026-11-21T01:00:00.{self.made:06}Z"
        pod = running(name, where, f"0={where}:{device}", annotations=words(index=0, assigned_at=at))
        self.world.ledger.apply(pod)
        ask = by_hand.Ask(CountRequest(1), Strategy.BEST_FIT)
        self.hold(pod, ask, (str(device),), confirmed=True)

    @rule(where=st.sampled_from(NAMES), cpu=st.integers(0, 3))
    def crowd(self, where: str, cpu: int) -> None:
        """Another scheduler's pod is seen, or in another size."""
        name = f"other-{where}"
        self.world.ledger.apply_foreign_pod(
            ForeignPod(PodRef("other", name, name), where, ResourceRequest({"cpu": cpu} if cpu else {}))
        )
        self.live[name] = by_hand.Live(name, where, 0, cpu=cpu)
        self.hear()

    def hear(self) -> None:
        """Told are exactly those for whom the model has another answer than they were given."""
        news = self.world.cluster.candidates.news()
        told: set[ClusterEvent] = set()
        for name, (ask, before, wait) in list(self.waiting.items()):
            if self.model.place(ask) != before:
                told |= wait.cured_by
                del self.waiting[name]
        assert news == told


@pytest.fixture(autouse=True)
def _few_are_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a life, lists that are dropped and made anew are tried all the time."""
    lives = request.cls is TestLivesOfCandidates
    with (
        patch.object(candidates, "MAX_SHAPES", 2 if lives else 16),
        patch.object(candidates, "MAX_RANKED", 0),
        patch.object(generations, "_SLACK", 1 if lives else 64),
    ):
        yield


TestLivesOfCandidates = Lives.TestCase


def kept(world: World) -> int:
    """How many rankings there are."""
    return len(world.cluster.candidates._rankings)


def test_the_shapes_that_were_asked_for_last_are_kept() -> None:
    """More come than are kept; each finds what it would find alone."""
    world = World(having("node1", *range(1, 41)), strategy=Strategy.BEST_FIT)
    for memory in [*range(1, 41), *range(1, 41, 3), *range(40, 1, -1)]:
        decision = world.decide(asking(memory=memory))
        assert isinstance(decision, Bind)
        assert decision.placement.devices == (str(memory - 1),)
        assert kept(world) <= candidates.MAX_SHAPES

    assert {shape.kind.memory for shape in world.cluster.candidates._rankings} == set(range(2, 18))


def test_where_nodes_are_few_more_shapes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that differ in processor and memory differ in shape: their rankings are not made anew in turn."""
    monkeypatch.setattr(candidates, "MAX_RANKED", 60)
    world = World(having("node1", *range(1, 41)), having("node2", 1), strategy=Strategy.BEST_FIT)
    for memory in range(1, 41):
        world.decide(asking(memory=memory))

    assert kept(world) == 60 // 2


def test_shapes_for_which_somebody_waits_are_kept() -> None:
    """However many they are, each is told of the node that fits it, and of no other; then they are let go."""
    world = World(having("node1", 1, labels={"gpus": "small"}))
    waits = {memory: world.wait(asking(memory=memory)) for memory in range(2, 42)}
    assert kept(world) == 40
    for memory in range(2, 42):
        world.show(having("node2", memory))
        assert world.cluster.candidates.news() == waits.pop(memory).cured_by
    world.decide(asking())

    assert kept(world) == candidates.MAX_SHAPES


def test_nobody_who_is_gone_is_waited_for() -> None:
    """Who has nothing to be woken by is no longer told, nor kept."""
    world = World(having("node1", 1))
    for memory in range(2, 42):
        world.wait(asking(memory=memory))
    assert kept(world) <= candidates.MAX_SHAPES + 1
    world.show(having("node2", 100))

    assert world.cluster.candidates.news() == frozenset()


def test_all_who_wait_for_one_thing_are_told_once() -> None:
    """Pods of one shape have one wake; who asks again after news waits for the next."""
    world = World(having("node1", 1))
    pods = [asking(name=name) for name in "abc"]
    world.place(pods[0])
    first, second = map(world.wait, pods[1:])
    assert first.cured_by == second.cured_by
    assert world.cluster.candidates.news() == frozenset()

    world.end(pods[0])
    assert world.cluster.candidates.news() == first.cured_by
    assert world.cluster.candidates.news() == frozenset()
    world.place(pods[1])
    assert world.cluster.candidates.news() == frozenset()
    again = world.wait(pods[2])
    world.end(pods[1])
    assert world.cluster.candidates.news() == again.cured_by


def test_another_reason_is_news() -> None:
    """Who waits hears it; the same reason with other numbers is none."""
    world = World(having("node1", 1), strategy=Strategy.BEST_FIT)
    world.place(asking(name="a"))
    wait = world.wait(asking(name="b"))
    world.show(having("node2", 1, unschedulable=True), having("node3"))
    world.hide("node3")
    assert world.cluster.candidates.news() == frozenset()
    world.show(having("node2", 1, stale=True))
    assert world.cluster.candidates.news() == wait.cured_by
    wait = world.wait(asking(name="b"))
    assert wait.reason is Reason.GPU_UNHEALTHY
    world.hide("node2")
    assert world.cluster.candidates.news() == wait.cured_by
    wait = world.wait(asking(name="b"))
    assert wait.reason is Reason.NOT_ENOUGH_GPUS


def test_who_joins_those_who_wait_takes_no_news_from_them() -> None:
    """The reason changed before the second came, who hears it at once; the first is still told."""
    world = World(having("node1", 1), strategy=Strategy.BEST_FIT)
    world.place(asking(name="a"))
    first = world.wait(asking(name="b"))
    world.show(having("node2", 1, stale=True))
    second = world.wait(asking(name="c"))

    assert (first.reason, second.reason) == (Reason.NOT_ENOUGH_GPUS, Reason.GPU_UNHEALTHY)
    assert world.cluster.candidates.news() == first.cured_by


def test_names_that_are_gone_are_forgotten() -> None:
    """Nodes come and go for years: lists begin anew when most names in them are of nodes that are gone."""
    world = World(having("node1", 1))
    wait = world.wait(asking(2))
    for number in range(500):
        world.show(having(f"gone-{number}", 1))
        assert world.cluster.candidates.news() == frozenset()
        world.hide(f"gone-{number}")
        assert world.cluster.candidates.news() == frozenset()
        world.decide(asking())
    assert len(world.cluster.candidates._places) < 100
    world.show(having("node2", 1, 1))

    assert world.cluster.candidates.news() == wait.cured_by


def test_a_name_that_is_only_an_alias_is_no_node() -> None:
    """Who holds something on a node that is gone touches its name, and another node may bear that as its alias."""
    world = World(having("node1", 1, alias="gone"))
    world.decide(asking())
    world.ledger.apply(running("x", "gone", None, annotations=words(assigned_devices="0")))

    assert world.where(asking()) == "node1:0"
    assert world.wait(asking(name="b")).reason is Reason.NOT_ENOUGH_GPUS


def test_another_ledger_has_other_candidates() -> None:
    """Whoever changes a part of the cluster can't keep lists that were made of the old."""
    world = World(having("node1", 1))
    world.place(asking())
    fresh = World(having("node1", 1))
    changed = replace(world.cluster, ledger=fresh.ledger)

    assert isinstance(decide(asking(name="b"), world.cluster), Wait)
    assert isinstance(decide(asking(name="b"), changed), Bind)
    steered = replace(world.cluster, strategy=Strategy.BEST_FIT)
    assert steered.candidates is not world.cluster.candidates
