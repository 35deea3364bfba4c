"""What the driver watches of its node."""

from __future__ import annotations

import asyncio

import pytest

from gpu_scheduler.core.nodes.cordons import Cordon
from gpu_scheduler.core.nodes.inventory import Device, Inventory
from gpu_scheduler.driver.devices import OwnNode
from gpu_scheduler.driver.node_state import NotifyingHandler, WatchedNode, WatchedPools
from gpu_scheduler.driver.resource_slice import ObservedSlice
from tests import objects
from unit_tests.driver.parts import DRIVER

NODE = OwnNode("node1", "uid-1", Inventory((Device(0, objects.gpu(0)),)))


def test_devices_are_known_while_the_node_lists_them() -> None:
    """With the cordons that are in force at the moment."""
    cordons: list[Cordon] = []
    watched = WatchedNode(lambda: tuple(cordons))
    assert watched.published() is None
    watched.applied(NODE)
    for marks in ([""], ["node"]):
        found = watched.published()
        assert found is not None
        assert [device.cordon for device in found.devices] == marks
        cordons.append(Cordon("*"))
    watched.applied(OwnNode("node1", "uid-1", None))
    assert watched.published() is None
    watched.applied(NODE)
    watched.forgotten(NODE)
    assert watched.published() is None


def test_each_event_is_a_change() -> None:
    """Deletions too."""
    changed, watched = asyncio.Event(), WatchedNode(tuple)
    notifying = NotifyingHandler(watched, changed)
    for event, node in ((notifying.applied, NODE), (notifying.forgotten, None)):
        event(NODE)
        assert (watched.node, changed.is_set()) == (node, True)
        changed.clear()


def seen(version: int, uid: str = "uid-a", name: str = "a", driver: str = DRIVER) -> ObservedSlice:
    return ObservedSlice(name, uid, version, driver)


EVENTS: dict[str, tuple[list[tuple[str, ObservedSlice]], ObservedSlice | None]] = {
    "a newer version replaces an older one": ([("applied", seen(1)), ("applied", seen(2))], seen(2)),
    "an event from before our write says nothing new": ([("applied", seen(5)), ("applied", seen(3))], seen(5)),
    "one that is gone is forgotten": ([("applied", seen(5)), ("forgotten", seen(3))], None),
    "one that was created anew replaces the old one": (
        [("applied", seen(5)), ("applied", seen(4, "uid-b"))],
        seen(4, "uid-b"),
    ),
    "the end of the old one is no end of the new one": (
        [("applied", seen(7, "uid-b")), ("forgotten", seen(5))],
        seen(7, "uid-b"),
    ),
    "what was never seen may be gone": ([("forgotten", seen(1))], None),
}


@pytest.mark.parametrize(("events", "left"), EVENTS.values(), ids=EVENTS)
def test_a_late_event_undoes_nothing(events: list[tuple[str, ObservedSlice]], left: ObservedSlice | None) -> None:
    """The answer to a write may come before the events of the watch."""
    pools = WatchedPools()
    for event, value in events:
        getattr(pools, event)(value)

    assert pools.own().get("a") == left


def test_drivers_are_distinguished() -> None:
    """Only the own ResourceSlices are written."""
    pools = WatchedPools()
    pools.applied(seen(1))
    pools.applied(seen(1, "uid-n", "n", "gpu.nvidia.com"))

    assert list(pools.own()) == ["a"]
    assert (pools.has_driver("gpu.nvidia.com"), pools.has_driver("example.com")) == (True, False)
