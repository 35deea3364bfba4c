from typing import TypeVar

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
from gpu_scheduler.core.nodes.inventory import counted
from gpu_scheduler.core.nodes.monitor_leases import MonitorLease
from gpu_scheduler.core.nodes.nodes import Node
from gpu_scheduler.core.pods.count_request import Strategy
from gpu_scheduler.core.pods.pod import ForeignPod, ResourceRequest
from gpu_scheduler.core.policy import Policy
from gpu_scheduler.core.refs import PodRef
from gpu_scheduler.kube.resource import EventHandlerFuncs
from gpu_scheduler.scheduler.cluster_cache import ClusterCache
from gpu_scheduler.scheduler.pod_states import PodState, PodStates
from tests.core.build import exists, node, pod, running

T = TypeVar("T")
WEB = ForeignPod(PodRef("other", "web", "uid-web"), "node1", ResourceRequest({"cpu": 1000}))


def world() -> tuple[ClusterCache, set[ClusterEvent]]:
    """A world, and all that it has told."""
    told: set[ClusterEvent] = set()
    return ClusterCache(Policy(), told.update), told


def news(told: set[ClusterEvent], handler: EventHandlerFuncs[T], value: T) -> list[set[ClusterEvent]]:
    """What is told when the value comes, and when it goes."""
    found = []
    for tell in (handler.applied, handler.forgotten):
        told.clear()
        tell(value)
        found.append(set(told))
    return found


def test_each_watch_tells_what_it_may_cure() -> None:
    """A node, a claim, a volume, a class: both what comes and what goes; a pod of others only when it goes."""
    given, told = world()

    assert news(told, given.nodes, node("node1")) == [{exists("node1")}] * 2
    claim, volume, kind = VolumeClaim("default", "data"), Volume("pv-1"), StorageClass("local", waits_for_consumer=True)
    assert news(told, given.claims, claim) == [{StorageChanged(Storage.CLAIM, "default/data")}] * 2
    assert news(told, given.volumes, volume) == [{StorageChanged(Storage.VOLUME, "pv-1")}] * 2
    assert news(told, given.classes, kind) == [{StorageChanged(Storage.CLASS, "local")}] * 2
    assert news(told, given.foreign_pods, WEB) == [
        set(),
        {ResourceFreed("node1", "cpu"), ResourceFreed("node1", "pods")},
    ]


def test_what_a_node_has_is_learned_and_unlearned() -> None:
    """Its inventory counts from the moment it is seen until the node is gone."""
    given, told = world()
    given.cluster.ledger.apply(running("train-3", "node4"))
    known = node("node4", inventory=counted(4))
    for tell in (given.nodes.applied, given.nodes.forgotten):
        told.clear()
        tell(known)
        assert {DeviceChanged("node4", "3"), DeviceChanged("node4", "")} <= told
    given.nodes.applied(known)
    told.clear()
    given.nodes.applied(node("node4"))
    assert NodeChanged("node4", Aspect.INVENTORY) in told


def test_a_ledger_made_anew_is_the_same() -> None:
    """From nodes, pods of others, our pods, kept lines and promises; what is gone is in none of them."""
    given, _ = world()
    tracker = PodStates()
    given.nodes.applied(node("node4", inventory=counted(4)))
    given.foreign_pods.applied(WEB)
    for each in (running("train-3", "node4"), pod("train-2")):
        given.cluster.ledger.apply(each)
        tracker[each.ref.uid] = PodState(each, 0.0, None)
    assert given.cluster.ledger.differences(given.rebuild_ledger(tracker)) == 0

    given.foreign_pods.forgotten(WEB)
    gone = tracker.pop("uid-of-default/train-3")
    given.cluster.ledger.forget(gone.pod.ref.uid)

    rebuild_ledger = given.rebuild_ledger(tracker)
    assert given.cluster.ledger.differences(rebuild_ledger) == 0
    given.replace(rebuild_ledger)
    assert given.cluster.ledger is rebuild_ledger


