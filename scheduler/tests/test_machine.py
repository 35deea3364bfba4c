"""The whole loop against a cluster that does what clusters do, and against a reference of who may have what.

A run by hand takes more examples and more steps: MACHINE_EXAMPLES=5000 MACHINE_STEPS=100.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.scheduler.ports import BindResult, Bound, Dropped, Failed, NotSent, Ports, Unknown
from gpu_scheduler.scheduler.scheduling_loop import Scheduler
from gpu_scheduler.scheduler.timings import Timings
from tests.core.build import node
from tests.fakes import FakeClaims, FakeEventRecorder, FakeRecorder
from tests.reference import ENDLESS, Hold, Reference, Wish
from tests.virtual import Api, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.scheduling_queue import SchedulingQueue

T = TypeVar("T")

EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "60"))
STEPS = int(os.environ.get("MACHINE_STEPS", "40"))

NEVER = 1e9
"""Seconds: a pod that nothing wakes but the resync waits for ever, and is found."""
LONGEST_BACKOFF = 10
RECOVERY = 30
"""Seconds after the last fault in which every pod that can be placed is placed."""
DELETED = "2026-11-21T01:00:00Z"

MAPS = (
    (("node1", "0"), ("node1", "1"), ("node2", "0,1")),
    (("node1", "1"), ("node1", "1"), ("gpus", "0")),
    (("gpus", "1,0"), ("node2", "0"), ("node1", "0")),
)
# Most pods have a line of their own; some name one that the map lacks.
WISHES = st.builds(
    Wish,
    lines=st.sampled_from(MAPS),
    index=st.sampled_from([0, 1, 2, 0, 1, 2, 0, 1, None, None, 3]),
    owner=st.sampled_from(["", "", "a"]),
    observer=st.sampled_from([False, False, False, True]),
    shares=st.sampled_from([False, False, False, True]),
) | st.builds(Wish, count=st.sampled_from([1, 1, 2]), shares=st.sampled_from([False, False, True]))
NODES = {
    "node1": node("node1", inventory=counted(2), allocatable={"pods": 110}),
    "node2": node("node2", inventory=counted(2), allocatable={"pods": 110}, alias="gpus"),
}
CHANGES: dict[str, dict[str, Any]] = {
    "is cordoned": {"unschedulable": True},
    "is not ready": {"ready": False},
    "is well": {"ready": True, "unschedulable": False},
    "has one card": {"inventory": counted(1)},
    "has no card": {"inventory": counted(0)},
    "has all cards": {"inventory": counted(2)},
    "has unknown cards": {"inventory": None},
    "is small": {"allocatable": {"pods": 2}},
    "is large": {"allocatable": {"pods": 110}},
}
# One pod for each device, which is never created.
NEWCOMERS = [
    (wish.pod("newcomer"), Hold(wish, wish.lines[0][0], (wish.lines[0][1],), 0))
    for wish in (Wish(((name, device),), index=0) for name in NODES for device in "01")
]
LIMITS = st.sampled_from(["*: devices=0", "default: devices=1", "default: devices=2", "*: devices=3", "", None])
NUMBER = st.integers(0, 7)
Given = tuple[Wish, str, bool]
PODS = st.lists(
    st.tuples(WISHES, st.sampled_from("abc"), st.sampled_from([False, False, False, True])), min_size=2, max_size=4
)
ENDS = ["terminates", "terminates", "is gone", "is gone", "Succeeded", "Failed"]
SPEED = st.sampled_from([0, 1, 2, 2, 3])
FATES = st.lists(
    st.sampled_from(["arrives", "arrives", "answer is lost", "is late", "is late", "fails", "is not sent"]),
    min_size=1,
    max_size=4,
)


class Machine(RuleBasedStateMachine):
    """What the API server stores is the truth; the scheduler and the reference know what the watches have told."""

    @initialize(sharing=st.sampled_from([*Sharing, Sharing.SAME_WORKLOAD]), first=PODS, second=PODS)
    def begin(self, sharing: Sharing, first: list[Given], second: list[Given]) -> None:
        """A cluster of two nodes, a scheduler that has listed them, and the first pods."""
        self.loop = VirtualLoop()
        self.policy = Policy(sharing=sharing)
        self.wishes: dict[str, Wish] = {}
        self.api = Api(self.sent, self.answered)
        self.foreign: set[str] = set()
        self.faults: list[str] = []
        self.limits: str | None = None
        for each in NODES.values():
            self.api.nodes.write(each.name, each)
        self.start()
        self.create(first, 3, ["arrives"] * 4)
        self.create(second, 1, [])

    def start(self) -> None:
        """A scheduler begins with a list and nothing else."""
        self.reference = Reference(self.policy.sharing, self.wishes)
        self.unsure: set[str] = set()
        self.recorder, self.event_recorder = FakeRecorder(), FakeEventRecorder()
        ports = Ports(self.api, FakeClaims(), self.event_recorder, self.recorder, self.recorder)
        self.scheduler = Scheduler(self.policy, ports, timings=Timings(audit=10.0, resync=NEVER), clock=self.loop.time)
        self.limit(self.limits)
        seen = self.reference
        self.api.nodes.join(
            EventHandlerFuncs(
                lambda each: seen.nodes.update({each.name: each}), lambda each: seen.nodes.__delitem__(each.name)
            ),
            self.scheduler.world.nodes,
        )
        self.api.pods.join(EventHandlerFuncs(self.saw, self.lost), self.scheduler.pods)
        self.running = self.loop.create_task(self.scheduler.run())
        self.settle()

    def settle(self) -> None:
        """Let the loop do all that it can do now."""
        self.loop.pass_by(0.001)

    def saw(self, seen: Pod) -> None:
        """The watch has told of a pod: what settles a promise, beside its answer."""
        uid = seen.ref.uid
        self.reference.pods[uid] = seen
        doomed = seen.deleting_since is not None and uid in self.unsure and uid not in self.api.flights
        if seen.bound or seen.finished or doomed:
            self.forget(uid)

    def lost(self, seen: Pod) -> None:
        """The watch has told that a pod is gone."""
        del self.reference.pods[seen.ref.uid]
        self.forget(seen.ref.uid)

    def forget(self, uid: str) -> None:
        """Nothing can come any more of what was sent."""
        self.reference.promised.pop(uid, None)
        self.unsure.discard(uid)

    def sent(self, bind: Bind) -> None:
        """The scheduler sends a bind: it must be allowed now, or be the one that was sent before."""
        uid, place = bind.pod.uid, bind.placement
        hold = Hold(self.wishes[uid], place.node, place.devices, place.index)
        earlier = self.reference.promised.get(uid)
        if earlier is None and not self.reference.allows(uid, hold):
            self.faults.append(f"{bind.message}: that is not allowed")
        if earlier not in {None, hold}:
            self.faults.append(f"{bind.message}: but it was promised {earlier}")
        self.reference.promised[uid] = hold

    @rule(given=PODS, speed=SPEED, fates=FATES)
    def create(self, given: list[Given], speed: int, fates: list[str]) -> None:
        """Somebody creates pods, in place of those of their names; they get some way at once, or all."""
        for wish, name, gated in given:
            new = wish.pod(name)
            for old in [uid for uid, each in self.api.pods.stored.items() if each.ref.name == new.ref.name]:
                self.api.pods.write(old, None)
            uid = f"uid-{len(self.wishes)}"
            self.wishes[uid] = wish
            self.api.pods.write(uid, replace(new, ref=replace(new.ref, uid=uid), gated=gated))
        if speed > 0:
            self.hear()
        if speed > 1:
            self.meet(fates)
        if speed > 2:
            self.hear()

    def hear(self) -> None:
        """The watches catch up, as far as they are not cut off."""
        self.api.nodes.hear()
        self.api.pods.hear()
        self.settle()

    @precondition(lambda self: self.api.pods.events or self.api.nodes.events)
    @rule(pods=NUMBER, nodes=NUMBER)
    def watch(self, pods: int, nodes: int) -> None:
        """The watches tell of some changes."""
        self.api.pods.hear(pods)
        self.api.nodes.hear(nodes)
        self.settle()

    @rule(which=st.sampled_from(["pods", "nodes"]), what=st.sampled_from(["drop", "list", "list", "repeat"]))
    def trouble(self, which: str, what: str) -> None:
        """A watch is cut off, or lists anew, or tells everything twice."""
        watch = self.api.pods if which == "pods" else self.api.nodes
        {"drop": watch.drop, "list": watch.list, "repeat": watch.repeat}[what]()
        self.settle()

    @precondition(lambda self: self.api.flights)
    @rule(fates=FATES, seconds=st.sampled_from([0.0, 2.0, 2.0]))
    def meet(self, fates: list[str], seconds: float = 0.0) -> None:
        """Binds that are on their way arrive or not, and their answers too; who must is trying again after a while."""
        for uid, fate in zip(list(self.api.flights), fates, strict=False):
            self.answer_one(uid, fate)
        self.loop.pass_by(seconds)

    def answer_one(self, uid: str, fate: str) -> None:
        """The bind of this pod has this fate."""
        flight = self.api.flights[uid]
        if fate == "arrives":
            result = self.api.arrive(flight.bind)
        elif fate == "answer is lost":
            self.api.arrive(flight.bind)
            result = Unknown("time-out")
        elif fate == "is late":
            self.api.late.append(flight.bind)
            result = Unknown("time-out")
        else:
            result = Failed("HTTP 429", patience=3.0) if fate == "fails" else NotSent("not leading")
        flight.answer.set_result(result)
        self.settle()

    def answered(self, bind: Bind, result: BindResult) -> None:
        """The scheduler hears what became of a bind: what settles a promise, beside the watch."""
        uid = bind.pod.uid
        seen = self.reference.pods.get(uid)
        doomed = seen is not None and seen.deleting_since is not None and not isinstance(result, Bound)
        certain = isinstance(result, Failed | NotSent) and uid not in self.unsure
        if doomed or certain or isinstance(result, Dropped):
            self.forget(uid)
        elif isinstance(result, Bound):
            self.unsure.discard(uid)
        elif uid in self.reference.promised:
            self.unsure.add(uid)

    @precondition(lambda self: self.api.late)
    @rule(number=NUMBER)
    def land_late(self, number: int) -> None:
        """A bind whose answer nobody waits for any more arrives all the same."""
        self.api.arrive(self.api.late.pop(number % len(self.api.late)))

    @precondition(lambda self: self.api.pods.stored)
    @rule(number=NUMBER, how=st.sampled_from(ENDS), told=st.booleans())
    def end(self, number: int, how: str, told: bool) -> None:  # noqa: FBT001
        """A pod comes to its end, step by step or at once."""
        live = [uid for uid, each in self.api.pods.stored.items() if not each.finished]
        uid = one_of(live or self.api.pods.stored, number)
        stored = self.api.pods.stored[uid]
        if how == "is gone":
            self.api.pods.write(uid, None)
        elif how == "terminates":
            self.api.pods.write(uid, replace(stored, deleting_since=DELETED))
        else:
            self.api.pods.write(uid, replace(stored, phase=how))
        if told:
            self.hear()

    @precondition(lambda self: self.api.pods.stored)
    @rule(number=NUMBER, how=st.sampled_from(["ungated", "runs", "touched", "bound by another"]), where=NUMBER)
    def update(self, number: int, how: str, where: int) -> None:
        """Something about a pod changes."""
        uid = one_of(self.api.pods.stored, number)
        stored = self.api.pods.stored[uid]
        if how == "bound by another" and not (stored.bound or stored.gated or stored.deleting_since):
            self.foreign.add(uid)
            stored = replace(stored, node=one_of(NODES, where))
        changed: dict[str, dict[str, Any]] = {"ungated": {"gated": False}, "runs": {"phase": "Running"}}
        if how != "runs" or (stored.bound and not stored.finished):
            stored = replace(stored, **changed.get(how, {}))
        self.api.pods.write(uid, stored)

    @rule(
        name=st.sampled_from(sorted(NODES)), how=st.sampled_from([*CHANGES, "is gone", "is back"]), told=st.booleans()
    )
    def node_changes(self, name: str, how: str, told: bool) -> None:  # noqa: FBT001
        """A node is cordoned, breaks, loses cards, goes, comes back."""
        stored = self.api.nodes.stored.get(name)
        if how == "is back" or (stored is None and how != "is gone"):
            self.api.nodes.write(name, NODES[name])
        elif stored is not None:
            self.api.nodes.write(name, None if how == "is gone" else replace(stored, **CHANGES[how]))
        if told:
            self.hear()

    @rule(strategy=st.sampled_from([*Strategy, None]))
    def steer(self, strategy: str | None) -> None:
        """Somebody chooses another strategy, or takes the choice back."""
        self.scheduler.settings.applied(strategy)
        self.settle()

    @rule(limits=LIMITS)
    def operate(self, limits: str | None) -> None:
        """An operator limits the namespace, or takes the limit back."""
        self.limit(limits)
        self.settle()

    def limit(self, limits: str | None) -> None:
        """Let it be so, for the scheduler and for the reference."""
        self.limits = limits
        if limits is None:
            self.scheduler.limits.forgotten(None)
        else:
            self.scheduler.limits.applied(limits)
        self.reference.limit = int(limits.rpartition("=")[2]) if limits else ENDLESS

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 11.0, 60.0]))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.loop.pass_by(seconds)

    @precondition(lambda self: self.api.flights or self.api.late or self.api.pods.events)
    @rule(graceful=st.booleans(), landing=st.lists(st.booleans(), min_size=8, max_size=8))
    def restart(self, graceful: bool, landing: list[bool]) -> None:  # noqa: FBT001
        """The scheduler stops or dies; what was on its way has landed before the next one lists, or never does."""
        if graceful:
            settled = self.loop.run_until_complete(self.scheduler.drain(1.0))
            assert settled == (not (self.api.flights.keys() | self.unsure) & self.reference.pods.keys())
        on_their_way = [*self.api.late, *(flight.bind for flight in self.api.flights.values())]
        self.stop()
        for bind, lands in zip(on_their_way, landing, strict=False):
            if lands:
                self.api.arrive(bind)
        self.api.late.clear()
        self.start()

    @rule()
    def recover(self) -> None:
        """Every fault ends: what can be placed is placed in time, who waits knows why, and nothing stays open."""
        self.api.prompt = True
        for watch in (self.api.nodes, self.api.pods):
            if watch.cut:
                watch.list()
        for uid in list(self.api.flights):
            self.answer_one(uid, "arrives")
        for _ in range(RECOVERY):
            self.api.nodes.hear()
            self.api.pods.hear()
            self.loop.pass_by(1.0)
        self.api.prompt = False
        assert not self.reference.promised
        for uid in filter(self.reference.waits, self.reference.pods):
            assert not list(self.reference.choices(uid)), f"{uid} waits for what it could have"
            told = self.scheduler.tracked[uid].last_condition
            assert told is not None
            assert told.status == "False"

    @invariant()
    def no_bind_was_wrong(self) -> None:
        """Each was allowed by what was known, or was the same again; and the ledger was never found to be wrong."""
        assert self.faults == []
        assert self.recorder.repairs == []

    @invariant()
    def nothing_is_given_twice(self) -> None:
        """Neither a device nor a line of a map, as the API server has it; what others bound is their business."""
        holds = {uid: self.reference.held(each) for uid, each in self.api.pods.stored.items()}
        ours = [hold for uid, hold in holds.items() if hold is not None and uid not in self.foreign]
        assert not any(self.reference.clash(one, other) for one, other in combinations(ours, 2))

    @invariant()
    def node_annotations_and_environment_agree(self) -> None:
        """A pod that we bound carries what its containers see and where it is."""
        for uid, each in self.api.pods.stored.items():
            if each.bound and uid not in self.foreign:
                assert each.assignment.devices is not None
                devices = ",".join(each.assignment.devices)
                assert each.assignment.node == each.node
                assert all(entry.value in {None, devices} for entry in (each.environment.containers[0].env or ())[:1])

    @invariant()
    def what_is_assumed_is_what_is_not_settled(self) -> None:
        """An assumption lives exactly as long as its bind may still arrive, or the watch has yet to show it."""
        assumed = {holder.ref.uid: (holder.node, holder.index) for holder in self.scheduler.ledger if holder.assumed}
        assert assumed == {uid: (hold.node, hold.index) for uid, hold in self.reference.promised.items()}

    @invariant()
    def the_ledger_follows_from_what_was_told(self) -> None:
        """Made anew it is the same; the loop remembers the pods that there are, and no others."""
        assert {uid: each.pod for uid, each in self.scheduler.tracked.items()} == self.reference.pods
        rebuilt = self.scheduler.world.rebuild_ledger(self.scheduler.tracked)
        assert self.scheduler.ledger.differences(rebuilt) == 0
        holders = {each.ref.uid: (each.node, frozenset(each.devices)) for each in self.scheduler.ledger}
        assert holders == {uid: (each.node, each.claims) for uid, each in self.reference.holds().items()}

    @invariant()
    def a_device_can_be_had_as_soon_as_it_is_free_and_never_before(self) -> None:
        """Asked for a newcomer, the scheduler says of each device what the reference says."""
        for newcomer, hold in NEWCOMERS:
            decision = decide(newcomer, self.scheduler.world.cluster)
            assert isinstance(decision, Bind) == self.reference.fits("", hold)

    @invariant()
    def who_waits_stands_in_one_queue(self) -> None:
        """And in such a way that its time or its wake-up finds it; nobody else stands there."""
        queue = self.scheduler.queue
        waiting = set(filter(self.reference.waits, self.reference.pods))
        flying = waiting & self.reference.promised.keys() - (self.unsure - self.api.flights.keys())
        assert queue._entries.keys() == waiting
        assert sum(queue.counts().values()) == len(waiting - flying)
        assert queue.counts()["active"] == 0
        for uid in waiting - flying:
            check_queue(queue, uid)
            if uid not in self.unsure and any(self.reference.choices(uid)):
                # It has been woken, and serves out its back-off at most.
                assert queue._entries[uid].due <= self.loop.time() + LONGEST_BACKOFF

    def stop(self) -> None:
        """The process ends."""
        tasks = [self.running, *self.scheduler._binding_cycle._tasks]
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def teardown(self) -> None:
        """Leave nothing behind."""
        if hasattr(self, "running"):
            self.stop()
            self.loop.close()


def check_queue(queue: SchedulingQueue, uid: str) -> None:
    """A timer that counts is set, and every wake-up that the pod waits for knows it."""
    entry = queue._entries[uid]
    assert (entry.due, entry.arrival, uid) in queue._timers
    assert queue._is_due(entry.due, entry.arrival, uid)
    assert all(uid in queue._waiting[wake] for wake in entry.events)
    assert all(uid not in uids for wake, uids in queue._waiting.items() if wake not in entry.events)


def one_of(among: Iterable[T], number: int) -> T:
    """One by lot."""
    known = list(among)
    return known[number % len(known)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
