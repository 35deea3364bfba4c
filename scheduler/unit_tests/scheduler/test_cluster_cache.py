from dataclasses import replace
from typing import TypeVar

import pytest

from gpu_scheduler.core.cluster_events import (
    Aspect,
    ClusterEvent,
    DeviceChanged,
    NodeChanged,
    ResourceFreed,
    Storage,
    StorageChanged,
)
from gpu_scheduler.core.filters.volumes import StorageClass, Volume, VolumeClaim
from gpu_scheduler.core.ledger.allocated_claims import AllocatedClaim
from gpu_scheduler.core.nodes.cordons import Cordon, NodeCordons
from gpu_scheduler.core.nodes.device_pools import DeviceId, DeviceSlice, PublishedDevice
from gpu_scheduler.core.nodes.inventory import Device, Inventory, counted
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.pod import ForeignPod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from unit_tests.core.build import exists, node, pod, running

T = TypeVar("T")
WEB = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({"cpu": 1000}))


def cache_and_events() -> tuple[ClusterCache, set[ClusterEvent]]:
    """Return a cluster cache and the set to which it adds its cluster events."""
    events: set[ClusterEvent] = set()
    return ClusterCache(Policy(), events.update), events


def events_of(events: set[ClusterEvent], handler: EventHandlerFuncs[T], value: T) -> list[set[ClusterEvent]]:
    """Return the cluster events of an applied value, and then those of its removal."""
    found = []
    for call in (handler.applied, handler.forgotten):
        events.clear()
        call(value)
        found.append(set(events))
    return found


def test_each_watch_sends_the_events_that_may_requeue_pods() -> None:
    """Nodes, claims, volumes and classes send events when they come and when they go; foreign pods when they go."""
    cache, events = cache_and_events()

    assert events_of(events, cache.nodes, node("node1")) == [{exists("node1")}] * 2
    claim, volume, kind = VolumeClaim("default", "data"), Volume("pv-1"), StorageClass("local", waits_for_consumer=True)
    assert events_of(events, cache.claims, claim) == [{StorageChanged(Storage.CLAIM, "default/data")}] * 2
    assert events_of(events, cache.volumes, volume) == [{StorageChanged(Storage.VOLUME, "pv-1")}] * 2
    assert events_of(events, cache.classes, kind) == [{StorageChanged(Storage.CLASS, "local")}] * 2
    assert events_of(events, cache.foreign_pods, WEB) == [
        set(),
        {ResourceFreed("node1", "cpu"), ResourceFreed("node1", "pods")},
    ]


def test_the_inventory_of_a_node_is_applied_and_forgotten() -> None:
    """The inventory counts from its first watch event until the node is gone."""
    cache, events = cache_and_events()
    cache.cluster.ledger.apply(running("train-3", "node4"))
    known = node("node4", inventory=counted(4))
    for call in (cache.nodes.applied, cache.nodes.forgotten):
        events.clear()
        call(known)
        assert {DeviceChanged("node4", "3"), DeviceChanged("node4", "")} <= events
    cache.nodes.applied(known)
    events.clear()
    cache.nodes.applied(node("node4"))
    assert NodeChanged("node4", Aspect.INVENTORY) in events


def test_a_rebuilt_ledger_is_the_same() -> None:
    """The rebuild reads nodes, foreign pods, our pods, reserved lines and assumed pods, and no object that is gone."""
    cache, _ = cache_and_events()
    tracker = PodStates()
    cache.nodes.applied(node("node4", inventory=counted(4)))
    cache.foreign_pods.applied(WEB)
    for each in (running("train-3", "node4"), pod("train-2")):
        cache.cluster.ledger.apply(each)
        tracker[each.ref.uid] = PodState(each, 0.0, None)
    assert cache.cluster.ledger.differences(cache.rebuild_ledger(tracker)) == 0

    cache.foreign_pods.forgotten(WEB)
    gone = tracker.pop("uid-of-default/train-3")
    cache.cluster.ledger.forget(gone.pod.ref.uid)

    rebuild_ledger = cache.rebuild_ledger(tracker)
    assert cache.cluster.ledger.differences(rebuild_ledger) == 0
    cache.replace(rebuild_ledger)
    assert cache.cluster.ledger is rebuild_ledger


def test_a_ledger_is_rebuilt_however_long_the_maps_are() -> None:
    """The audit always compares the live ledger with another one. A pod's map was parsed when the pod was received."""
    cache, _ = cache_and_events()
    tracker = PodStates()
    lines = "\n".join(f"{number}=node1:{number % 8}" for number in range(4000))
    for number in range(60):
        each = pod(f"train-{number}", f"{lines}\n{10_000 + number}=node1:", node="node1")
        cache.cluster.ledger.apply(each)
        tracker[each.ref.uid] = PodState(each, 0.0, None)
    rebuilt = cache.rebuild_ledger(tracker)

    assert rebuilt is not cache.cluster.ledger
    assert cache.cluster.ledger.differences(rebuilt) == 0
    cache.cluster.ledger.forget("uid-of-default/train-0")
    assert cache.cluster.ledger.differences(rebuilt) > 0


