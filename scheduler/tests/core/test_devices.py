"""Who holds which card, whatever name the card goes by."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_scheduler.core.cluster_events import DeviceChanged, QuotaChanged
from gpu_scheduler.core.ledger.devices import Devices
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import device_kind, parse_placement_map
from gpu_scheduler.core.policy import Sharing
from gpu_scheduler.core.refs import PodRef, WorkloadKey

GPU_0, GPU_1, GPU_9 = (f"GPU-{number}0000000-0000-0000-0000-000000000000" for number in (0, 1, 9))
MIG_1A, MIG_1B, MIG_9 = (f"MIG-{number}0000000-0000-0000-0000-000000000000" for number in (1, 2, 9))
FULL = Inventory((Device(0, GPU_0), Device(1, GPU_1, (MIG_1A, MIG_1B))))
COUNTED = counted(2)
ANY, SAME, NONE = Sharing.ANY, Sharing.SAME_WORKLOAD, Sharing.NONE
TRAIN, OTHER = (
    WorkloadKey("default", "StatefulSet", name, parse_placement_map("0=node1:0").digest) for name in ("train", "other")
)


def holder(  # noqa: PLR0913 - what a holder is made of
    name: str,
    devices: str,
    node: str = "node1",
    *,
    limit: int = 0,
    index: int = 0,
    workload: WorkloadKey | None = TRAIN,
    opted_in: bool = False,
    named: bool = True,
    memory: int = 0,
    shared: bool = False,
) -> Hold:
    """A pod that holds these devices, by its map line unless it is not `named`."""
    claimed = tuple(filter(None, devices.split(",")))
    return Hold(
        PodRef("default", name, f"uid-{name}"),
        node,
        claimed,
        claimed if named else (),
        limit,
        workload,
        index,
        opted_in,
        None,
        assumed=False,
        memory=memory,
        shared=shared,
    )


def table(*holders: Hold, inventory: Inventory | None = None, plugin: int | None = None) -> Devices:
    """Devices with these holders; node1 has this inventory and this plugin."""
    devices = Devices()
    devices.apply_node(Node("node1", inventory=inventory, advertised=plugin))
    for each in holders:
        devices.put(each)
    return devices


OVERLAPS = {
    "a card and itself": (None, "0", "0", True),
    "two cards": (None, "0", "1", False),
    "one UUID": (None, GPU_0, GPU_0, True),
    "two UUIDs": (None, GPU_0, GPU_1, False),
    "two slices": (None, MIG_1A, MIG_1B, False),
    "without an inventory a number and a UUID": (None, "0", GPU_1, True),
    "without an inventory a number and a slice": (None, "0", MIG_1A, True),
    "without an inventory a UUID and a slice": (None, GPU_0, MIG_1A, True),
    "with a mere count a number and a UUID": (COUNTED, "0", GPU_1, True),
    "with a mere count two numbers": (COUNTED, "0", "1", False),
    "with a mere count two slices": (COUNTED, MIG_1A, MIG_1B, False),
    "with an inventory a card's number and its UUID": (FULL, "0", GPU_0, True),
    "with an inventory a card's number and another's UUID": (FULL, "0", GPU_1, False),
    "with an inventory a card's number and its slice": (FULL, "1", MIG_1A, True),
    "with an inventory a card's UUID and its slice": (FULL, GPU_1, MIG_1B, True),
    "with an inventory a card and another's slice": (FULL, "0", MIG_1A, False),
    "with an inventory a slice and itself": (FULL, MIG_1A, MIG_1A, True),
    "with an inventory two slices of one card": (FULL, MIG_1A, MIG_1B, False),
    "a UUID that the inventory does not know and a number": (FULL, GPU_9, "0", True),
    "a slice that the inventory does not know and a UUID": (FULL, MIG_9, GPU_0, True),
    "a UUID that the inventory does not know and another": (FULL, GPU_9, GPU_0, False),
    "a UUID that the inventory does not know and itself": (FULL, GPU_9, GPU_9, True),
    "a number that the inventory does not know and another": (FULL, "7", "0", False),
}


@pytest.mark.parametrize(("inventory", "one", "other", "overlap"), OVERLAPS.values(), ids=OVERLAPS)
def test_which_devices_overlap(inventory: Inventory | None, one: str, other: str, overlap: bool) -> None:  # noqa: FBT001
    """Index, UUID and slices of one card overlap; names that nobody can compare are taken to be one card."""
    for held, asked in ((one, other), (other, one)):
        has = holder("a", held)
        assert table(has, inventory=inventory).rivals("node1", asked) == ((has,) if overlap else ())


def test_another_nodes_card_is_another_card() -> None:
    """Whatever its name."""
    assert table(holder("a", "0,1")).rivals("node2", "0") == ()


def test_all_rivals_are_named_in_order() -> None:
    """By name, so that every replica names the same one first."""
    first, second, third = holder("a", "0", index=0), holder("b", GPU_0, index=1), holder("c", f"{GPU_1},1", index=2)

    assert table(third, second, first, inventory=FULL).rivals("node1", "0") == (first, second)


LEARNED = {
    "what was vague becomes two cards": (None, FULL, "0", GPU_1, True, False),
    "what was vague becomes one card": (None, FULL, "0", GPU_0, True, True),
    "a count tells nothing of UUIDs": (None, COUNTED, "0", GPU_1, True, True),
    "a lost inventory makes it vague again": (FULL, None, "0", GPU_1, False, True),
    "cards that change places": (
        FULL,
        Inventory((Device(0, GPU_1), Device(1, GPU_0))),
        "0",
        GPU_1,
        False,
        True,
    ),
    "a card that is taken out": (FULL, Inventory((Device(0, GPU_0),)), GPU_1, "0", False, True),
}


@pytest.mark.parametrize(("before", "after", "held", "asked", "first", "then"), LEARNED.values(), ids=LEARNED)
def test_an_inventory_may_change_under_a_holder(  # noqa: PLR0913, PLR0917 - a row of the table
    before: Inventory | None,
    after: Inventory | None,
    held: str,
    asked: str,
    first: bool,  # noqa: FBT001
    then: bool,  # noqa: FBT001
) -> None:
    """A pod holds on to what it names; what that excludes follows the inventory as it is now."""
    devices = table(holder("a", held), inventory=before)
    answers = [bool(devices.rivals("node1", asked))]
    devices.apply_node(Node("node1", inventory=after))

    assert [*answers, bool(devices.rivals("node1", asked))] == [first, then]


def test_what_is_learned_wakes_who_waits_for_those_cards() -> None:
    """Every card that somebody holds, and the node as a whole; the same again wakes nobody."""
    devices = table(holder("a", "0"), holder("b", "1"))

    assert devices.apply_node(Node("node1", inventory=FULL)) == {
        DeviceChanged("node1", card) for card in ("", "0", "1")
    }
    assert devices.apply_node(Node("node1", inventory=FULL)) == frozenset()
    assert devices.apply_node(Node("node1")) == {DeviceChanged("node1", card) for card in ("", "0", "1")}


FREED = {
    "a card by number": (None, holder("a", "0"), {"", "0"}),
    "a card by UUID, where nobody knows its number": (None, holder("a", GPU_0), {"", GPU_0}),
    "a card by UUID": (FULL, holder("a", GPU_1), {"", "1"}),
    "two slices of one card": (FULL, holder("a", f"{MIG_1A},{MIG_1B}"), {"", "1"}),
    "two cards": (FULL, holder("a", f"{GPU_0},1"), {"", "0", "1"}),
    "nothing": (FULL, holder("a", ""), set()),
}


@pytest.mark.parametrize(("inventory", "given", "cards"), FREED.values(), ids=FREED)
def test_what_is_freed_is_told_by_card(inventory: Inventory | None, given: Hold, cards: set[str]) -> None:
    """Who waits for the card is woken under whichever name it asked; an observer's end wakes nobody."""
    devices = table(inventory=inventory)
    empty = dict(devices.entries())
    devices.put(given)

    cured_by = {DeviceChanged("node1", card) for card in cards} | ({QuotaChanged("default")} if cards else set())
    assert cured_by == devices.drop(given)
    assert empty == dict(devices.entries())


