import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.ledger import availability
from gpu_scheduler.core.ledger.availability import GpuCount, GpuTotals, node_devices
from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.nodes.inventory import Device, DeviceReading, Health, Inventory, counted
from gpu_scheduler.core.nodes.nodes import Node, Nodes
from gpu_scheduler.core.policy import Policy
from tests.core.build import node, running

GPU = "nvidia.com/gpu"
MONITORED = Inventory(tuple(Device(index, model="A100", memory=40960) for index in range(4)))
BUSY = {0: DeviceReading(utilization=60), 2: DeviceReading(utilization=20)}
READ = {"inventory": MONITORED, "readings": BUSY}
PLUGIN: dict[str, Any] = {"advertised": 2, "allocatable": {GPU: 2}}
HOLDER = running("a-0", "node1", "0=node1:1")


def world(*known: Node) -> tuple[Nodes, Ledger]:
    """A cluster of these nodes."""
    nodes, ledger = Nodes(), Ledger(Policy())
    for each in known:
        nodes.apply(each)
        ledger.apply_node(each)
    return nodes, ledger


CASES = {
    "no node": ((), GpuCount()),
    "a node without cards": ((node("node1"),), GpuCount()),
    "cards that nobody reads": ((node("node1", inventory=counted(4)),), GpuCount(4, 4)),
    "cards that are read": ((node("node1", inventory=MONITORED, readings=BUSY),), GpuCount(4, 4, 4, 80)),
    "an unhealthy card": (
        (node("node1", inventory=MONITORED, readings={3: DeviceReading(health=Health.UNHEALTHY)}),),
        GpuCount(4, 3, 4, 0),
    ),
    "a silent monitor": ((node("node1", inventory=MONITORED, readings=BUSY, stale=True),), GpuCount(4, 0, 4, 80)),
    "a node that takes no pods": ((node("node1", inventory=counted(4), unschedulable=True),), GpuCount(4, 0)),
    "a device plugin": ((node("node1", inventory=counted(4), advertised=4, allocatable={GPU: 4}),), GpuCount(4, 4)),
    "two nodes": (
        (node("node1", inventory=counted(2)), node("node2", inventory=MONITORED, readings=BUSY)),
        GpuCount(6, 6, 4, 80),
    ),
}


@pytest.mark.parametrize(("known", "count"), CASES.values(), ids=CASES)
def test_what_is_counted(known: tuple[Node, ...], count: GpuCount) -> None:
    """Cards in all, cards to be had, and how busy those are that are read."""
    assert GpuTotals().take(*world(*known)) == count


def test_the_mean_is_over_the_cards_that_are_read() -> None:
    """And nought where there are none, as a gauge has to say something."""
    assert (GpuCount(6, 6, 4, 80).mean, GpuCount(6, 6).mean) == (20, 0)


def test_what_is_held_is_not_to_be_had() -> None:
    """From assume until it is gone."""
    nodes, ledger = world(node("node1", inventory=counted(4)))
    totals_ = GpuTotals()
    seen = [totals_.take(nodes, ledger).available]
    ledger.apply(HOLDER)
    seen.append(totals_.take(nodes, ledger).available)
    ledger.forget(HOLDER.ref.uid)
    seen.append(totals_.take(nodes, ledger).available)

    assert seen == [4, 3, 4]


def test_only_what_changed_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape of five thousand nodes costs what happened since the last."""
    nodes, ledger = world(*(node(f"node{number}", inventory=counted(8)) for number in range(100)))
    totals_, looked_at = GpuTotals(), list[str]()
    sound = availability._count_of

    def noted(each: Node, known: Ledger) -> GpuCount:
        looked_at.append(each.name)
        return sound(each, known)

    monkeypatch.setattr(availability, "_count_of", noted)
    totals_.take(nodes, ledger)
    first = len(looked_at)
    ledger.apply(HOLDER)
    totals_.take(nodes, ledger)
    totals_.take(nodes, ledger)

    assert (first, looked_at[first:]) == (100, ["node1"])


@given(st.randoms(use_true_random=False))
def test_the_sums_are_those_of_a_count_from_scratch(chance: random.Random) -> None:
    """Whatever comes, changes and goes between two looks, and after a ledger that was made anew."""
    nodes, ledger = world()
    totals_ = GpuTotals()
    for _ in range(40):
        name = f"node{chance.randrange(3)}"
        match chance.randrange(6):
            case 0:
                known_cards: list[dict[str, Any]] = [{}, READ, {"inventory": counted(2)}]
                cards, plugin = chance.choice(known_cards), chance.choice([{}, PLUGIN])
                given_ = node(
                    name, stale=chance.random() < 0.3, alias=chance.choice([None, "node0"]), **cards, **plugin
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
    assert taken.total == sum(rack.total or 0 for rack in known)
    assert taken.available == sum(rack.available for rack in known)
    assert (taken.mean > 0) == any(rack.utilization for rack in known)
    fresh = Ledger(Policy())
    for each in nodes:
        fresh.apply_node(each)

    assert totals_.take(nodes, fresh) == GpuTotals().take(nodes, fresh)
