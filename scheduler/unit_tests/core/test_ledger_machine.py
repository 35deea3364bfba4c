"""The ledger in a small cluster with late watch events, lost answers, restarts and pods that end."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpu_scheduler.core.cluster import Cluster
from gpu_scheduler.core.cluster_events import DeviceChanged
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.reasons import Unschedulable
from gpu_scheduler.core.refs import Owner
from unit_tests.core.asking import words
from unit_tests.core.build import PCI, bound, container, node, nodes, pod, visible

GPU_0 = "GPU-00000000-0000-0000-0000-000000000000"
MIG_DEVICES = [f"MIG-11111111-0000-0000-0000-00000000000{number}" for number in (1, 2)]
# Every device name of a node, known to its inventory or not: the GPU's index and, for a MIG device, its UUID.
PARTS = {"0": (0, None), "1": (1, None), "2": (2, None), GPU_0: (0, None), **{uuid: (1, uuid) for uuid in MIG_DEVICES}}
KNOWN = Inventory(
    (
        Device(0, GPU_0, memory=8192),
        Device(1, "GPU-11111111-0000-0000-0000-000000000000", tuple(MIG_DEVICES), memory=8192),
        Device(2, memory=8192),
    )
)
INVENTORIES = [None, counted(2), KNOWN]
MAPS = [
    "0=node1:0\n1=node1:0,1\n2=node2:0",
    "0=node1:1\n1=node1:1\n2=gpus:0,1",
    f"0=node1:{GPU_0}\n1=node1:{MIG_DEVICES[0]}\n2=node1:{MIG_DEVICES[1]}\n3=node1:{GPU_0}",
]
OWNERS = [None, Owner("StatefulSet", "a"), Owner("StatefulSet", "b")]
EXTRAS = [
    *({}, {}, {}, words(sharing="any"), words(observer="true"), words(keep_env="true")),
    *(words(start="together"), words(start="together")),
]
# Annotations of pods without a map.
COUNT_REQUESTS = [
    words(count=1),
    words(count=2, scheduling_strategy="best_fit"),
    words(count=1, memory=8192, scheduling_strategy="priority"),
    *(words(count=1, memory=size, exclusive="false", scheduling_strategy="round_robin") for size in (2048, 4096, 4097)),
]
NUMBER = st.integers(0, 5)
# Map and annotations. A pod whose name has no number takes any line of its map.
REQUESTS = st.tuples(st.sampled_from(MAPS), st.sampled_from(EXTRAS)) | st.builds(
    lambda count_request, extra: (None, {**count_request, **extra}),
    st.sampled_from(COUNT_REQUESTS),
    st.sampled_from(EXTRAS),
)
PODS = st.tuples(
    st.sampled_from(["0", "1", "2", "any", "other"]),
    REQUESTS,
    st.sampled_from(OWNERS),
    st.sampled_from([0, 1, 2, 3, 3, 3]),
)
Given = tuple[str, tuple[str | None, dict[str, str]], Owner | None, int]
KEPT = (container((visible("1"), PCI)),)


class LedgerMachine(RuleBasedStateMachine):
    """`api` has the pods of the API server, `events` the watch events to come, `seen` the pods that the watch showed.

    `in_flight` has the binds that the API server has not answered.
    """

    @initialize(
        sharing=st.sampled_from([*Sharing, Sharing.SAME_WORKLOAD]),
        known=st.lists(st.sampled_from(INVENTORIES), min_size=2, max_size=2),
        first=st.lists(PODS, min_size=2, max_size=4),
    )
    def start(self, sharing: Sharing, known: list[Inventory | None], first: list[Given]) -> None:
        """Begin with two nodes, one of them with an alias, and the first pods."""
        self.policy = Policy(sharing=sharing)
        one, two = known
        self.nodes = nodes(node("node1", inventory=one), node("node2", alias="gpus", inventory=two))
        self.lines = {each.digest: each for each in map(parse_placement_map, MAPS)}
        self.begin()
        self.api: dict[str, Pod] = {}
        self.seen: dict[str, Pod] = {}
        self.in_flight: dict[str, Bind] = {}
        self.events: deque[tuple[str, Pod | None]] = deque()
        self.created = self.binds = 0
        for each in first:
            self.create(each)

    def write(self, value: Pod) -> None:
        """Store a pod in the API server; the watch event comes later."""
        self.api[value.ref.uid] = value
        self.events.append((value.ref.uid, value))

    @rule(given=PODS)
    def create(self, given: Given) -> None:
        """Create a pod, perhaps under an old name; `steps` says how far it gets at once, up to its bind."""
        name, (text, extra), owner, steps = given
        self.created += 1
        new = pod(f"pod-{name}", text, owner=owner, annotations=extra)
        if new.request.keep_env:
            new = pod(f"pod-{name}", text, owner=owner, annotations=extra, containers=KEPT)
        uid = f"uid-{self.created}"
        self.write(replace(new, ref=replace(new.ref, uid=uid)))
        if steps > 0:
            self.apply_all_events()
        if steps > 1:
            self.schedule_pod(uid)
        if steps > 2:
            self.bind(uid)

    @precondition(lambda self: self.events)
    @rule(all_of_them=st.booleans())
    def watch(self, all_of_them: bool) -> None:  # noqa: FBT001
        """Apply one watch event, or all."""
        self.apply_event()
        if all_of_them:
            self.apply_all_events()

    def apply_all_events(self) -> None:
        while self.events:
            self.apply_event()

    def apply_event(self) -> None:
        """Apply one watch event; the returned cluster events include every freed device."""
        uid, value = self.events.popleft()
        before = self.taken()
        cured_by = self.ledger.forget(uid) if value is None else self.ledger.apply(value)
        if value is None:
            self.seen.pop(uid, None)
            self.in_flight.pop(uid, None)
        else:
            self.seen[uid] = value
            if value.bound or value.finished:
                self.in_flight.pop(uid, None)
        freed = {DeviceChanged(node, self.ledger.devices.key(node, device)) for node, device in before - self.taken()}
        assert freed <= cured_by

    @rule(
        which=st.sampled_from(INVENTORIES),
        name=st.sampled_from(["node1", "node2"]),
        read=st.sampled_from([{}, {}, {0: DeviceReading(used=8000)}, {0: DeviceReading(health=Health.UNHEALTHY)}]),
        stale=st.sampled_from([False, False, True]),
    )
    def apply_node(self, which: Inventory | None, name: str, read: dict[int, DeviceReading], stale: bool) -> None:  # noqa: FBT001
        """Change the inventory, the readings or the staleness of a node."""
        alias = "gpus" if name == "node2" else None
        changed = node(name, inventory=which, alias=alias, readings=read, stale=stale)
        self.nodes.apply(changed)
        self.ledger.apply_node(changed)

    @precondition(lambda self: self.seen)
    @rule()
    def schedule(self) -> None:
        """Decide on all pods as the watch showed them, and send the binds."""
        for uid in sorted(self.seen):
            self.schedule_pod(uid)

    def schedule_pod(self, uid: str) -> None:
        """Decide on one pod; earlier decisions must not change the result."""
        decision = decide(self.seen[uid], self.cluster)
        assert decision == decide(self.seen[uid], self.known(self.ledger))
        if isinstance(decision, Bind):
            self.check_kept_lines(self.seen[uid], decision)
            self.ledger.assume(self.seen[uid], decision.placement)
            self.in_flight[uid] = decision

    def check_kept_lines(self, value: Pod, bind: Bind) -> None:
        """Check that no pod gets the devices of a line that is kept for another: a small reference model."""
        placement = bind.placement
        if value.request.observer or self.policy.sharing is Sharing.ANY:
            return
        started = {holder.workload for holder in self.ledger if holder.together and holder.workload is not None}
        own = value.request.line.workload if value.request.line is not None else None
        for workload in started:
            had = {holder.index for holder in self.ledger if holder.workload == workload}
            kept = [slot for slot in self.lines[workload.map].slots if slot.index not in had]
            for slot in kept:
                found = self.nodes.resolve(slot.node)
                if workload == own or isinstance(found, Unschedulable) or found.name != placement.node:
                    continue
                assert not any(overlap(one, other) for one in slot.devices for other in placement.devices)

    @precondition(lambda self: self.in_flight)
    @rule(number=NUMBER, succeeds=st.booleans())
    def answer(self, number: int, succeeds: bool) -> None:  # noqa: FBT001
        """Let a bind reach the API server, or definitely fail."""
        uid = one_of(self.in_flight, number)
        if succeeds:
            self.bind(uid)
        elif not (uid in self.api and self.api[uid].bound):
            del self.in_flight[uid]
            self.ledger.forget(uid)
            self.ledger.apply(self.seen[uid])

    def bind(self, uid: str) -> None:
        """Bind a pod in the API server if it exists, is not being deleted and is unbound. The answer is lost."""
        value, bind = self.api.get(uid), self.in_flight.get(uid)
        if value is None or bind is None or value.bound or value.deleting_since:
            return
        place = bind.placement
        self.binds += 1
        self.write(bound(value, place, f"2026-11-21T01:00:00.{self.binds:06}Z", phase="Pending"))

    @precondition(lambda self: self.api)
    @rule(number=NUMBER, how=st.sampled_from(["terminates", "finishes", "is deleted"]))
    def end(self, number: int, how: str) -> None:
        """Let a pod terminate, finish or disappear."""
        uid = one_of(self.api, number)
        if how == "terminates":
            self.write(replace(self.api[uid], deleting_since="2026-11-21T01:00:00Z"))
        elif how == "finishes":
            self.write(replace(self.api[uid], phase="Succeeded"))
        else:
            del self.api[uid]
            self.events.append((uid, None))

    @precondition(lambda self: self.in_flight or self.events)
    @rule()
    def restart(self) -> None:
        """Start another scheduler, which lists. Binds in flight timed out and never reach the API server."""
        self.events.clear()
        self.in_flight.clear()
        self.seen = dict(self.api)
        self.begin()

    def begin(self) -> None:
        """Build the ledger and the cluster of a new scheduler."""
        self.ledger = self.rebuilt()
        self.cluster = self.known(self.ledger)

    def known(self, ledger: Ledger) -> Cluster:
        """Return all that a decision reads, without the caches of earlier decisions."""
        return Cluster(ledger, self.nodes, Volumes(), self.policy)

    def rebuilt(self) -> Ledger:
        """Return a new ledger of the nodes and pods as the watch showed them."""
        ledger = Ledger(self.policy)
        for each in self.nodes:
            ledger.apply_node(each)
        for value in getattr(self, "seen", {}).values():
            ledger.apply(value)
        return ledger

    def taken(self) -> set[tuple[str, str]]:
        """Return all held devices, found by a slow search."""
        return {(holder.node, device) for holder in self.ledger for device in holder.devices}

    @invariant()
    def a_rebuilt_ledger_equals_the_ledger(self) -> None:
        """Every entry of every table follows from the pods and nodes that the watch showed and the binds in flight."""
        rebuilt = self.rebuilt()
        for uid, bind in self.in_flight.items():
            rebuilt.assume(self.seen[uid], bind.placement)

        assert self.ledger.differences(rebuilt) == 0

    @invariant()
    def entries_are_those_of_the_moment_at_which_they_were_asked_for(self) -> None:
        """Whatever has changed since. The audit reads them in turns."""
        asked, then = getattr(self, "asked", (iter(()), {}))
        self.asked = self.ledger.entries(), dict(self.ledger.entries())

        assert dict(asked) == then

    @invariant()
    def a_pod_is_assumed_until_its_bind_ends(self) -> None:
        """Neither time nor stale watch events end it."""
        assert self.in_flight.keys() == {holder.ref.uid for holder in self.ledger if holder.assumed}

    @invariant()
    def indices_are_those_of_a_slow_search(self) -> None:
        """The table of indices has the same holders and the same free lines as a search over all holds."""
        for holder in self.ledger:
            if holder.workload is None:
                assert holder.index is None
                continue
            assert holder.index is not None
            assert holder == self.ledger.index_holder(holder.workload, holder.index)
            busy = {each.index for each in self.ledger if each.workload == holder.workload}
            busy |= {
                int(value.ref.name[-1])
                for uid, value in self.seen.items()
                if value.ref.name[-1].isdigit()
                and value.request.line is not None
                and value.request.line.workload == holder.workload
                and not (value.finished or value.deleting_since or self.ledger.holds(uid))
            }
            lines = self.lines[holder.workload.map]
            every = [slot.index for slot in lines.slots]
            free = list(self.ledger.indices.free(holder.workload, lines))
            assert [index for index in every if index not in busy] == free

    @invariant()
    def no_pod_holds_against_the_rules(self) -> None:
        """Neither the ledger nor the API server has a device or an index that two pods hold against the rules."""
        assert self.ledger.conflicts() == ()
        bound_pods = [value for value in self.api.values() if value.bound and not value.finished]
        for one, other in combinations(bound_pods, 2):
            self.check_index(one, other)
            self.check_devices(one, other)

    def check_index(self, one: Pod, other: Pod) -> None:
        """Check that two pods of a workload have two indices: a small reference model."""
        if one.request.line is not None and group(one) == group(other):
            assert index(one) != index(other)

    def check_devices(self, one: Pod, other: Pod) -> None:
        """Check that two pods of a node have no device in common, or may share it: a small reference model."""
        common = [(a, b) for a in devices(one) for b in devices(other) if one.node == other.node and overlap(a, b)]
        if not common or self.policy.sharing is Sharing.ANY:
            return
        assert self.policy.sharing is Sharing.SAME_WORKLOAD
        opted_in = one.request.sharing_any and other.request.sharing_any
        lines_agree = (
            None not in {one.request.line, other.request.line}
            and group(one) == group(other)
            and all(PARTS[a] == PARTS[b] and a in line(one) and b in line(other) for a, b in common)
        )
        assert opted_in or lines_agree or (is_part(one) and is_part(other))

    @invariant()
    def no_device_is_overcommitted(self) -> None:
        """The parts of a device have together no more memory than the device."""
        parts = [value for value in self.api.values() if value.bound and not value.finished and is_part(value)]
        for name in ("node1", "node2"):
            for device in PARTS:
                taken = [each.request.count.memory for each in parts if each.node == name and device in devices(each)]
                assert sum(taken) <= 8192

    @invariant()
    def the_newest_is_that_of_a_slow_search(self) -> None:
        """The newest hold with devices is the last bind in flight, else the hold with the latest time."""
        with_devices = [holder for holder in self.ledger if holder.devices]
        assumed = [holder for holder in with_devices if holder.assumed]
        expected = assumed[-1] if assumed else max(with_devices, key=lambda holder: holder.assigned_at, default=None)
        assert expected == self.ledger.devices.newest()


def overlap(one: str, other: str) -> bool:
    """Whether two names of devices overlap."""
    (gpu, part), (other_gpu, other_part) = PARTS[one], PARTS[other]
    return gpu == other_gpu and (part == other_part or None in {part, other_part})


def index(value: Pod) -> int | None:
    return None if value.request.line is None else value.request.line.index


def is_part(value: Pod) -> bool:
    """Whether a strategy placed the pod and it holds a part of its devices."""
    return value.request.line is None and not value.request.count.exclusive


def one_of(among: Iterable[str], number: int) -> str:
    """Return the uid at this position."""
    uids = sorted(among)
    return uids[number % len(uids)]


def group(value: Pod) -> tuple[object, ...]:
    """Return what identifies the pod's workload."""
    return value.ref.namespace, value.owner, value.request.line and value.request.line.workload.map


def line(value: Pod) -> set[str]:
    """Return the devices of the Binding, which are those of the map line."""
    return set(value.assignment.devices or ())


def devices(value: Pod) -> set[str]:
    """Return what a bound pod holds: the devices of its line, and those that its environment keeps."""
    if value.request.observer:
        return set()
    return line(value) | ({"1"} if value.request.keep_env else set())


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=100)
