"""The ledger against a small cluster that does what clusters do: late events, lost answers, restarts, pods that end."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gpu_scheduler.core import decide as deciding
from gpu_scheduler.core.cluster_events import DeviceChanged
from gpu_scheduler.core.decide import decide
from gpu_scheduler.core.decision import Bind
from gpu_scheduler.core.filters.volumes import Volumes
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.pods.placement_map import parse_placement_map
from gpu_scheduler.core.pods.pod import Pod
from gpu_scheduler.core.policy import Policy, Sharing
from gpu_scheduler.core.refs import Owner
from tests.core.build import PCI, bound, container, node, nodes, pod, visible

GPU_0 = "GPU-00000000-0000-0000-0000-000000000000"
SLICES = [f"MIG-11111111-0000-0000-0000-00000000000{number}" for number in (1, 2)]
# What every node really has, whatever its inventory lets us know of it: a card and a slice of it.
PLACES = {"0": (0, None), "1": (1, None), "2": (2, None), GPU_0: (0, None), **{uuid: (1, uuid) for uuid in SLICES}}
KNOWN = Inventory(
    (
        Device(0, GPU_0, memory=8192),
        Device(1, "GPU-11111111-0000-0000-0000-000000000000", tuple(SLICES), memory=8192),
        Device(2, memory=8192),
    )
)
INVENTORIES = [None, counted(2), KNOWN]
MAPS = [
    "0=node1:0\n1=node1:0,1\n2=node2:0",
    "0=node1:1\n1=node1:1\n2=gpus:0,1",
    f"0=node1:{GPU_0}\n1=node1:{SLICES[0]}\n2=node1:{SLICES[1]}\n3=node1:{GPU_0}",
]
OWNERS = [None, Owner("StatefulSet", "a"), Owner("StatefulSet", "b")]
EXTRAS = [
    {},
    {},
    {},
    {"agentaflow.gpu/sharing": "any"},
    {"agentaflow.gpu/observer": "true"},
    {"agentaflow.gpu/keep-env": "true"},
]
# What a pod without a map leaves to a strategy.
WISHES = [
    {"agentaflow.gpu/count": "1"},
    {"agentaflow.gpu/count": "2", "agentaflow.gpu/scheduling-strategy": "best_fit"},
    {"agentaflow.gpu/count": "1", "agentaflow.gpu/memory": "8192", "agentaflow.gpu/scheduling-strategy": "priority"},
    *[
        {
            "agentaflow.gpu/count": "1",
            "agentaflow.gpu/memory": size,
            "agentaflow.gpu/exclusive": "false",
            "agentaflow.gpu/scheduling-strategy": "round_robin",
        }
        for size in ("2048", "4096", "4097")
    ],
]
NUMBER = st.integers(0, 5)
# A pod without a number of its own takes any line.
ASKS = st.tuples(st.sampled_from(MAPS), st.sampled_from(EXTRAS)) | st.builds(
    lambda wish, extra: (None, {**wish, **extra}), st.sampled_from(WISHES), st.sampled_from(EXTRAS)
)
PODS = st.tuples(
    st.sampled_from(["0", "1", "2", "any", "other"]),
    ASKS,
    st.sampled_from(OWNERS),
    st.sampled_from([0, 1, 2, 3, 3, 3]),
)
Given = tuple[str, tuple[str | None, dict[str, str]], Owner | None, int]
KEPT = (container((visible("1"), PCI)),)


class Cluster(RuleBasedStateMachine):
    """`api` is the truth, `events` what the watch has yet to tell, `seen` what it told; `flying` are binds."""

    @initialize(
        sharing=st.sampled_from([*Sharing, Sharing.SAME_WORKLOAD]),
        known=st.lists(st.sampled_from(INVENTORIES), min_size=2, max_size=2),
        first=st.lists(PODS, min_size=2, max_size=4),
    )
    def start(self, sharing: Sharing, known: list[Inventory | None], first: list[Given]) -> None:
        """A cluster of two nodes, one of which has an alias, and the first pods."""
        self.policy = Policy(sharing=sharing)
        one, two = known
        self.nodes = nodes(node("node1", inventory=one), node("node2", alias="gpus", inventory=two))
        self.lines = {each.digest: each for each in map(parse_placement_map, MAPS)}
        self.begin()
        self.api: dict[str, Pod] = {}
        self.seen: dict[str, Pod] = {}
        self.flying: dict[str, Bind] = {}
        self.events: deque[tuple[str, Pod | None]] = deque()
        self.made = self.landed = 0
        for each in first:
            self.create(each)

    def write(self, value: Pod) -> None:
        """The API stores a pod, and the watch will tell."""
        self.api[value.ref.uid] = value
        self.events.append((value.ref.uid, value))

    @rule(given=PODS)
    def create(self, given: Given) -> None:
        """Somebody creates a pod, perhaps under an old name; it gets some way at once, or all."""
        name, (text, extra), owner, speed = given
        self.made += 1
        new = pod(f"pod-{name}", text, owner=owner, annotations=extra)
        if new.request.keep_env:
            new = pod(f"pod-{name}", text, owner=owner, annotations=extra, containers=KEPT)
        uid = f"uid-{self.made}"
        self.write(replace(new, ref=replace(new.ref, uid=uid)))
        if speed > 0:
            self.settle()
        if speed > 1:
            self.look_at(uid)
        if speed > 2:
            self.land(uid)

    @precondition(lambda self: self.events)
    @rule(all_of_them=st.booleans())
    def watch(self, all_of_them: bool) -> None:  # noqa: FBT001
        """The watch tells of one change, or catches up."""
        self.hear()
        if all_of_them:
            self.settle()

    def settle(self) -> None:
        """The watch catches up."""
        while self.events:
            self.hear()

    def hear(self) -> None:
        """One event; whatever it freed is said to be free."""
        uid, value = self.events.popleft()
        before = self.taken()
        cured_by = self.ledger.forget(uid) if value is None else self.ledger.apply(value)
        if value is None:
            self.seen.pop(uid, None)
            self.flying.pop(uid, None)
        else:
            self.seen[uid] = value
            if value.bound or value.finished:
                self.flying.pop(uid, None)
        freed = {DeviceChanged(node, self.ledger.devices.card(node, device)) for node, device in before - self.taken()}
        assert freed <= cured_by

    @rule(
        which=st.sampled_from(INVENTORIES),
        name=st.sampled_from(["node1", "node2"]),
        read=st.sampled_from([{}, {}, {0: DeviceReading(used=8000)}, {0: DeviceReading(health=Health.UNHEALTHY)}]),
        stale=st.sampled_from([False, False, True]),
    )
    def apply_node(self, which: Inventory | None, name: str, read: dict[int, DeviceReading], stale: bool) -> None:  # noqa: FBT001
        """A node's monitor tells what it has and how that does, or falls silent."""
        alias = "gpus" if name == "node2" else None
        changed = node(name, inventory=which, alias=alias, readings=read, stale=stale)
        self.nodes.apply(changed)
        self.ledger.apply_node(changed)

    @precondition(lambda self: self.seen)
    @rule()
    def schedule(self) -> None:
        """The scheduler looks at all pods as it has seen them, and sends the binds it decides on."""
        for uid in sorted(self.seen):
            self.look_at(uid)

    def look_at(self, uid: str) -> None:
        """One pod's turn; what earlier turns left behind makes no difference."""
        decision = decide(self.seen[uid], self.cluster)
        assert decision == decide(self.seen[uid], self.known(self.ledger))
        if isinstance(decision, Bind):
            self.ledger.assume(self.seen[uid], decision.placement)
            self.flying[uid] = decision

    @precondition(lambda self: self.flying)
    @rule(number=NUMBER, lands=st.booleans())
    def answer(self, number: int, lands: bool) -> None:  # noqa: FBT001
        """A bind reaches the API, or definitely fails."""
        uid = one_of(self.flying, number)
        if lands:
            self.land(uid)
        elif not (uid in self.api and self.api[uid].bound):
            del self.flying[uid]
            self.ledger.forget(uid)
            self.ledger.apply(self.seen[uid])

    def land(self, uid: str) -> None:
        """The API takes a bind if the pod is still there, not deleting and unbound. Its answer is lost."""
        value, bind = self.api.get(uid), self.flying.get(uid)
        if value is None or bind is None or value.bound or value.deleting_since:
            return
        place = bind.placement
        self.landed += 1
        self.write(bound(value, place, f"2026-11-21T01:00:00.{self.landed:06}Z", phase="Pending"))

    @precondition(lambda self: self.api)
    @rule(number=NUMBER, how=st.sampled_from(["terminates", "finishes", "is gone"]))
    def end(self, number: int, how: str) -> None:
        """A pod comes to its end, step by step or at once."""
        uid = one_of(self.api, number)
        if how == "terminates":
            self.write(replace(self.api[uid], deleting_since="2026-11-21T01:00:00Z"))
        elif how == "finishes":
            self.write(replace(self.api[uid], phase="Succeeded"))
        else:
            del self.api[uid]
            self.events.append((uid, None))

    @precondition(lambda self: self.flying or self.events)
    @rule()
    def restart(self) -> None:
        """The scheduler dies with all it knew, and another lists. What was flying never lands: its time is over."""
        self.events.clear()
        self.flying.clear()
        self.seen = dict(self.api)
        self.begin()

    def begin(self) -> None:
        """A scheduler starts."""
        self.ledger = self.rebuilt()
        self.cluster = self.known(self.ledger)

    def known(self, ledger: Ledger) -> deciding.Cluster:
        """All that a decision reads, of which nothing was asked yet."""
        return deciding.Cluster(ledger, self.nodes, Volumes(), self.policy)

    def rebuilt(self) -> Ledger:
        """A ledger made of the nodes and pods as they were seen, and of nothing else."""
        ledger = Ledger(self.policy)
        for each in self.nodes:
            ledger.apply_node(each)
        for value in getattr(self, "seen", {}).values():
            ledger.apply(value)
        return ledger

    def taken(self) -> set[tuple[str, str]]:
        """Devices that somebody holds, found the slow way."""
        return {(holder.node, device) for holder in self.ledger for device in holder.devices}

    @invariant()
    def a_rebuilt_ledger_equals_the_live_one(self) -> None:
        """Every entry of every table follows from the pods and nodes as they were seen, and from binds in the air."""
        rebuilt = self.rebuilt()
        for uid, bind in self.flying.items():
            rebuilt.assume(self.seen[uid], bind.placement)

        assert self.ledger.differences(rebuilt) == 0

    @invariant()
    def an_assumption_lives_as_long_as_its_bind(self) -> None:
        """Neither time nor stale events end it."""
        assert self.flying.keys() == {holder.ref.uid for holder in self.ledger if holder.assumed}

    @invariant()
    def the_answers_agree_with_a_slow_search(self) -> None:
        """The table of indices says what a walk over all holders says, the lowest free one included."""
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
    def nobody_holds_against_the_rules(self) -> None:
        """Neither in the ledger nor in the API is a device or an index given twice."""
        assert self.ledger.conflicts() == ()
        live = [value for value in self.api.values() if value.bound and not value.finished]
        for one, other in combinations(live, 2):
            self.check_index(one, other)
            self.check_devices(one, other)

    def check_index(self, one: Pod, other: Pod) -> None:
        """A small reference model: two pods of a workload have two indices."""
        if one.request.line is not None and group(one) == group(other):
            assert index(one) != index(other)

    def check_devices(self, one: Pod, other: Pod) -> None:
        """A small reference model: two pods of a node have no device in common, or may share it."""
        met = [(a, b) for a in devices(one) for b in devices(other) if one.node == other.node and overlap(a, b)]
        if not met or self.policy.sharing is Sharing.ANY:
            return
        assert self.policy.sharing is Sharing.SAME_WORKLOAD
        opted_in = one.request.sharing_any and other.request.sharing_any
        lines_agree = (
            None not in {one.request.line, other.request.line}
            and group(one) == group(other)
            and all(PLACES[a] == PLACES[b] and a in line(one) and b in line(other) for a, b in met)
        )
        assert opted_in or lines_agree or (parted(one) and parted(other))

    @invariant()
    def no_card_is_promised_twice(self) -> None:
        """What the parts of a card take is together no more than the card has."""
        parts = [value for value in self.api.values() if value.bound and not value.finished and parted(value)]
        for name in ("node1", "node2"):
            for device in PLACES:
                taken = [memory(each) for each in parts if each.node == name and device in devices(each)]
                assert sum(taken) <= 8192

    @invariant()
    def the_newest_is_that_of_a_slow_search(self) -> None:
        """The last of the binds in the air, else who has the newest time; who claims nothing takes no turn."""
        takers = [holder for holder in self.ledger if holder.devices]
        assumed = [holder for holder in takers if holder.assumed]
        expected = assumed[-1] if assumed else max(takers, key=lambda holder: holder.assigned_at, default=None)
        assert expected == self.ledger.devices.newest()


