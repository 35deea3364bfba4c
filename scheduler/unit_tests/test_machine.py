"""The scheduling loop against a cluster in memory with its faults, and against the reference in reference.py.

By hand, run more examples and more steps: MACHINE_EXAMPLES=5000 MACHINE_STEPS=100.
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
from unit_tests.core.build import node
from unit_tests.fakes import FakeAllocator, FakeClaims, FakeEventRecorder, FakeRecorder
from unit_tests.reference import UNLIMITED, Hold, Reference, Request
from unit_tests.virtual import Api, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpu_scheduler.core.pods.pod import Pod
    from gpu_scheduler.core.scheduling_queue import SchedulingQueue

T = TypeVar("T")

EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES", "60"))
STEPS = int(os.environ.get("MACHINE_STEPS", "40"))

NEVER = 1e9
"""Seconds: without resync, a pod that no event requeues waits for ever, and the machine finds it."""
LONGEST_BACKOFF = 10
RECOVERY = 30
"""Seconds after the last fault in which every pod that can be placed is placed."""
DELETED = "2026-11-21T01:00:00Z"

MAPS = (
    (("node1", "0"), ("node1", "1"), ("node2", "0,1")),
    (("node1", "1"), ("node1", "1"), ("gpus", "0")),
    (("gpus", "1,0"), ("node2", "0"), ("node1", "0")),
)
# Most pods have a line of their own; some ask for an index that the map does not have.
REQUESTS = st.builds(
    Request,
    lines=st.sampled_from(MAPS),
    index=st.sampled_from([0, 1, 2, 0, 1, 2, 0, 1, None, None, 3]),
    owner=st.sampled_from(["", "", "a"]),
    observer=st.sampled_from([False, False, False, True]),
    shares=st.sampled_from([False, False, False, True]),
) | st.builds(Request, count=st.sampled_from([1, 1, 2]), shares=st.sampled_from([False, False, True]))
NODES = {
    "node1": node("node1", inventory=counted(2), allocatable={"pods": 110}),
    "node2": node("node2", inventory=counted(2), allocatable={"pods": 110}, alias="gpus"),
}
CHANGES: dict[str, dict[str, Any]] = {
    "is cordoned": {"unschedulable": True},
    "is not ready": {"ready": False},
    "is healthy": {"ready": True, "unschedulable": False},
    "has one device": {"inventory": counted(1)},
    "has no device": {"inventory": counted(0)},
    "has all devices": {"inventory": counted(2)},
    "has unknown devices": {"inventory": None},
    "is small": {"allocatable": {"pods": 2}},
    "is large": {"allocatable": {"pods": 110}},
}
# One pod for each device. The API server never gets it.
NEW_PODS = [
    (request.pod("newcomer"), Hold(request, request.lines[0][0], (request.lines[0][1],), 0))
    for request in (Request(((name, device),), index=0) for name in NODES for device in "01")
]
LIMITS = st.sampled_from(["*: devices=0", "default: devices=1", "default: devices=2", "*: devices=3", "", None])
NUMBER = st.integers(0, 7)
Given = tuple[Request, str, bool]
PODS = st.lists(
    st.tuples(REQUESTS, st.sampled_from("abc"), st.sampled_from([False, False, False, True])), min_size=2, max_size=4
)
ENDS = ["terminates", "terminates", "is gone", "is gone", "Succeeded", "Failed"]
SPEED = st.sampled_from([0, 1, 2, 2, 3])
OUTCOMES = st.lists(
    st.sampled_from(["arrives", "arrives", "answer is lost", "is late", "is late", "fails", "is not sent"]),
    min_size=1,
    max_size=4,
)


class Machine(RuleBasedStateMachine):
    """Rules change what the API server stores; the scheduler and the reference know what the watches delivered."""

    @initialize(sharing=st.sampled_from([*Sharing, Sharing.SAME_WORKLOAD]), first=PODS, second=PODS)
    def begin(self, sharing: Sharing, first: list[Given], second: list[Given]) -> None:
        """Create a cluster of two nodes, a scheduler that has listed them, and the first pods."""
        self.loop = VirtualLoop()
        self.policy = Policy(sharing=sharing)
        self.requests: dict[str, Request] = {}
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
        self.reference = Reference(self.policy.sharing, self.requests)
        self.result_unknown: set[str] = set()
        self.recorder, self.event_recorder = FakeRecorder(), FakeEventRecorder()
        ports = Ports(
            self.api, FakeClaims(), FakeAllocator(), self.event_recorder, self.recorder, self.recorder, self.recorder
        )
        self.scheduler = Scheduler(self.policy, ports, timings=Timings(audit=10.0, resync=NEVER), clock=self.loop.time)
        self.apply_limits(self.limits)
        seen = self.reference
        self.api.nodes.join(
            EventHandlerFuncs(
                lambda each: seen.nodes.update({each.name: each}), lambda each: seen.nodes.__delitem__(each.name)
            ),
            self.scheduler.cache.nodes,
        )
        self.api.pods.join(EventHandlerFuncs(self.pod_applied, self.pod_forgotten), self.scheduler.pods)
        self.running = self.loop.create_task(self.scheduler.run())
        self.settle()

    def settle(self) -> None:
        self.loop.pass_by(0.001)

    def pod_applied(self, seen: Pod) -> None:
        """Receive a pod from the watch; it may settle the pod's bind."""
        uid = seen.ref.uid
        self.reference.pods[uid] = seen
        in_flight = uid in self.api.pending_binds
        cannot_bind = seen.deleting_since is not None and uid in self.result_unknown and not in_flight
        if seen.bound or seen.finished or cannot_bind:
            self.forget(uid)

    def pod_forgotten(self, seen: Pod) -> None:
        """Receive from the watch that a pod is gone."""
        del self.reference.pods[seen.ref.uid]
        self.forget(seen.ref.uid)

    def forget(self, uid: str) -> None:
        self.reference.assumed.pop(uid, None)
        self.result_unknown.discard(uid)

    def sent(self, bind: Bind) -> None:
        """Check a bind that the scheduler sends: it must be allowed now, or be the one that was sent before."""
        uid, place = bind.pod.uid, bind.placement
        hold = Hold(self.requests[uid], place.node, place.devices, place.index)
        earlier = self.reference.assumed.get(uid)
        if earlier is None and not self.reference.allows(uid, hold):
            self.faults.append(f"{bind.message}: that is not allowed")
        if earlier not in {None, hold}:
            self.faults.append(f"{bind.message}: but it was assumed on {earlier}")
        self.reference.assumed[uid] = hold

    @rule(given=PODS, speed=SPEED, outcomes=OUTCOMES)
    def create(self, given: list[Given], speed: int, outcomes: list[str]) -> None:
        """Create pods in place of those of the same names; `speed` says how far they get at once."""
        for request, name, gated in given:
            new = request.pod(name)
            for old in [uid for uid, each in self.api.pods.stored.items() if each.ref.name == new.ref.name]:
                self.api.pods.write(old, None)
            uid = f"uid-{len(self.requests)}"
            self.requests[uid] = request
            self.api.pods.write(uid, replace(new, ref=replace(new.ref, uid=uid), gated=gated))
        if speed > 0:
            self.deliver()
        if speed > 1:
            self.answer_binds(outcomes)
        if speed > 2:
            self.deliver()

    def deliver(self) -> None:
        """Deliver all events of the watches that are not cut off."""
        self.api.nodes.deliver()
        self.api.pods.deliver()
        self.settle()

    @precondition(lambda self: self.api.pods.events or self.api.nodes.events)
    @rule(pods=NUMBER, nodes=NUMBER)
    def watch(self, pods: int, nodes: int) -> None:
        """Deliver some events of the watches."""
        self.api.pods.deliver(pods)
        self.api.nodes.deliver(nodes)
        self.settle()

    @rule(which=st.sampled_from(["pods", "nodes"]), what=st.sampled_from(["drop", "list", "list", "repeat"]))
    def disturb_watch(self, which: str, what: str) -> None:
        """Cut a watch off, let it list again, or let it repeat all its objects."""
        watch = self.api.pods if which == "pods" else self.api.nodes
        {"drop": watch.drop, "list": watch.list, "repeat": watch.repeat}[what]()
        self.settle()

    @precondition(lambda self: self.api.pending_binds)
    @rule(outcomes=OUTCOMES, seconds=st.sampled_from([0.0, 2.0, 2.0]))
    def answer_binds(self, outcomes: list[str], seconds: float = 0.0) -> None:
        """Answer binds in flight, each with an outcome, and let time pass in which the scheduler may try again."""
        for uid, outcome in zip(list(self.api.pending_binds), outcomes, strict=False):
            self.answer_one(uid, outcome)
        self.loop.pass_by(seconds)

    def answer_one(self, uid: str, outcome: str) -> None:
        """Give the pod's bind this outcome."""
        pending = self.api.pending_binds[uid]
        if outcome == "arrives":
            result = self.api.handle(pending.bind)
        elif outcome == "answer is lost":
            self.api.handle(pending.bind)
            result = Unknown("time-out")
        elif outcome == "is late":
            self.api.late.append(pending.bind)
            result = Unknown("time-out")
        else:
            result = Failed("HTTP 429", retry_after=3.0) if outcome == "fails" else NotSent("not leading")
        pending.answer.set_result(result)
        self.settle()

    def answered(self, bind: Bind, result: BindResult) -> None:
        """Receive the result of a bind as the scheduler does; it may settle the bind."""
        uid = bind.pod.uid
        seen = self.reference.pods.get(uid)
        cannot_bind = seen is not None and seen.deleting_since is not None and not isinstance(result, Bound)
        certain = isinstance(result, Failed | NotSent) and uid not in self.result_unknown
        if cannot_bind or certain or isinstance(result, Dropped):
            self.forget(uid)
        elif isinstance(result, Bound):
            self.result_unknown.discard(uid)
        elif uid in self.reference.assumed:
            self.result_unknown.add(uid)

    @precondition(lambda self: self.api.late)
    @rule(number=NUMBER)
    def handle_late_bind(self, number: int) -> None:
        """Let the API server handle a bind that the scheduler has given up."""
        self.api.handle(self.api.late.pop(number % len(self.api.late)))

    @precondition(lambda self: self.api.pods.stored)
    @rule(number=NUMBER, how=st.sampled_from(ENDS), delivered=st.booleans())
    def end(self, number: int, how: str, delivered: bool) -> None:  # noqa: FBT001
        """Delete a pod, let it terminate, or finish it."""
        live = [uid for uid, each in self.api.pods.stored.items() if not each.finished]
        uid = one_of(live or self.api.pods.stored, number)
        stored = self.api.pods.stored[uid]
        if how == "is gone":
            self.api.pods.write(uid, None)
        elif how == "terminates":
            self.api.pods.write(uid, replace(stored, deleting_since=DELETED))
        else:
            self.api.pods.write(uid, replace(stored, phase=how))
        if delivered:
            self.deliver()

    @precondition(lambda self: self.api.pods.stored)
    @rule(number=NUMBER, how=st.sampled_from(["ungated", "runs", "touched", "bound by another"]), where=NUMBER)
    def update(self, number: int, how: str, where: int) -> None:
        """Change a pod: its gate, its phase, or its node by another scheduler."""
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
        name=st.sampled_from(sorted(NODES)),
        how=st.sampled_from([*CHANGES, "is gone", "is back"]),
        delivered=st.booleans(),
    )
    def node_changes(self, name: str, how: str, delivered: bool) -> None:  # noqa: FBT001
        """Change a node, delete it, or create it again."""
        stored = self.api.nodes.stored.get(name)
        if how == "is back" or (stored is None and how != "is gone"):
            self.api.nodes.write(name, NODES[name])
        elif stored is not None:
            self.api.nodes.write(name, None if how == "is gone" else replace(stored, **CHANGES[how]))
        if delivered:
            self.deliver()

    @rule(strategy=st.sampled_from([*Strategy, None]))
    def set_strategy(self, strategy: str | None) -> None:
        self.scheduler.settings.applied(strategy)
        self.settle()

    @rule(limits=LIMITS)
    def change_limits(self, limits: str | None) -> None:
        """Write or delete the limits, as an operator does."""
        self.apply_limits(limits)
        self.settle()

    def apply_limits(self, limits: str | None) -> None:
        """Apply the limits to the scheduler and to the reference."""
        self.limits = limits
        if limits is None:
            self.scheduler.limits.forgotten(None)
        else:
            self.scheduler.limits.applied(limits)
        self.reference.limit = int(limits.rpartition("=")[2]) if limits else UNLIMITED

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 11.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.loop.pass_by(seconds)

    @precondition(lambda self: self.api.pending_binds or self.api.late or self.api.pods.events)
    @rule(graceful=st.booleans(), handled=st.lists(st.booleans(), min_size=8, max_size=8))
    def restart(self, graceful: bool, handled: list[bool]) -> None:  # noqa: FBT001
        """Stop the scheduler or kill it; each open bind is handled before the next scheduler lists, or never."""
        if graceful:
            settled = self.loop.run_until_complete(self.scheduler.drain(1.0))
            assert settled == (not (self.api.pending_binds.keys() | self.result_unknown) & self.reference.pods.keys())
        open_binds = [*self.api.late, *(pending.bind for pending in self.api.pending_binds.values())]
        self.stop()
        for bind, is_handled in zip(open_binds, handled, strict=False):
            if is_handled:
                self.api.handle(bind)
        self.api.late.clear()
        self.start()

    @rule()
    def recover(self) -> None:
        """End every fault: pods that can be placed are placed in time, the others have a condition, no bind is open."""
        self.api.prompt = True
        for watch in (self.api.nodes, self.api.pods):
            if watch.cut:
                watch.list()
        for uid in list(self.api.pending_binds):
            self.answer_one(uid, "arrives")
        for _ in range(RECOVERY):
            self.api.nodes.deliver()
            self.api.pods.deliver()
            self.loop.pass_by(1.0)
        self.api.prompt = False
        assert not self.reference.assumed
        for uid in filter(self.reference.waits, self.reference.pods):
            assert not list(self.reference.choices(uid)), f"{uid} waits for what it could have"
            condition = self.scheduler.pod_states[uid].last_condition
            assert condition is not None
            assert condition.status == "False"

    @invariant()
    def no_bind_was_wrong(self) -> None:
        """Every bind was allowed, or was a repetition; and the audit never repaired the ledger."""
        assert self.faults == []
        assert self.recorder.repairs == []

    @invariant()
    def no_device_or_line_is_bound_twice(self) -> None:
        """No two pods that this scheduler bound have one line of a map, or a device that they may not share."""
        holds = {uid: self.reference.held(each) for uid, each in self.api.pods.stored.items()}
        ours = [hold for uid, hold in holds.items() if hold is not None and uid not in self.foreign]
        assert not any(self.reference.conflict(one, other) for one, other in combinations(ours, 2))

    @invariant()
    def node_annotations_and_environment_agree(self) -> None:
        """A pod that the scheduler bound has its node and its containers' devices in annotations."""
        for uid, each in self.api.pods.stored.items():
            if each.bound and uid not in self.foreign:
                assert each.assignment.devices is not None
                devices = ",".join(each.assignment.devices)
                assert each.assignment.node == each.node
                assert all(entry.value in {None, devices} for entry in (each.environment.containers[0].env or ())[:1])

    @invariant()
    def only_pods_with_an_open_bind_are_assumed(self) -> None:
        """A pod is assumed as long as the API server may handle its bind, or the watch has yet to show it."""
        assumed = {holder.ref.uid: (holder.node, holder.index) for holder in self.scheduler.ledger if holder.assumed}
        assert assumed == {uid: (hold.node, hold.index) for uid, hold in self.reference.assumed.items()}

    @invariant()
    def the_ledger_follows_from_the_watch_events(self) -> None:
        """A ledger that is rebuilt is the same; the scheduling loop knows the pods of the watch and no others."""
        assert {uid: each.pod for uid, each in self.scheduler.pod_states.items()} == self.reference.pods
        rebuilt = self.scheduler.cache.rebuild_ledger(self.scheduler.pod_states)
        assert self.scheduler.ledger.differences(rebuilt) == 0
        holders = {each.ref.uid: (each.node, frozenset(each.devices)) for each in self.scheduler.ledger}
        assert holders == {uid: (each.node, each.claims) for uid, each in self.reference.holds().items()}

    @invariant()
    def a_new_pod_is_placed_where_the_reference_places_it(self) -> None:
        """For a new pod, the scheduler places on each device where the reference does."""
        for new_pod, hold in NEW_PODS:
            decision = decide(new_pod, self.scheduler.cache.cluster)
            assert isinstance(decision, Bind) == self.reference.fits("", hold)

    @invariant()
    def the_scheduling_queue_has_every_waiting_pod(self) -> None:
        """The queue has every waiting pod and no other; a timer and its events can requeue each of them."""
        queue = self.scheduler.queue
        waiting = set(filter(self.reference.waits, self.reference.pods))
        binding = waiting & self.reference.assumed.keys() - (self.result_unknown - self.api.pending_binds.keys())
        assert queue._entries.keys() == waiting
        assert sum(queue.counts().values()) == len(waiting - binding)
        assert queue.counts()["active"] == 0
        for uid in waiting - binding:
            check_queue(queue, uid)
            if uid not in self.result_unknown and any(self.reference.choices(uid)):
                # An event has requeued it; at most it waits for the end of its back-off.
                assert queue._entries[uid].due <= self.loop.time() + LONGEST_BACKOFF

    def stop(self) -> None:
        """Cancel the scheduler's tasks, as the end of its process does."""
        tasks = [self.running, *self.scheduler._binding_cycle._tasks]
        for task in tasks:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def teardown(self) -> None:
        """Stop the scheduler and close the event loop."""
        if hasattr(self, "running"):
            self.stop()
            self.loop.close()


def check_queue(queue: SchedulingQueue, uid: str) -> None:
    """Check that a valid timer of the pod is set, and that the pod is stored under each event it waits for."""
    entry = queue._entries[uid]
    assert (entry.due, entry.arrival, uid) in queue._timers
    assert queue._is_due(entry.due, entry.arrival, uid)
    assert all(uid in queue._waiting[event] for event in entry.events)
    assert all(uid not in uids for event, uids in queue._waiting.items() if event not in entry.events)


def one_of(among: Iterable[T], number: int) -> T:
    known = list(among)
    return known[number % len(known)]


TestMachine = Machine.TestCase
TestMachine.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