def test_a_holder_outlives_its_node() -> None:
    """The node object is gone, the pod is not: it still holds, and its end leaves nothing behind."""
    has = holder("a", "0")
    devices = table(has, inventory=FULL)
    devices.apply_node(Node("node1"))
    rivals = devices.rivals("node1", "0")
    devices.drop(has)

    assert rivals == (has,)
    assert list(devices.entries()) == []


def test_the_key_of_a_card() -> None:
    """Index, UUID and slice have one; what nobody knows is a card of its own."""
    devices = table(inventory=FULL)

    assert [devices.card("node1", name) for name in ("1", GPU_1, MIG_1A, GPU_9)] == ["1", "1", "1", GPU_9]
    assert devices.card("node9", GPU_1) == GPU_1


def test_where_a_plugin_hands_out_cards_a_limit_names_none() -> None:
    """Its numbers count from the container; so many cards are booked without a name."""
    plugged, named = holder("a", "0,1", limit=2), holder("b", "0", node="node2", limit=1)
    devices = table(plugged, named, plugin=4)

    assert (devices.rivals("node1", "0"), devices.named_holder("node1")) == ((), None)
    assert (devices.rivals("node2", "0"), devices.named_holder("node2")) == ((named,), named)
    assert [devices.unnamed(each) for each in (plugged, named)] == [2, 0]
    assert devices.named_holder("node3") is None
    assert devices.unnamed(holder("c", "0", node="node3", limit=1)) == 0
    assert devices.drop(plugged) == {QuotaChanged("default")}


