"""The newest hold, after which round robin continues."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.latest import LatestHold
from gpu_scheduler.core.refs import PodRef

TIMES = [f"2026-11-21T0{hour}:00:00.00000{micros}Z" for hour in (1, 9) for micros in (0, 7)]


def holder(name: str, when: str | None = None, devices: tuple[str, ...] = ("0",)) -> Hold:
    """Return the hold of a pod that was bound at this time; without a time the pod is assumed."""
    ref = PodRef("default", name, f"uid-{name}")
    bound = Hold(ref, "node1", devices, (), 0, None, None, False, None, False)
    return replace(bound, assumed=when is None, assigned_at=when or "")


def key_of(holder: Hold) -> tuple[str, str]:
    """Return the node and the uid of the hold."""
    return holder.node, holder.ref.uid


def latest(*holders: Hold) -> LatestHold:
    """Return a LatestHold to which these holds were added in this order."""
    latest_hold = LatestHold()
    for each in holders:
        latest_hold.put(each)
    return latest_hold


def test_nothing_is_kept_of_dropped_holds() -> None:
    """Holds are added and dropped without a read: the heap stays short."""
    latest_hold = latest(holder("a", TIMES[0]))
    for _ in range(1000):
        latest_hold.put(holder("b", TIMES[1]))
        latest_hold.drop("uid-b")

    assert len(latest_hold._heap) < 50
    assert latest_hold.newest() == key_of(holder("a", TIMES[0]))


class LatestHoldMachine(RuleBasedStateMachine):
    """Pods are assumed, confirmed and dropped; the model compares all holds."""

    def __init__(self) -> None:
        super().__init__()
        self.latest_hold = LatestHold()
        self.holds_by_name: dict[str, Hold] = {}

    @rule(name=st.sampled_from("abcdef"), when=st.sampled_from([*TIMES, "", None, None]), holds=st.booleans())
    def put(self, name: str, when: str | None, holds: bool) -> None:  # noqa: FBT001
        """Add a hold, in place of an older hold of the same pod."""
        self.drop(name)
        self.holds_by_name[name] = holder(name, when, ("1", "0") if holds else ())
        self.latest_hold.put(self.holds_by_name[name])

    @rule(name=st.sampled_from("abcdef"))
    def drop(self, name: str) -> None:
        """Drop a hold; the pod may have no hold."""
        self.holds_by_name.pop(name, None)
        self.latest_hold.drop(f"uid-{name}")

    @invariant()
    def the_newest_is_that_of_a_slow_search(self) -> None:
        """The newest is the last assumed hold, else the hold with the latest time, of several the first by uid."""
        with_devices = [each for each in self.holds_by_name.values() if each.devices]
        assumed = [each for each in with_devices if each.assumed]
        bound = sorted(with_devices, key=lambda each: each.ref.uid)
        expected = assumed[-1] if assumed else max(bound, key=lambda each: each.assigned_at, default=None)
        assert self.latest_hold.newest() == (None if expected is None else key_of(expected))

    @invariant()
    def the_entries_are_those_of_a_new_start(self) -> None:
        """The entries depend neither on the history nor on the order of the holds."""
        assert dict(self.latest_hold.entries()) == dict(latest(*reversed(self.holds_by_name.values())).entries())


TestLatestHoldMachine = LatestHoldMachine.TestCase
