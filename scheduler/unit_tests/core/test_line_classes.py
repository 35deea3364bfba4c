"""What is remembered of lines that pods may take: decisions are those without a memory, and waiting costs nothing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpu_scheduler.core import line_classes
from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import ClassChanged, ClusterEvent, QuotaChanged
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind, Decision, Wait
from gpu_scheduler.core.filters.volumes import Volume, VolumeClaim
from gpu_scheduler.core.namespace_limits import Limit, NamespaceLimits
from gpu_scheduler.core.nodes import generations
from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import DeviceReading, Health, counted
from gpu_scheduler.core.pods.constraints import NodeSelectorRequirement, NodeSelectorTerm, SchedulingConstraints, Taint
from gpu_scheduler.core.pods.pod import ForeignPod, HostPort, Pod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.reasons import Reason
from gpu_scheduler.core.refs import Owner, PodRef
from gpu_scheduler.scheduler.dry_run import DryRun
from gpu_scheduler.scheduler.ports import InputKind
from unit_tests.core.asking import ClusterState, having
from unit_tests.core.build import device_slice, isolated, limit, node, pod, running
from unit_tests.core.test_isolated_pods import with_uuids
from unit_tests.steps import counted as counted_steps

OWNER = Owner("ReplicaSet", "web")
TEXTS = (
    "0=gpus:0\n1=node1:1\n2=gone:0",
    "1=node2:0,1\n2=gpus:1\n3=node2:0\n5=gone:1",
    "0=node1:0\n1=node1:1\n2=gpus:0\n3=node2:0,1\n4=gone:1\n5=node3:\n6=node3:0\n7=node1:0\n9=node3:5",
)
PORT = HostPort("TCP", "0.0.0.0", 80)  # noqa: S104 - every address of the host


def replica(uid: str, text: str = TEXTS[-1], **others: Any) -> Pod:
    """Return a pod that takes any line of the map."""
    found = pod("web", text, **{"generate_name": "web-", "owner": OWNER, **others})
    return replace(found, ref=replace(found.ref, name=f"web-{uid}", uid=uid))


TEMPLATES: tuple[dict[str, Any], ...] = (
    {},
    {"namespace": "limited"},
    {"namespace": "limited", "annotations": {"agentaflow.gpu/sharing": "any"}},
    {"resource_request": ResourceRequest({"cpu": 2}, frozenset({PORT}))},
    {"constraints": SchedulingConstraints({"zone": "a"})},
    {"annotations": {"agentaflow.gpu/sharing": "any"}},
    {"annotations": {"agentaflow.gpu/observer": "true"}, "namespace": "limited"},
    {"annotations": {"agentaflow.gpu/start": "together"}},
    {"claims": ("data",)},
    limit(1),
)
NAMES = ("node1", "node2", "node3", "gpus")
GOOD: dict[str, Any] = {}
STATES: tuple[dict[str, Any], ...] = (
    GOOD,
    {"ready": False},
    GOOD,
    {"unschedulable": True},
    {"inventory": None},
    {"inventory": counted(1)},
    {"inventory": counted(6)},
    {"cordons": (Cordon("0"),)},
    {"readings": {1: DeviceReading(health=Health.UNHEALTHY)}},
    {"labels": {"zone": "a"}},
    {"labels": {"zone": "a"}, "ready": False},
    {"taints": (Taint("dedicated", "", "NoSchedule"),)},
    {"allocatable": {"pods": 1}},
    {"allocatable": {"pods": 9, "cpu": 3, "nvidia.com/gpu": 1}, "advertised": 1},
    {"allocatable": {"pods": 9, "cpu": 3}},
)
HOLDERS = st.sampled_from(["a", "limited"])
ALIASES = st.sampled_from([None, "gpus", "gpus", "gone"])


class LineClassesMachine(RuleBasedStateMachine):
    """A cluster whose classes are kept, and pods that wait for their events."""

    def __init__(self) -> None:
        """Start with three nodes whose devices are held."""
        super().__init__()
        self.state = ClusterState(
            *(node(name, inventory=counted(2), alias="gpus" if name == "node3" else None) for name in NAMES[:3])
        )
        self.cluster = self.state.cluster
        self.own: list[str] = []
        self.waiting: dict[str, tuple[Pod, Wait]] = {}
        self.made = 0
        self.text = ""
        self.templates: tuple[dict[str, Any], ...] = ()
        for name in NAMES[:3]:
            self.hold(name, "0,1", "a")
        self.set_limit(1)

    def fresh(self, given: Pod) -> Decision | None:
        """Decide in a cluster with the same objects, in which no pod was decided before."""
        state, limits = self.state, self.cluster.limits
        return decide(given, Cluster(state.ledger, state.nodes, state.volumes, self.cluster.policy, limits=limits))

    @initialize(text=st.sampled_from(TEXTS), templates=st.tuples(*[st.sampled_from(TEMPLATES)] * 2))
    def choose(self, text: str, templates: tuple[dict[str, Any], ...]) -> None:
        """Choose one map, and two classes of its pods."""
        self.text, self.templates = text, templates

    def new(self, which: int) -> Pod:
        self.made += 1
        return replica(f"uid-{self.made}", self.text, **self.templates[which])

    def happened(self, *events: frozenset[ClusterEvent]) -> None:
        """Pods that could be placed now are requeued."""
        of_classes = self.cluster.pop_events()
        for uid, (given, wait) in list(self.waiting.items()):
            if wait.cured_by & of_classes.union(*events):
                del self.waiting[uid]
            else:
                assert not isinstance(self.fresh(given), Bind), given

    def compared(self, given: Pod) -> Decision | None:
        """Return the decision. It is that of a cluster that remembers nothing."""
        fresh, kept = self.fresh(given), decide(given, self.cluster)
        assert plain(kept) == plain(fresh)
        return kept

    @invariant()
    def the_first_class_is_decided_after_each_change(self) -> None:
        """The other class sees many changes at once."""
        if self.templates:
            self.compared(self.new(0))

    @rule(which=st.sampled_from([0, 1]), assumed=st.booleans())
    def decide(self, which: int, assumed: bool) -> None:  # noqa: FBT001
        """Decide on a pod, and assume it if it can be placed."""
        given = self.new(which)
        kept = self.compared(given)
        if isinstance(kept, Wait):
            self.waiting[given.ref.uid] = given, kept
            if kept.reserve is not None:
                self.happened(self.state.ledger.reserve_index(given.ref.uid, kept.reserve))
        elif isinstance(kept, Bind) and assumed:
            self.own.append(given.ref.uid)
            self.happened(self.state.ledger.assume(given, kept.placement))

    @rule(name=st.sampled_from(NAMES), alias=ALIASES, others=st.sampled_from(STATES))
    def apply_node(self, name: str, alias: str | None, others: dict[str, Any]) -> None:
        """Add or change a node."""
        value = node(name, **{"inventory": counted(2), "alias": alias, **others})
        self.happened(self.state.nodes.apply(value), self.state.ledger.apply_node(value))

    @rule(name=st.sampled_from(NAMES))
    def forget_node(self, name: str) -> None:
        """Delete a node."""
        self.happened(self.state.nodes.forget(name), self.state.ledger.forget_node(name))

    @rule(name=st.sampled_from(NAMES), device=st.sampled_from(["0", "1", "0,1"]), namespace=HOLDERS)
    def hold(self, name: str, device: str, namespace: str) -> None:
        """Bind a pod of another workload."""
        found = running(f"other-{name}", name, f"0={name}:{device}", namespace=namespace, owner=Owner("Job", "other"))
        self.happened(self.state.ledger.apply(found))

    @rule(name=st.sampled_from(NAMES), namespace=HOLDERS)
    def end_holder(self, name: str, namespace: str) -> None:
        """End it."""
        self.happened(self.state.ledger.forget(f"uid-of-{namespace}/other-{name}"))

    @rule(number=st.integers(0, 20))
    def end(self, number: int) -> None:
        """End a pod that was placed."""
        if self.own:
            self.happened(self.state.ledger.forget(self.own.pop(number % len(self.own))))

    @rule(index=st.integers(0, 7), ends=st.booleans())
    def claim(self, index: int, ends: bool) -> None:  # noqa: FBT001
        """Create or delete a pending pod of the workload that can have this line alone."""
        found = replica(f"claims-{index}", annotations={"agentaflow.gpu/index": str(index)})
        ledger = self.state.ledger
        self.happened(ledger.forget(found.ref.uid) if ends else ledger.apply(found))

    @rule(name=st.sampled_from(NAMES), cpu=st.integers(0, 3), port=st.booleans())
    def apply_foreign_pod(self, name: str, cpu: int, port: bool) -> None:  # noqa: FBT001
        """Add a pod of another scheduler, or change what it takes."""
        request = ResourceRequest({"cpu": cpu} if cpu else {}, frozenset({PORT} if port else ()))
        ref = PodRef("other", name, f"foreign-{name}")
        self.happened(self.state.ledger.apply_foreign_pod(ForeignPod(ref, name, request)))

    @rule(devices=st.sampled_from([None, 0, 1, 2]))
    def set_limit(self, devices: int | None) -> None:
        """Limit the namespace."""
        limits = NamespaceLimits({"limited": Limit(devices)})
        self.cluster = self.cluster.limited(limits)
        self.happened(frozenset({QuotaChanged("limited")}))

    @rule(volume=st.sampled_from([None, "pv-1"]))
    def set_volume(self, volume: str | None) -> None:
        """Bind the claim to a volume, or not."""
        events = self.state.volumes.claim_applied(VolumeClaim("default", "data", volume=volume))
        self.happened(events, self.state.volumes.volume_applied(Volume("pv-1")))


@pytest.fixture(autouse=True)
def _little_is_remembered(request: pytest.FixtureRequest) -> Iterator[None]:
    """While the machine runs, classes are often dropped, and changes of nodes forgotten."""
    machine = request.cls is TestLineClassesMachine
    with (
        patch.object(line_classes, "MAX_CLASSES", 4 if machine else line_classes.MAX_CLASSES),
        patch.object(line_classes, "MAX_EVENT_CHECKS", 2 if machine else line_classes.MAX_EVENT_CHECKS),
        patch.object(generations, "_SLACK", 1 if machine else 64),
    ):
        yield


TestLineClassesMachine = LineClassesMachine.TestCase


def plain(decision: Decision | None) -> object:
    """Return the decision without the events that differ: each cluster numbers its classes."""
    if not isinstance(decision, Wait):
        return decision
    events = [each for each in decision.cured_by if not isinstance(each, ClassChanged | QuotaChanged)]
    return replace(decision, cured_by=frozenset(events))


LINES = 1_000


def crowded(lines: int = LINES, gpus: int = 8) -> tuple[ClusterState, Pod]:
    """Return a cluster whose GPUs are all held, and a pod whose map has a line for each."""
    state = ClusterState(*(having(f"n{number}", *(40960,) * gpus) for number in range(-(-lines // gpus))))
    places = [f"n{number // gpus}:{number % gpus}" for number in range(lines)]
    for place in places:
        job = Owner("Job", place.replace(":", "-"))
        state.ledger.apply(running(f"{job.name}-0", place.partition(":")[0], f"0={place}", owner=job))
    return state, replica("first", "".join(f"{index}={place}\n" for index, place in enumerate(places)))


def named(given: Pod, name: str) -> Pod:
    return replace(given, ref=replace(given.ref, name=name, uid=name))


def free(state: ClusterState, place: str) -> frozenset[ClusterEvent]:
    """End the pod that holds this GPU. Return all cluster events."""
    return state.ledger.forget(f"uid-of-default/{place.replace(':', '-')}-0") | state.cluster.pop_events()


def test_pods_that_wait_for_lines_of_one_map_share_one_event() -> None:
    """They wait for a handful of events, however many lines the map has (P1)."""
    state, given = crowded()
    waits = [state.wait(named(given, name)) for name in ("a", "b")]
    events = [{each for each in wait.cured_by if isinstance(each, ClassChanged)} for wait in waits]

    assert waits[0].reason is Reason.GPU_HELD
    assert events[0] == events[1]
    assert len(events[0]) == 1
    assert len(waits[0].cured_by) < 8
    assert free(state, "n77:5") & events[0]
    assert not state.cluster.pop_events()


def test_a_waiting_pod_costs_the_same_for_a_long_map() -> None:
    """This holds for each decision but the first, and for the events of a changed node (P1)."""

    def cost(lines: int) -> tuple[int, int, int]:
        state, given = crowded(lines)
        waits = [state.wait(given)]
        state.cluster.pop_events()
        again = counted_steps(lambda: waits.append(state.wait(named(given, "b")))).lines
        freed = counted_steps(lambda: free(state, "n5:5")).lines
        return again, freed, counted_steps(lambda: state.place(named(given, "c"))).lines

    for long, short in zip(cost(LINES), cost(100), strict=True):
        assert long <= 1.3 * short


def test_a_change_that_cures_nothing_requeues_nobody() -> None:
    """The node has a line of the map, and none of its lines begins to fit."""
    state, given = crowded(16)
    state.wait(given)
    state.apply_nodes(having("n1", *(40960,) * 8, labels={"zone": "a"}))
    state.apply_nodes(having("n7", 40960))

    assert state.cluster.pop_events() == frozenset()


def test_a_change_of_a_node_whose_line_another_pod_claims_requeues_nobody() -> None:
    """The map calls the node by its alias. The end of the claim requeues them."""
    state = ClusterState(having("n0", *(40960,) * 2, alias="gpus"))
    for device in (0, 1):
        job = Owner("Job", f"gpus-{device}")
        state.ledger.apply(running(f"gpus-{device}-0", "n0", f"0=n0:{device}", owner=job))
    given = replica("a", "0=gpus:0\n1=gpus:1")
    wait = state.wait(given)
    claim = replica("b", "0=gpus:0\n1=gpus:1", annotations={"agentaflow.gpu/index": "0"})
    state.ledger.apply(claim)
    state.apply_nodes(having("n0", *(40960,) * 2, alias="gpus", labels={"zone": "a"}))

    assert not state.cluster.pop_events() & wait.cured_by
    assert state.ledger.forget(claim.ref.uid) & wait.cured_by


def test_a_line_that_fitted_stays_open_when_its_node_changes() -> None:
    """The pod that got it was not bound: the next one gets it."""
    state, given = crowded(8)
    free(state, "n0:3")
    assert isinstance(decide(given, state.cluster), Bind)
    state.apply_nodes(having("n0", *(40960,) * 8, labels={"zone": "a"}))

    assert isinstance(decide(named(given, "b"), state.cluster), Bind)


def test_lines_beyond_the_bound_are_requeued_without_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """One change may open more lines than are checked at once (P1)."""
    monkeypatch.setattr(line_classes, "MAX_EVENT_CHECKS", 1)
    state, given = crowded(16)
    wait = state.wait(given)
    state.apply_nodes(having("n1", *(40960,) * 8, labels={"zone": "a"}))

    assert state.cluster.pop_events() & wait.cured_by


def test_one_decision_checks_a_bounded_number_of_lines() -> None:
    """The pod is requeued until all lines are checked, and gets the only one that fits (P1)."""
    state, given = crowded(100)
    state.ledger.forget("uid-of-default/n11-7-0")
    cluster = replace(state.cluster, line_checks=10)
    decisions = []
    for _ in range(10):
        decision = decide(given, cluster)
        decisions.append(decision)
        assert not isinstance(decision, Wait) or cluster.pop_events() & decision.cured_by

    assert [isinstance(each, Bind) for each in decisions] == [False] * 9 + [True]


def test_pods_whose_class_is_dropped_are_requeued(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for one class: nothing is remembered of the other."""
    monkeypatch.setattr(line_classes, "MAX_CLASSES", 1)
    state, given = crowded(8)
    wait = state.wait(given)
    other = state.wait(named(replica("b", "0=n0:0"), "b"))

    assert state.cluster.pop_events() & wait.cured_by
    assert not state.cluster.pop_events() & other.cured_by