def test_a_plugin_that_comes_and_goes_is_learned() -> None:
    """The same pod claims by name while no plugin answers its limit."""
    has = holder("a", "0", limit=1)
    devices = table(has)
    before = devices.named_holder("node1")
    cured_by = devices.apply_node(Node("node1", advertised=4))

    assert (before, devices.named_holder("node1")) == (has, None)
    assert cured_by == {DeviceChanged("node1", ""), DeviceChanged("node1", "0")}
    devices.apply_node(Node("node1"))
    assert devices.named_holder("node1") == has


def test_the_first_by_name_is_who_is_named() -> None:
    """Whoever came first."""
    assert table(holder("b", "1"), holder("a", "0")).named_holder("node1") == holder("a", "0")


A, B = holder("a", "0", index=0), holder("b", "0", index=1)
PART = holder("a", "0", workload=None, named=False, memory=4096, shared=True)
SHARED = {
    "two lines of one map": (FULL, A, B, "0", SAME, True),
    "one line twice": (FULL, A, replace(B, index=0), "0", SAME, False),
    "two workloads": (FULL, A, replace(B, workload=OTHER), "0", SAME, False),
    "two pods without a map": (FULL, replace(A, workload=None), replace(B, workload=None), "0", SAME, False),
    "a holder without a map": (FULL, A, replace(B, workload=None), "0", SAME, False),
    "two lines that name the card differently": (FULL, A, holder("b", GPU_0, index=1), "0", SAME, True),
    "two lines that may name the card differently": (None, A, holder("b", GPU_0, index=1), "0", SAME, False),
    "a line with the whole card, and one with a slice": (
        FULL,
        holder("a", "1", index=0),
        holder("b", MIG_1A, index=1),
        "1",
        SAME,
        False,
    ),
    "a line with a slice, and one with the whole card": (
        FULL,
        holder("a", MIG_1A, index=0),
        holder("b", "1", index=1),
        MIG_1A,
        SAME,
        False,
    ),
    "two lines with one slice": (FULL, holder("a", MIG_1A), holder("b", MIG_1A, index=1), MIG_1A, SAME, True),
    "what the first holds outside its line": (FULL, replace(A, named=()), B, "0", SAME, False),
    "what the second holds outside its line": (FULL, A, replace(B, named=()), "0", SAME, False),
    "both opted in": (FULL, replace(A, sharing_any=True), replace(B, workload=None, sharing_any=True), "0", SAME, True),
    "one opted in": (FULL, replace(A, sharing_any=True), replace(B, workload=OTHER), "0", SAME, False),
    "both placed by strategy to share": (FULL, PART, replace(PART, ref=B.ref), "0", SAME, True),
    "one placed by strategy to share": (FULL, PART, B, "0", SAME, False),
    "the operator forbids all, and both were to share": (FULL, PART, replace(PART, ref=B.ref), "0", NONE, False),
    "the operator allows all": (FULL, A, replace(B, workload=None), "0", ANY, True),
    "the operator forbids all": (FULL, A, B, "0", NONE, False),
    "the operator forbids all, and both opted in": (
        FULL,
        replace(A, sharing_any=True),
        replace(B, sharing_any=True),
        "0",
        NONE,
        False,
    ),
}


