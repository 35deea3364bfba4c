"""Which devices a pool has, by the slices that its driver has published so far."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.device_pools import DeviceId, DevicePools, DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.core.nodes.nodes import Node

A, B, C = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "abc")
MIG = "MIG-11111111-0000-0000-0000-000000000000"
DRIVER = "gpu.nvidia.com"


def device(uuid: str, name: str = "", **more: object) -> PublishedDevice:
    """Return a device of node1's pool."""
    return PublishedDevice(DeviceId(DRIVER, "node1", name or f"gpu-{uuid[4]}"), uuid, **more)  # type: ignore[arg-type]


def part(
    name: str, *devices: PublishedDevice, generation: int = 1, slices: int = 1, node: str = "node1"
) -> DeviceSlice:
    """Return one slice of node1's pool."""
    return DeviceSlice(name, node, DRIVER, "node1", generation, slices, devices)


TABLE: dict[str, tuple[list[DeviceSlice], list[str]]] = {
    "no slice": ([], []),
    "one slice": ([part("s1", device(A), device(B))], [A, B]),
    "two slices of one generation": ([part("s1", device(A), slices=2), part("s2", device(B), slices=2)], [A, B]),
    "a slice is missing": ([part("s1", device(A), slices=2)], []),
    "a new generation replaces the old one": ([part("s1", device(A)), part("s2", device(B), generation=2)], [B]),
    "an incomplete generation leaves the one before": (
        [part("s1", device(A)), part("s2", device(B), generation=2, slices=2)],
        [A],
    ),
    "a slice that is written again in place": ([part("s1", device(A)), part("s1", device(B), generation=2)], [B]),
    "a device in two slices": ([part("s1", device(A), slices=2), part("s2", device(A), slices=2)], []),
    "slices of two nodes": ([part("s1", device(A), slices=2), part("s2", device(B), slices=2, node="node2")], []),
    "slices that disagree about their number": ([part("s1", device(A), slices=2), part("s2", device(B))], []),
}


def published(slices: Iterable[DeviceSlice]) -> DevicePools:
    """Return pools to which these slices were applied."""
    pools = DevicePools()
    for each in slices:
        pools.apply(each)
    return pools


@pytest.mark.promise("isolate-10")
@pytest.mark.parametrize(("slices", "uuids"), TABLE.values(), ids=TABLE)
def test_a_pool_has_the_devices_of_its_highest_complete_generation(slices: list[DeviceSlice], uuids: list[str]) -> None:
    """Each of them is found by its UUID and by its id, and no other is."""
    pools = published(slices)

    found = {uuid: pools.find("node1", uuid) for uuid in (A, B, C)}
    assert [uuid for uuid, known in found.items() if known is not None] == uuids
    for uuid, known in found.items():
        assert known is None or pools.where(known.id) == ("node1", uuid)


INVENTORIES: dict[str, tuple[list[PublishedDevice], Inventory | None]] = {
    "the driver publishes the indices": (
        [device(A, index=1), device(B, index=0)],
        Inventory((Device(0, B), Device(1, A))),
    ),
    "it publishes none: they are in order of the bus": (
        [device(A, bus="0000:41:00.0"), device(B, bus="0000:01:00.0")],
        Inventory((Device(0, B), Device(1, A))),
    ),
    "it publishes one for some": (
        [device(A, bus="0000:41:00.0", index=0), device(B, bus="0000:01:00.0")],
        Inventory((Device(0, B), Device(1, A))),
    ),
    "two GPUs have one index": (
        [device(A, bus="0000:41:00.0", index=0), device(B, bus="0000:01:00.0", index=0)],
        Inventory((Device(0, B), Device(1, A))),
    ),
    "a MIG device belongs to its GPU": (
        [device(A, index=0, model="A100", memory=40960), device(MIG, parent=A, index=0)],
        Inventory((Device(0, A, (MIG,), "A100", 40960),)),
    ),
    "two devices have one UUID": ([device(A, "gpu-0", index=0), device(A, "gpu-1", index=1)], None),
    "no GPU": ([device(MIG)], None),
}


