from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.monitor_leases import GRAIN, MonitorLease, MonitorLeases

NOON = datetime(2027, 5, 1, 12, tzinfo=UTC).timestamp()

# A renewal is how many seconds before noon its text says; "gone" is the Lease's end; a number lets time pass.
Step = float | str | tuple[str, int | None] | tuple[str, int | None, float]


class Story:
    """Monitors' Leases, and a clock that only the story moves."""

    def __init__(self) -> None:
        self.freshness = MonitorLeases()
        self.now = 1000.0
        self.told: list[str] = []

    def tell(self, *steps: Step) -> list[str]:
        """Act out the steps; answers what was told: a node's name when it became stale, in brackets when it healed."""
        for step in steps:
            if isinstance(step, int | float):
                self.now += step
                self.told += self.freshness.expired(self.now)
            elif isinstance(step, str):
                self.told += [f"({step})"] if self.freshness.gone(step) else []
            else:
                self.see(*step)
        return self.told

    def see(self, node: str, age: int | None, lasts: float = 45) -> None:
        """Let the watch show a Lease."""
        text = None if age is None else renewal(age)
        if self.freshness.seen(MonitorLease(node, text, lasts), now=self.now, wall=NOON):
            self.told.append(node if self.freshness.stale(node) else f"({node})")


def renewal(age: int) -> str:
    """A renewTime so many seconds before noon."""
    return datetime.fromtimestamp(NOON - age, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


STORIES: dict[str, tuple[Iterable[Step], list[str]]] = {
    "a node whose monitor is silent for its whole time is stale": ([("a", 0), 44.9, 0.1], ["a"]),
    "one renewal is enough": ([("a", 0), 30, ("a", -30), 44], []),
    "after the last renewal its time counts anew": ([("a", 0), 30, ("a", -30), 45], ["a"]),
    "it is told once": ([("a", 0), 45, 45, 100], ["a"]),
    "a renewal heals": ([("a", 0), 45, ("a", -60), 10], ["a", "(a)"]),
    "and it may fall silent again": ([("a", 0), 45, ("a", -60), 45], ["a", "(a)", "a"]),
    "the same Lease again is no renewal": ([("a", 0), 30, ("a", 0), 15], ["a"]),
    "the same Lease again heals nothing": ([("a", 0), 45, ("a", 0), 5], ["a"]),
    "what was silent before we came is stale at once": ([("a", 45)], ["a"]),
    "what was silent for a while has the rest of its time": ([("a", 30), 14, 1], ["a"]),
    "a renewal from the future was just now": ([("a", -3600), 44], []),
    "afterwards renewals may say any time": ([("a", 0), 30, ("a", 86400), 30, ("a", -86400), 44], []),
    "a Lease that was never renewed has its time": ([("a", None), 44, 1], ["a"]),
    "a Lease that goes leaves no judgement": ([("a", 0), "a", 100], []),
    "a stale node whose Lease goes is not stale": ([("a", 0), 45, "a"], ["a", "(a)"]),
    "a Lease that comes again is seen for the first time": ([("a", 0), "a", 5, ("a", 0), 44, 1], ["a"]),
    "no Lease at all": (["a", 100], []),
    "each has its own time": ([("a", 0), ("b", 0, 90), ("c", 0), 45, 44, 1], ["a", "c", "b"]),
    "a shorter time holds at once": ([("a", 0, 90), 10, ("a", 0, 30), 20], ["a"]),
    "a shorter time may be over already": ([("a", 0, 90), 40, ("a", 0, 30)], ["a"]),
    "a longer time holds at once": ([("a", 0), 10, ("a", 0, 90), 79, 1], ["a"]),
    "a longer time may heal": ([("a", 0), 45, ("a", 0, 90)], ["a", "(a)"]),
    "renewals while it is looked at late": ([("a", 0), 100, ("a", -100), 45], ["a", "(a)", "a"]),
}


@pytest.mark.parametrize(("steps", "told"), STORIES.values(), ids=STORIES)
def test_story(steps: Iterable[Step], told: list[str]) -> None:
    """Which node is stale, and when it is noticed."""
    assert told == Story().tell(*steps)


@pytest.mark.parametrize("text", ["", "soon", "2027-13-01T00:00:00Z"])
def test_a_renewal_that_cannot_be_read_has_its_time(text: str) -> None:
    """A text of somebody else's making costs nobody a node at once."""
    freshness = MonitorLeases()

    assert not freshness.seen(MonitorLease("a", text, 45), now=0, wall=NOON)
    assert list(freshness.expired(45)) == ["a"]


def test_a_renewal_without_a_zone_is_utc() -> None:
    """As Kubernetes means all its times."""
    freshness = MonitorLeases()

    assert freshness.seen(MonitorLease("a", "2027-05-01T11:59:00", 45), now=0, wall=NOON)


def test_the_timer_is_never_later_than_a_grain() -> None:
    """And nobody is woken for each renewal: five thousand of them leave two times a second to look."""
    freshness = MonitorLeases()
    assert freshness.next_due() is None
    for number in range(5000):
        for renewed in ("2027-05-01T12:00:00Z", "2027-05-01T12:00:15Z"):
            freshness.seen(MonitorLease(str(number), renewed, 45), now=number / 333, wall=NOON)
    looks, stale, due = 0, 0, freshness.next_due()
    while due is not None:
        looks += 1
        stale += len(list(freshness.expired(due)))
        due = freshness.next_due()

    assert (looks, stale) == (32, 5000)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([10.0, 20.0]), st.floats(0, 30)), max_size=30))
def test_staleness_is_what_the_times_say(renewals: list[tuple[str, float, float]]) -> None:
    """However renewals and looks fall together: stale when the last is older than its time, at most a grain late."""
    freshness, now, seen = MonitorLeases(), 100.0, dict[str, tuple[float, float]]()
    for number, (node, lasts, later) in enumerate(renewals):
        freshness.seen(MonitorLease(node, renewal(-number), lasts), now=now, wall=NOON)
        seen[node] = (now, lasts)
        now += later
        list(freshness.expired(now))
        for each, (then, lasts_) in seen.items():
            assert freshness.stale(each) <= (now >= then + lasts_)
            assert freshness.stale(each) >= (now > then + lasts_ + GRAIN)
