"""Which pod holds which device, by whatever name of the device."""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_scheduler.core.cluster_events import DeviceChanged, QuotaChanged
from gpu_scheduler.core.ledger.devices import Devices
from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.placement_map import NUMBER, device_kind, parse_placement_map
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


def holder(name: str, devices: str, node: str = "node1", *, named: bool = True, **others: Any) -> Hold:
    """Return a hold of these devices; its map line names them if `named`."""
    claimed = tuple(filter(None, devices.split(",")))
    usual = {"limit": 0, "workload": TRAIN, "index": 0, "sharing_any": False, "deleting_since": None, "assumed": False}
    ref = PodRef("default", name, f"uid-{name}")
    return Hold(ref, node, claimed, claimed if named else (), **{**usual, **others})


def table(*holders: Hold, inventory: Inventory | None = None, plugin: int | None = None) -> Devices:
    """Return devices with these holds; node1 has this inventory and this number of devices of a plugin."""
    devices = Devices()
    devices.apply_node(Node("node1", inventory=inventory, advertised=plugin))
    for each in holders:
        devices.put(each)
    return devices


def test_devices_of_two_nodes_do_not_overlap() -> None:
    """The two devices have the same name."""
    assert table(holder("a", "0,1")).rivals("node2", "0") == ()


def test_names_of_one_device_have_one_key() -> None:
    """Index, UUID and MIG device of a GPU have its key; an unknown name is a key of its own."""
    devices = table(inventory=FULL)

    assert [devices.key("node1", name) for name in ("1", GPU_1, MIG_1A, GPU_9)] == ["1", "1", "1", GPU_9]
    assert devices.key("node9", GPU_1) == GPU_1


def test_a_gpu_and_its_mig_device_are_the_whole_gpu() -> None:
    """So the pod that holds both holds each other MIG device, too."""
    both = holder("a", f"1,{MIG_1A}")

    assert table(both, inventory=FULL).rivals("node1", MIG_1B) == (both,)


def test_a_limit_on_a_node_with_a_plugin_names_no_devices() -> None:
    """The pod's numbers count from 0 in its container; the ledger records the number of its devices without names."""
    plugged, named = holder("a", "0,1", limit=2), holder("b", "0", node="node2", limit=1)
    devices = table(plugged, named, plugin=4)

    assert (devices.rivals("node1", "0"), devices.named_holder("node1")) == ((), None)
    assert (devices.rivals("node2", "0"), devices.named_holder("node2")) == ((named,), named)
    assert [devices.unnamed(each) for each in (plugged, named)] == [2, 0]
    assert devices.named_holder("node3") is None
    assert devices.unnamed(holder("c", "0", node="node3", limit=1)) == 0
    assert devices.drop(plugged) == {QuotaChanged("default")}


def test_entries_tell_parts_of_a_gpu_and_numbers_of_devices() -> None:
    """Two pods have MIG devices of one GPU; of two with devices of a plugin one has ended."""
    split = dict(table(holder("a", MIG_1A), holder("b", MIG_1B), inventory=FULL).entries())
    ended = holder("c", "0,1", limit=2)
    plugged = table(ended, holder("d", "0", limit=1), plugin=4)
    plugged.drop(ended)

    assert [split["slices", "node1", "1", f"uid-{name}"] for name in "ab"] == [{MIG_1A}, {MIG_1B}]
    assert dict(plugged.entries())["namespace", "default"] == 1


A, B = holder("a", "0", index=0), holder("b", "0", index=1)


def test_a_device_of_an_unknown_node_has_no_holders() -> None:
    """The node has neither pods nor an inventory."""
    assert (Devices().holders_of("node1", 0), Devices().held("node1"), Devices().newest()) == ({}, {}, None)


def test_lines_may_share_a_device_of_an_unknown_node() -> None:
    """A pod may be bound to a node before the node's watch event arrives."""
    assert Devices().shared_by(A, SAME).allows(B, "0")