class MonitoredNode:
    """A cluster cache with one node of four devices, and a clock that only the test moves; it is noon."""

    def __init__(self, policy: Policy | None = None, *, monitored: bool = True) -> None:
        self.now = 1000.0
        self.events: set[ClusterEvent] = set()
        self.cache = ClusterCache(
            policy or Policy(), self.events.update, clock=lambda: self.now, wall=lambda: 1809172800.0
        )
        self.cache.nodes.applied(node("node1", inventory=counted(4), monitored=monitored))

    def renew(self, renewed: str = "2027-05-01T12:00:00Z", name: str = "node1") -> None:
        self.cache.monitors.applied(MonitorLease(name, renewed, 45))

    def later(self, seconds: float) -> None:
        """Let time pass, and keep only the cluster events of that time."""
        self.now += seconds
        self.events.clear()
        self.cache.expire_monitors()

    @property
    def stale(self) -> bool:
        known = self.cache.cluster.nodes.resolve("node1")
        assert isinstance(known, Node)
        return known.stale


HEALTH = NodeChanged("node1", Aspect.HEALTH)


def test_a_node_is_stale_while_its_monitor_does_not_renew() -> None:
    """Time alone makes the node stale. The cache sends one event then, and one when the monitor renews."""
    monitored = MonitoredNode()
    dues = [monitored.cache.next_due]
    monitored.renew()
    dues.append(monitored.cache.next_due)
    monitored.later(44)
    assert (dues, monitored.stale) == ([None, 1045], False)

    monitored.later(1)
    assert (monitored.stale, monitored.events) == (True, {HEALTH})
    monitored.later(100)
    assert monitored.events == set()

    monitored.renew("2027-05-01T12:02:30Z")
    assert (monitored.stale, monitored.events) == (False, {HEALTH})


def test_a_node_that_changes_stays_stale() -> None:
    """Its watch events say nothing of its monitor. A node that comes back finds its monitor's last renewal."""
    monitored = MonitoredNode()
    monitored.renew()
    monitored.later(45)
    monitored.cache.nodes.applied(node("node1", inventory=counted(4), unschedulable=True))
    assert monitored.stale

    monitored.cache.nodes.forgotten(node("node1"))
    monitored.renew("2027-05-01T12:02:30Z")
    monitored.cache.nodes.applied(node("node1", inventory=counted(4)))
    assert not monitored.stale


def test_a_deleted_monitor_lease_leaves_no_stale_node() -> None:
    """Its devices are then those that an operator listed by hand."""
    monitored = MonitoredNode()
    monitored.renew()
    monitored.later(45)
    monitored.cache.monitors.forgotten(MonitorLease("node1", "2027-05-01T12:00:00Z", 45))
    assert not monitored.stale

    monitored.renew("2027-05-01T12:00:15Z")
    monitored.events.clear()
    monitored.cache.monitors.forgotten(MonitorLease("node1", "2027-05-01T12:00:15Z", 45))
    assert monitored.events == set()


def test_a_lease_without_its_node_sends_no_event() -> None:
    """It concerns neither a node that is gone nor a node that has the name as an alias."""
    monitored = MonitoredNode()
    monitored.cache.nodes.applied(node("node2", alias="gone"))
    monitored.events.clear()
    monitored.renew("2027-05-01T11:00:00Z", "gone")
    monitored.renew(name="other")
    monitored.later(45)

    assert monitored.events == set()
    assert monitored.cache.next_due is None


def test_another_strategy_or_ledger_changes_nothing_else() -> None:
    """Decisions read one consistent value."""
    cache, _ = cache_and_events()
    before = cache.cluster
    cache.set_strategy(Strategy.BEST_FIT)
    cache.replace(cache.rebuild_ledger(PodStates()))

    assert (before.strategy, cache.cluster.strategy) == (Strategy.LEAST_UTILIZED, Strategy.BEST_FIT)
    assert cache.cluster.nodes is before.nodes
    assert cache.cluster.candidates is not before.candidates


@pytest.mark.promise("steer-4")
@pytest.mark.parametrize(("monitored", "denied"), [(False, False), (False, True), (True, False)])
def test_a_node_without_a_lease_is_not_stale(*, monitored: bool, denied: bool) -> None:
    """Neither one whose devices an operator has listed, nor one whose monitor is gone."""
    assert not MonitoredNode(Policy(unread_monitors=denied), monitored=monitored).stale