@pytest.mark.parametrize(("devices", "inventory"), INVENTORIES.values(), ids=INVENTORIES)
def test_a_node_has_an_inventory_from_its_slices(devices: list[PublishedDevice], inventory: Inventory | None) -> None:
    """A map may then name the devices by index and by UUID."""
    pools = published([part("s1", *devices)])

    assert pools.inventory("node1") == inventory
    assert pools.inventory("node2") is None


def test_only_a_change_of_the_devices_is_reported() -> None:
    """A node is read again for each slice otherwise."""
    pools = DevicePools()

    assert pools.apply(part("s1", device(A))) == {"node1"}
    assert pools.apply(part("s1", device(A))) == set()
    assert pools.apply(part("s2", device(B), generation=2, slices=2)) == set()
    assert pools.apply(part("s1", device(A), node="node2")) == {"node1", "node2"}
    assert pools.forget(part("s1", device(A), node="node2")) == {"node2"}
    assert pools.forget(part("s1", device(A))) == set()


slices = st.builds(
    part,
    st.sampled_from(("s1", "s2", "s3")),
    st.sampled_from([device(A), device(B, index=3), device(C)]),
    generation=st.integers(1, 3),
    slices=st.integers(1, 2),
    node=st.sampled_from(("node1", "node2")),
)


@examples(st.lists(st.tuples(slices, st.booleans()), max_size=12))
def test_the_order_of_events_does_not_matter(events: list[tuple[DeviceSlice, bool]]) -> None:
    """Pools that lived through events equal pools that read only the slices that are left."""
    pools, left = DevicePools(), dict[str, DeviceSlice]()
    for each, gone in events:
        if gone and each.name in left:
            pools.forget(left.pop(each.name))
        elif not gone:
            pools.apply(each)
            left[each.name] = each
    fresh = published(left.values())

    for node in ("node1", "node2"):
        assert pools.inventory(node) == fresh.inventory(node)
        assert [pools.find(node, uuid) for uuid in (A, B, C)] == [fresh.find(node, uuid) for uuid in (A, B, C)]
    known = [device(uuid).id for uuid in (A, B, C)]
    assert list(map(pools.where, known)) == list(map(fresh.where, known))


def test_a_pool_of_another_driver_on_the_same_node_is_kept_apart() -> None:
    """Both publish devices of the node."""
    ours = replace(
        part("s2", replace(device(B), id=DeviceId("gpu.agentaflow.io", "node1", "b"))), driver="gpu.agentaflow.io"
    )
    pools = published([part("s1", device(A)), ours])

    found = [pools.find("node1", uuid) for uuid in (A, B)]
    ids = [each.id for each in found if each is not None]
    assert ids == [DeviceId(DRIVER, "node1", "gpu-a"), DeviceId("gpu.agentaflow.io", "node1", "b")]


PUBLISHED: dict[str, tuple[Node, bool]] = {
    "each device": (Node("node1", inventory=Inventory((Device(0, A), Device(1, B))), monitored=True), True),
    "all but one": (Node("node1", inventory=Inventory((Device(0, A), Device(1, C))), monitored=True), False),
    "none of another node's": (Node("node2", inventory=Inventory((Device(0, A),)), monitored=True), False),
    "all that have a UUID and are whole": (
        Node("node1", inventory=Inventory((Device(0, A), Device(1), Device(2, C, (MIG,)))), monitored=True),
        True,
    ),
    "what no monitor lists": (Node("node2", inventory=Inventory((Device(0, C),))), True),
    "a list that cannot be read": (Node("node2", monitored=True), True),
}


@pytest.mark.promise("isolate-16")
@pytest.mark.parametrize(("node", "expected"), PUBLISHED.values(), ids=PUBLISHED)
def test_whether_drivers_publish_what_a_monitor_lists(node: Node, *, expected: bool) -> None:
    """Only devices that our driver could publish count."""
    pools = published([part("s1", device(A), device(B))])

    assert pools.publish_all(node) is expected