@pytest.mark.parametrize(("inventory", "one", "other", "device", "sharing", "allowed"), SHARED.values(), ids=SHARED)
def test_who_may_share(  # noqa: PLR0913, PLR0917 - a row of the table
    inventory: Inventory | None,
    one: Hold,
    other: Hold,
    device: str,
    sharing: Sharing,
    allowed: bool,  # noqa: FBT001
) -> None:
    """Two pods share a device where two lines of their map name it, both opt in, or the operator says so."""
    assert allowed == table(one, other, inventory=inventory).may_share(one, other, device, sharing)


ON_A_CARD = {
    "nobody": ([], 0, ""),
    "several": ([holder("a", "0"), holder("b", "1,0")], 0, "ab"),
    "not who has another card": ([holder("a", "0")], 1, ""),
    "who has its UUID": ([holder("a", GPU_0)], 0, "a"),
    "one pod by two names": ([holder("a", f"0,{GPU_0}")], 0, "a"),
    "who has two slices of it": ([holder("a", MIG_1A), holder("b", MIG_1B)], 1, "ab"),
    "who has a name that may mean it": ([holder("a", GPU_9), holder("b", "0")], 0, "ab"),
    "not who is on another node": ([holder("a", "0", "node2")], 0, ""),
}


@pytest.mark.parametrize(("holders", "card", "names"), ON_A_CARD.values(), ids=ON_A_CARD)
def test_who_has_a_card(holders: list[Hold], card: int, names: str) -> None:
    """By whatever name they call it; asked for one card, and for all of the node at once."""
    devices = table(*holders, inventory=FULL)
    expected = {f"uid-{name}" for name in names}

    assert expected == set(devices.holders_of("node1", card))
    assert expected == set(devices.held("node1").get(str(card), {}))


def test_a_card_of_a_node_that_nobody_has_seen_is_nobodys() -> None:
    """Neither pods nor inventory are known there."""
    assert (Devices().holders_of("node1", 0), Devices().held("node1"), Devices().newest()) == ({}, {}, None)


def test_the_newest_is_who_came_last_and_is_still_there() -> None:
    """Wherever it is; when its node's inventory changes, it came when it came."""
    first, last = (replace(holder(name, "0", node), assumed=True) for name, node in (("b", "node1"), ("a", "node2")))
    devices = table(first, last)
    devices.apply_node(Node("node1", inventory=FULL))
    newest = devices.newest()
    devices.drop(last)

    assert (newest, devices.newest()) == (last, first)


def test_lines_may_name_a_card_of_a_node_that_nobody_has_seen() -> None:
    """A pod may stand on a node before the watch of nodes tells of it."""
    assert Devices().may_share(A, B, "0", SAME)