def test_a_ledger_is_rebuilt_however_long_the_maps_are() -> None:
    """The audit compares the live ledger with another one, always: what a pod asks for was read when it was seen."""
    given, _ = world()
    tracker = PodStates()
    lines = "\n".join(f"{number}=node1:{number % 8}" for number in range(4000))
    for number in range(60):
        each = pod(f"train-{number}", f"{lines}\n{10_000 + number}=node1:", node="node1")
        given.cluster.ledger.apply(each)
        tracker[each.ref.uid] = PodState(each, 0.0, None)
    rebuilt = given.rebuild_ledger(tracker)

    assert rebuilt is not given.cluster.ledger
    assert given.cluster.ledger.differences(rebuilt) == 0
    given.cluster.ledger.forget("uid-of-default/train-0")
    assert given.cluster.ledger.differences(rebuilt) > 0


class Monitored:
    """A world of one node with four cards, and a clock that only the story moves; it is noon."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.told: set[ClusterEvent] = set()
        self.world = ClusterCache(Policy(), self.told.update, clock=lambda: self.now, wall=lambda: 1809172800.0)
        self.world.nodes.applied(node("node1", inventory=counted(4)))

    def speaks(self, renewed: str = "2027-05-01T12:00:00Z", name: str = "node1") -> None:
        """The monitor's Lease is renewed."""
        self.world.monitors.applied(MonitorLease(name, renewed, 45))

    def later(self, seconds: float) -> None:
        """Let time pass, and listen."""
        self.now += seconds
        self.told.clear()
        self.world.expire_monitors()

    @property
    def stale(self) -> bool:
        """What decisions see."""
        known = self.world.cluster.nodes.resolve("node1")
        assert isinstance(known, Node)
        return known.stale


HEALTH = NodeChanged("node1", Aspect.HEALTH)


def test_a_silent_monitor_makes_its_node_stale_until_it_speaks() -> None:
    """Noticed by time alone, told once, and told again when it is over."""
    story = Monitored()
    dues = [story.world.next_due]
    story.speaks()
    dues.append(story.world.next_due)
    story.later(44)
    assert (dues, story.stale) == ([None, 1045], False)

    story.later(1)
    assert (story.stale, story.told) == (True, {HEALTH})
    story.later(100)
    assert story.told == set()

    story.speaks("2027-05-01T12:02:30Z")
    assert (story.stale, story.told) == (False, {HEALTH})


def test_a_node_that_changes_stays_stale() -> None:
    """Its own news say nothing of its monitor; and one that comes back finds what its monitor said meanwhile."""
    story = Monitored()
    story.speaks()
    story.later(45)
    story.world.nodes.applied(node("node1", inventory=counted(4), unschedulable=True))
    assert story.stale

    story.world.nodes.forgotten(node("node1"))
    story.speaks("2027-05-01T12:02:30Z")
    story.world.nodes.applied(node("node1", inventory=counted(4)))
    assert not story.stale


def test_a_monitor_that_is_taken_away_leaves_no_stale_node() -> None:
    """Its cards are then what somebody listed by hand."""
    story = Monitored()
    story.speaks()
    story.later(45)
    story.world.monitors.forgotten(MonitorLease("node1", "2027-05-01T12:00:00Z", 45))
    assert not story.stale

    story.speaks("2027-05-01T12:00:15Z")
    story.told.clear()
    story.world.monitors.forgotten(MonitorLease("node1", "2027-05-01T12:00:15Z", 45))
    assert story.told == set()


def test_a_lease_without_its_node_is_nobodys_news() -> None:
    """Neither of a node that is gone, nor of one that has the name as an alias."""
    story = Monitored()
    story.world.nodes.applied(node("node2", alias="gone"))
    story.told.clear()
    story.speaks("2027-05-01T11:00:00Z", "gone")
    story.speaks(name="other")
    story.later(45)

    assert story.told == set()
    assert story.world.next_due is None


def test_another_strategy_or_ledger_changes_nothing_else() -> None:
    """Decisions read one value that hangs together."""
    given, _ = world()
    before = given.cluster
    given.set_strategy(Strategy.BEST_FIT)
    given.replace(given.rebuild_ledger(PodStates()))

    assert (before.strategy, given.cluster.strategy) == (Strategy.LEAST_UTILIZED, Strategy.BEST_FIT)
    assert given.cluster.nodes is before.nodes
    assert given.cluster.candidates is not before.candidates
