import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.ledger import availability
from gpu_scheduler.core.ledger.availability import GpuCount, GpuTotals, NodeDevices, node_devices
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.policy import Policy
from unit_tests.core.build import limit, node, running

GPU = "nvidia.com/gpu"
MONITORED = Inventory(tuple(Device(index, model="A100", memory=40960) for index in range(4)))
BUSY = {0: DeviceReading(utilization=60), 2: DeviceReading(utilization=20)}
READ = {"inventory": MONITORED, "readings": BUSY}
PLUGIN: dict[str, Any] = {"advertised": 2, "allocatable": {GPU: 2}}
HOLDER = running("a-0", "node1", "0=node1:1")


def cluster_of(*known: Node) -> tuple[Nodes, Ledger]:
    """Return these nodes and a ledger that knows them."""
    nodes, ledger = Nodes(), Ledger(Policy())
    for each in known:
        nodes.apply(each)
        ledger.apply_node(each)
    return nodes, ledger


def held_of(found: NodeDevices) -> int:
    """Return how many devices of the node's inventory are held."""
    return sum(bool(state.holders) for state in found.devices if state.device is not None) + found.unnamed


CASES = {
    "no node": ((), GpuCount()),
    "a node without devices": ((node("node1"),), GpuCount()),
    "devices without readings": ((node("node1", inventory=counted(4)),), GpuCount(4, 4)),
    "devices with readings": ((node("node1", inventory=MONITORED, readings=BUSY),), GpuCount(4, 4, 4, 80)),
    "an unhealthy device": (
        (node("node1", inventory=MONITORED, readings={3: DeviceReading(health=Health.UNHEALTHY)}),),
        GpuCount(4, 3, 4, 0, unhealthy=1),
    ),
    "a stale monitor": ((node("node1", inventory=MONITORED, readings=BUSY, stale=True),), GpuCount(4, 0, 4, 80)),
    "a cordoned node": ((node("node1", inventory=counted(4), unschedulable=True),), GpuCount(4, 0)),
    "a device plugin": ((node("node1", inventory=counted(4), advertised=4, allocatable={GPU: 4}),), GpuCount(4, 4)),
    "two nodes": (
        (node("node1", inventory=counted(2)), node("node2", inventory=MONITORED, readings=BUSY)),
        GpuCount(6, 6, 4, 80),
    ),
}


@pytest.mark.parametrize(("known", "count"), CASES.values(), ids=CASES)
def test_devices_are_counted(known: tuple[Node, ...], count: GpuCount) -> None:
    """A count has all devices, available devices, devices with readings, and the sum of their utilizations."""
    assert GpuTotals().take(*cluster_of(*known)) == count


def test_the_mean_is_over_devices_with_readings() -> None:
    """It is 0 without readings, because a gauge has a value at all times."""
    assert (GpuCount(6, 6, 4, 80).mean, GpuCount(6, 6).mean) == (20, 0)


def test_each_device_of_a_node_counts_in_one_state() -> None:
    """Held comes before cordoned, cordoned before unhealthy. What a closed node has left is unavailable."""
    sick = {index: DeviceReading(health=Health.UNHEALTHY) for index in (1, 2, 3)}
    cordons = (Cordon("1"), Cordon("2"))
    open_node = node("node1", inventory=counted(5), readings=sick, cordons=cordons)
    closed = node("node2", inventory=counted(3), unschedulable=True)
    plugin = node("node3", inventory=counted(4), advertised=4, allocatable={GPU: 4})
    nodes, ledger = cluster_of(open_node, closed, plugin)
    ledger.apply(HOLDER)
    ledger.apply(running("b-0", "node2", "0=node2:0"))
    ledger.apply(running("c-0", "node3", "0=node3:0,1", **limit(2)))
    totals_ = GpuTotals()
    totals_.take(nodes, ledger)

    names = ("held", "cordoned", "unhealthy", "unavailable", "free")
    assert {name: tuple(count.by_state.values()) for name, count in totals_.by_node.items()} == {
        "node1": (1, 1, 1, 0, 2),
        "node2": (1, 0, 0, 2, 0),
        "node3": (2, 0, 0, 0, 2),
    }
    assert tuple(totals_.by_node["node1"].by_state) == names


def test_only_what_changed_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape of five thousand nodes counts only the nodes that changed since the last one."""
    nodes, ledger = cluster_of(*(node(f"node{number}", inventory=counted(8)) for number in range(100)))
    totals_, counted_nodes = GpuTotals(), list[str]()
    original = availability._count_of

    def recorded(each: Node, known: Ledger) -> GpuCount:
        counted_nodes.append(each.name)
        return original(each, known)

    monkeypatch.setattr(availability, "_count_of", recorded)
    totals_.take(nodes, ledger)
    first = len(counted_nodes)
    ledger.apply(HOLDER)
    totals_.take(nodes, ledger)
    totals_.take(nodes, ledger)

    assert (first, counted_nodes[first:]) == (100, ["node1"])


@given(st.randoms(use_true_random=False))
def test_the_sums_are_those_of_a_count_from_scratch(chance: random.Random) -> None:
    """They are, whatever changes between two scrapes, and after the ledger was rebuilt."""
    nodes, ledger = cluster_of()
    totals_ = GpuTotals()
    for _ in range(40):
        name = f"node{chance.randrange(3)}"
        match chance.randrange(6):
            case 0:
                inventories: list[dict[str, Any]] = [{}, READ, {"inventory": counted(2)}]
                inventory, plugin = chance.choice(inventories), chance.choice([{}, PLUGIN])
                given_ = node(
                    name, stale=chance.random() < 0.3, alias=chance.choice([None, "node0"]), **inventory, **plugin
                )
                nodes.apply(given_)
                ledger.apply_node(given_)
            case 1:
                nodes.forget(name)
                ledger.forget_node(name)
            case 2 | 3:
                number = chance.randrange(4)
                ledger.apply(running(f"a-{number}", name, f"{number}={name}:{chance.randrange(4)}"))
            case 4:
                ledger.forget(f"uid-of-default/a-{chance.randrange(4)}")
            case _:
                assert totals_.take(nodes, ledger) == GpuTotals().take(nodes, ledger)
    known = list(node_devices(nodes, ledger))
    taken = totals_.take(nodes, ledger)
    assert taken.total == sum(each.total or 0 for each in known)
    assert taken.available == sum(each.available for each in known)
    assert (taken.mean > 0) == any(each.utilization for each in known)
    assert taken.held == sum(map(held_of, known))
    by_node = totals_.by_node
    assert {name for name, count in by_node.items() if count.total} == {each.node.name for each in known if each.total}
    for found in known:
        if found.node.name in by_node:
            states = by_node[found.node.name].by_state
            assert (states["held"], states["free"]) == (held_of(found), found.available)
            assert sum(states.values()) >= (found.total or 0)
    fresh = Ledger(Policy())
    for each in nodes:
        fresh.apply_node(each)

    assert totals_.take(nodes, fresh) == GpuTotals().take(nodes, fresh)