CONFLICTS = {
    "one card by two names": (FULL, holder("a", "0"), holder("b", GPU_0), "0"),
    "a card and its slice": (FULL, holder("a", MIG_1A), holder("b", "1", index=1), MIG_1A),
    "one card of several": (FULL, holder("a", "0,1"), holder("b", "1"), "1"),
    "two slices of one card are none": (FULL, holder("a", MIG_1A), holder("b", MIG_1B), None),
    "what may or may not be one card is no proof": (None, holder("a", "0"), holder("b", GPU_0), None),
    "two lines of one map are none": (FULL, A, B, None),
    "a pod with a limit, where the cards are known": (FULL, holder("a", "0", limit=1), holder("b", "0"), "0"),
    "a pod with a limit proves nothing where they are not": (None, holder("a", "0", limit=1), holder("b", "0"), None),
    "other nodes are other cards": (None, holder("a", "0"), holder("b", "0", node="node2"), None),
}


@pytest.mark.parametrize(("inventory", "one", "other", "device"), CONFLICTS.values(), ids=CONFLICTS)
def test_conflicts(inventory: Inventory | None, one: Hold, other: Hold, device: str | None) -> None:
    """One device held twice against the rules, once for each pair of pods, as the first by name calls it."""
    found = table(other, one, inventory=inventory).conflicts(SAME)

    assert [(each.first, each.second, each.device) for each in found] == ([(one, other, device)] if device else [])


def test_a_conflict_comes_and_goes_with_the_inventory() -> None:
    """Two names turn out to be one card: nobody is at fault, and both are told."""
    devices = table(holder("a", "0"), holder("b", GPU_0))
    counts = [len(devices.conflicts(SAME))]
    for inventory in (FULL, None):
        devices.apply_node(Node("node1", inventory=inventory))
        counts.append(len(devices.conflicts(SAME)))

    assert counts == [0, 1, 0]


NAMES = ["0", "1", "7", GPU_0, GPU_1, GPU_9, MIG_1A, MIG_1B]
NODES = [("node1", inventory, plugin) for inventory in (None, COUNTED, FULL) for plugin in (None, 0, 4)]
HOLDERS = st.builds(
    holder,
    st.sampled_from("abcde"),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(",".join),
    limit=st.sampled_from([0, 0, 0, 2]),
    index=st.integers(0, 1),
    workload=st.sampled_from([TRAIN, TRAIN, OTHER, None]),
    opted_in=st.booleans(),
    named=st.booleans(),
    memory=st.sampled_from([0, 512, 4096]),
    shared=st.booleans(),
)