CONFLICTS = {
    "one device by two names": (FULL, holder("a", "0"), holder("b", GPU_0), "0"),
    "a GPU and its MIG device": (FULL, holder("a", MIG_1A), holder("b", "1", index=1), MIG_1A),
    "one device of several": (FULL, holder("a", "0,1"), holder("b", "1"), "1"),
    "no conflict of two MIG devices of one GPU": (FULL, holder("a", MIG_1A), holder("b", MIG_1B), None),
    "no conflict of names that may mean one device": (None, holder("a", "0"), holder("b", GPU_0), None),
    "no conflict of two lines of one map": (FULL, A, B, None),
    "a pod with a limit, with an inventory": (FULL, holder("a", "0", limit=1), holder("b", "0"), "0"),
    "no conflict of a pod with a limit, without an inventory": (
        None,
        holder("a", "0", limit=1),
        holder("b", "0"),
        None,
    ),
    "no conflict of devices of two nodes": (None, holder("a", "0"), holder("b", "0", node="node2"), None),
}


@pytest.mark.parametrize(("inventory", "one", "other", "device"), CONFLICTS.values(), ids=CONFLICTS)
def test_a_conflict_names_the_device(inventory: Inventory | None, one: Hold, other: Hold, device: str | None) -> None:
    """Each pair of pods that hold one device against the rules has one conflict, with the first pod's device name."""
    found = table(other, one, inventory=inventory).conflicts(SAME)

    assert [(each.first, each.second, each.device) for each in found] == ([(one, other, device)] if device else [])


def test_a_node_whose_pods_are_gone_is_not_looked_at() -> None:
    """They end while other nodes are looked at."""
    one, other = holder("a", "0"), holder("b", "0", index=1, workload=OTHER)
    devices = table(one, other)
    (node,) = devices.unchecked(SAME)
    for each in (one, other):
        devices.drop(each)

    devices.check(node, SAME)

    assert devices.conflicts(SAME) == ()


NAMES = ["0", "1", "7", GPU_0, GPU_1, GPU_9, MIG_1A, MIG_1B, MIG_9]
NODES = [("node1", inventory, plugin) for inventory in (None, COUNTED, FULL) for plugin in (None, 0, 4)]
HOLDERS = st.builds(
    holder,
    st.sampled_from("abcde"),
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(",".join),
    limit=st.sampled_from([0, 0, 0, 2]),
    index=st.integers(0, 1),
    workload=st.sampled_from([TRAIN, TRAIN, OTHER, None]),
    sharing_any=st.booleans(),
    named=st.booleans(),
    memory=st.sampled_from([0, 512, 4096]),
    shared=st.booleans(),
)