@pytest.mark.promise("steer-4")
def test_a_reading_whose_lease_may_not_be_read_is_stale() -> None:
    """Nothing shows that it is current. When the right is granted, the Leases decide."""
    monitored = MonitoredNode(Policy(unread_monitors=True))
    stale = [monitored.stale]

    monitored.events.clear()
    monitored.renew()
    stale.append(monitored.stale)
    assert monitored.events == {HEALTH}
    monitored.later(45)
    stale.append(monitored.stale)
    monitored.renew("2027-05-01T12:02:30Z")
    stale.append(monitored.stale)
    monitored.cache.monitors.forgotten(MonitorLease("node1", None, 45))
    stale.append(monitored.stale)

    assert stale == [True, False, True, False, True]


@pytest.mark.promise("cordon-3")
def test_cordons_come_and_go_with_their_gpunode_and_outlive_the_node() -> None:
    """A node that is made anew has the cordons that it had. A cordon that ends by the wall clock sends an event."""
    wall = [0.0]
    events: set[ClusterEvent] = set()
    cache = ClusterCache(Policy(), events.update, wall=lambda: wall[0])
    changed = NodeChanged("node1", Aspect.CORDONS)

    def cordons() -> list[str]:
        known = cache.cluster.nodes.resolve("node1")
        assert isinstance(known, Node)
        return [each.device for each in known.cordons]

    both = NodeCordons("node1", (Cordon("0", until="1970-01-01T00:01:00Z"), Cordon("1")))
    assert events_of(events, cache.cordons, both) == [set(), set()]
    cache.nodes.applied(node("node1"))
    assert events_of(events, cache.cordons, both) == [{changed}, {changed}]
    cache.cordons.applied(both)
    cache.nodes.forgotten(node("node1"))
    cache.nodes.applied(node("node1"))
    assert cordons() == ["0", "1"]
    events.clear()
    cache.end_cordons()
    assert events == set()
    wall[0] = 60.0
    cache.end_cordons()

    assert cordons() == ["1"]
    assert events == {changed}


A, B = (f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "ab")
POOL = "gpu.nvidia.com", "node1"
GPU_A = DeviceId(*POOL, "gpu-0")
DEVICES = PublishedDevice(GPU_A, A), PublishedDevice(DeviceId(*POOL, "gpu-1"), B)
PUBLISHED = DeviceSlice("s1", "node1", *POOL, 1, 1, DEVICES)
BY_DRIVER = Inventory((Device(0, A), Device(1, B)))
OWN = {
    "a node that nobody describes": (node("node1"), BY_DRIVER),
    "a node of which only the number of devices is known": (node("node1", inventory=counted(8)), BY_DRIVER),
    "a node with a monitor": (node("node1", inventory=counted(3), monitored=True), counted(3)),
}


@pytest.mark.parametrize(("given", "inventory"), OWN.values(), ids=OWN)
def test_a_driver_publishes_the_devices_of_a_node_without_a_monitor(given: Node, inventory: Inventory) -> None:
    """They are the node's inventory from the slice's first event on, and no longer after its last."""
    cache, events = cache_and_events()
    cache.nodes.applied(given)
    events.clear()

    cache.device_slices.applied(PUBLISHED)
    assert cache.cluster.nodes.resolve("node1") == replace(given, inventory=inventory)
    assert NodeChanged("node1", Aspect.INVENTORY) in events
    cache.nodes.applied(given)
    assert cache.cluster.nodes.resolve("node1") == replace(given, inventory=inventory)

    cache.device_slices.forgotten(PUBLISHED)
    assert cache.cluster.nodes.resolve("node1") == given


@pytest.mark.promise("isolate-16")
def test_nodes_whose_devices_no_driver_publishes_are_found_where_claims_are_allocated() -> None:
    """A node without a monitor has no devices that could be missing."""
    for policy, before in ((Policy(reads_claims=True), ["node1"]), (Policy(), [])):
        cache = ClusterCache(policy, lambda _: None)
        cache.nodes.applied(node("node1", inventory=BY_DRIVER, monitored=True))
        cache.nodes.applied(node("node2", inventory=BY_DRIVER))
        assert cache.unpublished_nodes() == before

        cache.device_slices.applied(PUBLISHED)
        assert cache.unpublished_nodes() == []


def test_the_devices_of_a_claim_are_known_when_their_slice_comes() -> None:
    """Until then no device of the node is free: the claim may hold any of them."""
    cache, events = cache_and_events()
    cache.nodes.applied(node("node1", inventory=BY_DRIVER))
    cache.device_claims.applied(AllocatedClaim("team", "training", "u1", (GPU_A,)))
    held = cache.cluster.ledger.devices
    assert [bool(held.rivals("node1", device)) for device in "01"] == [True, True]

    events.clear()
    cache.device_slices.applied(PUBLISHED)
    assert [bool(held.rivals("node1", device)) for device in "01"] == [True, False]
    assert cache.cluster.ledger.differences(cache.rebuild_ledger(PodStates())) == 0

    cache.device_claims.forgotten(AllocatedClaim("team", "training", "u1", (GPU_A,)))
    assert held.rivals("node1", "0") == ()
    assert DeviceChanged("node1", "0") in events