class Lives(RuleBasedStateMachine):
    """Pods come and go while the node's inventory changes; the model compares all names of all pods, two by two."""

    def __init__(self) -> None:
        super().__init__()
        self.devices = Devices()
        self.held: dict[str, Hold] = {}
        self.node = Node("node1")

    @rule(given=HOLDERS)
    def put(self, given: Hold) -> None:
        """A pod comes, perhaps in place of another of its name."""
        self.drop(given.ref.name)
        self.held[given.ref.name] = given
        self.devices.put(given)

    @precondition(lambda self: self.held)
    @rule(name=st.sampled_from("abcde"))
    def drop(self, name: str) -> None:
        """A pod goes; whoever waited for one of its devices is woken by the key he was given."""
        given = self.held.pop(name, None)
        if given is None:
            return
        quota = {QuotaChanged("default")} if self.counted([given]) else set()
        assert self.devices.drop(given) == self.keys(given) | quota

    @rule(known=st.sampled_from(NODES))
    def apply_node(self, known: tuple[str, Inventory | None, int | None]) -> None:
        """The monitor or the plugin tells something else; whoever waits for any holder is woken."""
        waited = {key for each in self.held.values() for key in self.keys(each)}
        before, (name, inventory, plugin) = self.node, known
        self.node = Node(name, inventory=inventory, advertised=plugin)
        changed = (before.inventory, before.advertised is None) != (inventory, plugin is None)
        used = self.devices.usage.used("default")
        cured_by = self.devices.apply_node(self.node)
        assert waited <= cured_by if changed else not cured_by
        assert (QuotaChanged("default") in cured_by) == (self.devices.usage.used("default") < used)

    def keys(self, given: Hold) -> set[DeviceChanged]:
        """By what those are woken who wait for it."""
        cards = {self.devices.card("node1", device) for device in self.names(given)}
        return {DeviceChanged("node1", card) for card in cards | {""}} if cards else set()

    def names(self, given: Hold) -> tuple[str, ...]:
        """What it claims by name."""
        return () if given.limit and self.node.advertised is not None else given.devices

    def counted(self, given: Iterable[Hold]) -> int:
        """How many devices these pods hold, whatever they call them; a device that several of them hold is one."""
        names = {self.place(device) or device for each in given for device in self.names(each)}
        return len(names) + sum(each.limit for each in given if self.node.advertised is not None)

    def place(self, device: str) -> tuple[int, str | None] | None:
        """Where the inventory has it: the card, and the slice if it is one."""
        for card in () if self.node.inventory is None else self.node.inventory.cards:
            if device in {str(card.index), card.uuid}:
                return card.index, None
            if device in card.slices:
                return card.index, device
        return None

    def proven(self, one: str, other: str) -> bool:
        """Two names certainly mean silicon in common."""
        here, there = self.place(one), self.place(other)
        if here is None or there is None:
            return one == other
        return here[0] == there[0] and (here[1] == there[1] or None in {here[1], there[1]})

    def exclude(self, one: str, other: str) -> bool:
        """Two names mean silicon in common, or may do so."""
        vague = None in {self.place(one), self.place(other)} and device_kind(one) != device_kind(other)
        return vague or self.proven(one, other)

    def share(self, one: Hold, other: Hold, device: str) -> bool:
        """By the default policy."""
        if (one.sharing_any and other.sharing_any) or (one.shared and other.shared):
            return True
        if one.workload is None or one.workload != other.workload or one.index == other.index:
            return False
        return all(
            any(name == device or self.place(name) == self.place(device) is not None for name in each.named)
            for each in (one, other)
        )

    @invariant()
    def rivals_are_those_of_a_slow_search(self) -> None:
        """For every name that a pod could ask for."""
        in_order = [self.held[name] for name in sorted(self.held)]
        for asked in NAMES:
            expected = [each for each in in_order if any(self.exclude(asked, name) for name in self.names(each))]
            assert expected == list(self.devices.rivals("node1", asked))
        assert self.devices.named_holder("node1") == next((each for each in in_order if self.names(each)), None)

    @invariant()
    def a_cards_holders_are_those_of_a_slow_search(self) -> None:
        """Whoever claims the card, a part of it, or what may be it."""
        for card in (0, 1, 7):
            holders = [
                each for each in self.held.values() if any(self.exclude(str(card), name) for name in self.names(each))
            ]
            expected = {each.ref.uid: each for each in holders}
            assert expected == dict(self.devices.holders_of("node1", card))
            if self.place(str(card)) is not None:
                assert expected == dict(self.devices.held("node1").get(str(card), {}))

    @invariant()
    def conflicts_are_those_of_a_slow_search(self) -> None:
        """Pairs that certainly have a device in common and may not share it."""
        vague = self.node.inventory is None
        in_order = [self.held[name] for name in sorted(self.held) if not (vague and self.held[name].limit)]
        expected = [
            (one, other)
            for one, other in combinations(in_order, 2)
            for met in [{a for a in self.names(one) if any(self.proven(a, b) for b in self.names(other))}]
            if any(not self.share(one, other, device) for device in met)
        ]
        assert expected == [(each.first, each.second) for each in self.devices.conflicts(SAME)]

    @invariant()
    def a_namespaces_devices_are_those_of_a_slow_count(self) -> None:
        """Each counts once, however many of its pods hold it and whatever they call it."""
        assert self.devices.usage.used("default") == self.counted(self.held.values())

    @invariant()
    def the_tables_are_those_of_a_new_start(self) -> None:
        """Whatever happened before."""
        fresh = table(*self.held.values(), inventory=self.node.inventory, plugin=self.node.advertised)
        assert dict(fresh.entries()) == dict(self.devices.entries())


TestLivesOfDevices = Lives.TestCase