class DevicesMachine(RuleBasedStateMachine):
    """Holds are put and dropped while the node's inventory changes; the model compares all names of all pods."""

    def __init__(self) -> None:
        super().__init__()
        self.devices = Devices()
        self.held: dict[str, Hold] = {}
        self.node = Node("node1")

    @rule(given=HOLDERS)
    def put(self, given: Hold) -> None:
        """Put the hold of a pod, in place of an older hold of the same name."""
        self.drop(given.ref.name)
        self.held[given.ref.name] = given
        self.devices.put(given)

    @precondition(lambda self: self.held)
    @rule(name=st.sampled_from("abcde"))
    def drop(self, name: str) -> None:
        """Drop a hold: its keys and, if it held devices, the quota are in the events."""
        given = self.held.pop(name, None)
        if given is None:
            return
        quota = {QuotaChanged("default")} if self.counted([given]) else set()
        assert self.devices.drop(given) == self.keys(given) | quota

    @rule(known=st.sampled_from(NODES))
    def apply_node(self, known: tuple[str, Inventory | None, int | None]) -> None:
        """Change inventory or plugin: the keys of all holds are in the events."""
        held_keys = {key for each in self.held.values() for key in self.keys(each)}
        before, (name, inventory, plugin) = self.node, known
        self.node = Node(name, inventory=inventory, advertised=plugin)
        changed = (before.inventory, before.advertised is None) != (inventory, plugin is None)
        used = self.devices.usage.used("default")
        cured_by = self.devices.apply_node(self.node)
        assert held_keys <= cured_by if changed else not cured_by
        assert (QuotaChanged("default") in cured_by) == (self.devices.usage.used("default") < used)

    def keys(self, given: Hold) -> set[DeviceChanged]:
        """Return the events that requeue the pods that wait for its devices."""
        keys = {self.devices.key("node1", device) for device in self.names(given)}
        return {DeviceChanged("node1", key) for key in keys | {""}} if keys else set()

    def names(self, given: Hold) -> tuple[str, ...]:
        """Return the devices that it claims by name."""
        return () if given.limit and self.node.advertised is not None else given.devices

    def counted(self, given: Iterable[Hold]) -> int:
        """Return how many devices these pods hold, by any name; a device that several of them hold counts once."""
        names = {self.part_of(device) or device for each in given for device in self.names(each)}
        return len(names) + sum(each.limit for each in given if self.node.advertised is not None)

    def part_of(self, device: str) -> tuple[int, str | None] | None:
        """Return the GPU's index and, for a MIG device, its UUID; None if the inventory does not list the device."""
        for gpu in () if self.node.inventory is None else self.node.inventory.devices:
            if device in {str(gpu.index), gpu.uuid}:
                return gpu.index, None
            if device in gpu.mig_devices:
                return gpu.index, device
        return None

    def proven(self, one: str, other: str) -> bool:
        """Whether two names certainly overlap."""
        part, other_part = self.part_of(one), self.part_of(other)
        if part is None or other_part is None:
            return one == other
        return part[0] == other_part[0] and (part[1] == other_part[1] or None in {part[1], other_part[1]})

    def exclude(self, one: str, other: str) -> bool:
        """Whether two names overlap or may overlap."""
        names = {one: self.part_of(one), other: self.part_of(other)}
        unknown = [name for name, part in names.items() if part is None]
        # An inventory has all numbers, so an unknown one is none of its devices, by whatever name.
        no_device = len(unknown) == 1 and device_kind(unknown[0]) == NUMBER and self.node.inventory is not None
        vague = bool(unknown) and device_kind(one) != device_kind(other) and not no_device
        return vague or self.proven(one, other)

    def share(self, one: Hold, other: Hold, device: str) -> bool:
        """Whether the two may share the device by the default policy."""
        if (one.sharing_any and other.sharing_any) or (one.shared and other.shared):
            return True
        if one.workload is None or one.workload != other.workload or one.index == other.index:
            return False
        return all(
            any(name == device or self.part_of(name) == self.part_of(device) is not None for name in each.named)
            for each in (one, other)
        )

    @invariant()
    def rivals_are_those_of_a_slow_search(self) -> None:
        """The rivals are compared for every name that a pod could request."""
        in_order = [self.held[name] for name in sorted(self.held)]
        for asked in NAMES:
            expected = [each for each in in_order if any(self.exclude(asked, name) for name in self.names(each))]
            assert expected == sorted(self.devices.rivals("node1", asked), key=lambda each: each.ref.name)
        assert self.devices.named_holder("node1") == next((each for each in in_order if self.names(each)), None)

    @invariant()
    def holders_are_those_of_a_slow_search(self) -> None:
        """Holders claim the device, a part of it, or a name that may mean it."""
        for gpu in (0, 1, 7):
            holders = [
                each for each in self.held.values() if any(self.exclude(str(gpu), name) for name in self.names(each))
            ]
            expected = {each.ref.uid: each for each in holders}
            assert expected == dict(self.devices.holders_of("node1", gpu))
            if self.part_of(str(gpu)) is not None:
                assert expected == dict(self.devices.held("node1").get(str(gpu), {}))

    @invariant()
    def conflicts_are_those_of_a_slow_search(self) -> None:
        """Conflicts are pairs that certainly hold one device and may not share it."""
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
    def the_usage_of_a_namespace_is_that_of_a_slow_count(self) -> None:
        """A device counts once, however many of the namespace's pods hold it and by whatever names."""
        assert self.devices.usage.used("default") == self.counted(self.held.values())

    @invariant()
    def the_entries_are_those_of_a_new_start(self) -> None:
        """The entries follow from the holds and the node alone, not from the history."""
        fresh = table(*self.held.values(), inventory=self.node.inventory, plugin=self.node.advertised)
        assert dict(fresh.entries()) == dict(self.devices.entries())


TestDevicesMachine = DevicesMachine.TestCase


@pytest.mark.promise("hold-4", "hold-5")
@pytest.mark.parametrize("inventory", [None, COUNTED, FULL], ids=["no inventory", "a count alone", "an inventory"])
def test_names_of_one_device_overlap(inventory: Inventory | None) -> None:
    """Index, UUID and MIG devices of one GPU overlap; names that cannot be compared count as one device."""
    machine = DevicesMachine()
    machine.apply_node(("node1", inventory, None))
    for name in NAMES:
        machine.put(holder("a", name))
        machine.rivals_are_those_of_a_slow_search()