def test_a_class_for_which_no_pod_waits_is_dropped_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is to be requeued."""
    monkeypatch.setattr(line_classes, "MAX_CLASSES", 1)
    state, given = crowded(8)
    state.wait(given)
    state.wait(named(replica("b", "0=n0:0"), "b"))

    assert not any(isinstance(each, ClassChanged) for each in state.cluster.pop_events())


def test_classes_of_deleted_pods_are_not_asked() -> None:
    """No pod keeps the event, so a change costs nothing for them."""
    state, given = crowded(8)
    state.wait(given)

    assert not any(isinstance(each, ClassChanged) for each in free(state, "n0:3"))


def test_a_pod_waits_for_its_namespaces_limit() -> None:
    """One GPU is held, and the limit leaves no room for the others until a pod of the namespace ends."""
    state = ClusterState(having("n0", *(40960,) * 8))
    cluster = state.cluster.limited(NamespaceLimits({"default": Limit(1)}))
    for device, namespace in enumerate(("default", "a")):
        job = Owner("Job", "other")
        state.ledger.apply(running("other-0", "n0", f"0=n0:{device}", namespace=namespace, owner=job))
    given = replica("a", "".join(f"{index}=n0:{index}\n" for index in range(1, 8)))
    wait = decide(given, cluster)

    assert isinstance(wait, Wait)
    assert QuotaChanged("default") in wait.cured_by
    assert decide(named(given, "b"), cluster) == replace(wait, pod=named(given, "b").ref)
    assert state.ledger.forget("uid-of-default/other-0") & wait.cured_by
    assert isinstance(decide(given, cluster), Bind)


def test_a_line_that_was_over_the_limit_fits_when_the_limit_is_raised() -> None:
    """No node changes."""
    cluster = ClusterState(having("n0", *(40960,) * 8)).cluster
    given = replica("a", "0=n0:0,1,2\n1=n0:3,4")
    wait = decide(given, cluster.limited(NamespaceLimits({"default": Limit(1)})))

    assert isinstance(wait, Wait)
    assert isinstance(decide(given, cluster.limited(NamespaceLimits({"default": Limit(2)}))), Bind)


def test_a_line_fits_when_a_driver_publishes_its_gpus() -> None:
    """The node itself does not change: the pod waits for a ResourceSlice, and gets the second line."""
    run = DryRun(Policy(reads_claims=True))
    for each in (with_uuids(1), with_uuids(2)):
        run.apply(InputKind.NODE, each)
    given = isolated("web", "0=node1:0\n1=node2:0", generate_name="web-", owner=OWNER)
    run.apply(InputKind.POD, given)
    wait = run.decide(given.ref.uid)
    assert isinstance(wait, Wait)
    run.apply(InputKind.DEVICE_SLICE, device_slice(with_uuids(2)))

    assert run.cluster.pop_events() & wait.cured_by
    assert isinstance(run.decide(given.ref.uid), Bind)


def test_lines_whose_node_the_pods_volume_does_not_reach_are_passed_over() -> None:
    """Their node is looked at once, and the pod gets the next line."""
    state = ClusterState(having("n0"), having("n1"), having("n2", labels={"zone": "a"}))
    reached = NodeSelectorTerm((NodeSelectorRequirement("zone", "In", ("a",)),))
    state.volumes.claim_applied(VolumeClaim("default", "data", volume="pv-1"))
    state.volumes.volume_applied(Volume("pv-1", (reached,)))
    given = replica("a", "0=n0:0\n1=n1:0\n2=n1:1\n3=n2:0", claims=("data",))

    assert state.where(given) == "n2:0"