def overlap(one: str, other: str) -> bool:
    """Whether two names mean silicon in common."""
    (card, part), (other_card, other_part) = PLACES[one], PLACES[other]
    return card == other_card and (part == other_part or None in {part, other_part})


def index(value: Pod) -> int | None:
    """What the Binding said."""
    return None if value.request.line is None else value.request.line.index


def parted(value: Pod) -> bool:
    """A strategy placed it, and it takes a part of its cards."""
    return value.request.line is None and not value.request.count.exclusive


def memory(value: Pod) -> int:
    """What it says that it takes."""
    return value.request.count.memory


def one_of(among: Iterable[str], number: int) -> str:
    """A pod by lot."""
    uids = sorted(among)
    return uids[number % len(uids)]


def group(value: Pod) -> tuple[object, ...]:
    """What makes two pods one workload."""
    return value.ref.namespace, value.owner, value.request.line and value.request.line.workload.map


def line(value: Pod) -> set[str]:
    """What the Binding said, which is what the map line says."""
    return set(value.assignment.devices or ())


def devices(value: Pod) -> set[str]:
    """What a bound pod claims: its line, and what its environment keeps."""
    if value.request.observer:
        return set()
    return line(value) | ({"1"} if value.request.keep_env else set())


TestLivesOfALedger = Cluster.TestCase
TestLivesOfALedger.settings = settings(max_examples=100)
