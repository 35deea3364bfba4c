from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.nodes.monitor_leases import GRAIN, MonitorLease, MonitorLeases

NOON = datetime(2027, 5, 1, 12, tzinfo=UTC).timestamp()

# A tuple is a Lease: its node, the seconds from its renewTime to noon, its duration. A name deletes the node's Lease.
# A number lets so many seconds pass.
Step = float | str | tuple[str, int | None] | tuple[str, int | None, float]


class Script:
    """MonitorLeases, and a clock that only the steps move."""

    def __init__(self) -> None:
        self.leases = MonitorLeases()
        self.now = 1000.0
        self.reported: list[str] = []

    def run(self, *steps: Step) -> list[str]:
        """Run the steps; return the reported nodes: the name when it became stale, in brackets when no longer."""
        for step in steps:
            if isinstance(step, int | float):
                self.now += step
                self.reported += self.leases.expired(self.now)
            elif isinstance(step, str):
                self.reported += [f"({step})"] if self.leases.gone(step) else []
            else:
                self.receive(*step)
        return self.reported

    def receive(self, node: str, age: int | None, lasts: float = 45) -> None:
        """Receive a Lease from the watch."""
        text = None if age is None else renewal(age)
        if self.leases.seen(MonitorLease(node, text, lasts), now=self.now, wall=NOON):
            self.reported.append(node if self.leases.stale(node) else f"({node})")


def renewal(age: int) -> str:
    """Return a renewTime that is so many seconds before noon."""
    return datetime.fromtimestamp(NOON - age, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


SCRIPTS: dict[str, tuple[Iterable[Step], list[str]]] = {
    "a node whose monitor has not renewed for the whole duration is stale": ([("a", 0), 44.9, 0.1], ["a"]),
    "one renewal is enough": ([("a", 0), 30, ("a", -30), 44], []),
    "the duration counts from the last renewal": ([("a", 0), 30, ("a", -30), 45], ["a"]),
    "a stale node is reported once": ([("a", 0), 45, 45, 100], ["a"]),
    "after a renewal the node is no longer stale": ([("a", 0), 45, ("a", -60), 10], ["a", "(a)"]),
    "after a renewal the node may become stale again": ([("a", 0), 45, ("a", -60), 45], ["a", "(a)", "a"]),
    "the same Lease again is no renewal": ([("a", 0), 30, ("a", 0), 15], ["a"]),
    "the same Lease again leaves the node stale": ([("a", 0), 45, ("a", 0), 5], ["a"]),
    "a Lease that has expired before it is first seen makes the node stale at once": ([("a", 45)], ["a"]),
    "a Lease that was renewed a while before it is first seen has the rest of its duration": (
        [("a", 30), 14, 1],
        ["a"],
    ),
    "a renewTime in the future counts as now": ([("a", -3600), 44], []),
    "later renewals count whatever their renewTime": ([("a", 0), 30, ("a", 86400), 30, ("a", -86400), 44], []),
    "a Lease without a renewTime has its whole duration": ([("a", None), 44, 1], ["a"]),
    "a deleted Lease makes no node stale": ([("a", 0), "a", 100], []),
    "a stale node whose Lease is deleted is no longer stale": ([("a", 0), 45, "a"], ["a", "(a)"]),
    "a Lease that is created again counts as first seen": ([("a", 0), "a", 5, ("a", 0), 44, 1], ["a"]),
    "no Lease at all": (["a", 100], []),
    "each Lease has its own duration": ([("a", 0), ("b", 0, 90), ("c", 0), 45, 44, 1], ["a", "c", "b"]),
    "a shorter duration applies at once": ([("a", 0, 90), 10, ("a", 0, 30), 20], ["a"]),
    "a shorter duration may be over already": ([("a", 0, 90), 40, ("a", 0, 30)], ["a"]),
    "a longer duration applies at once": ([("a", 0), 10, ("a", 0, 90), 79, 1], ["a"]),
    "a longer duration may end staleness": ([("a", 0), 45, ("a", 0, 90)], ["a", "(a)"]),
    "a renewal after a late check": ([("a", 0), 100, ("a", -100), 45], ["a", "(a)", "a"]),
}


@pytest.mark.promise("steer-3")
@pytest.mark.parametrize(("steps", "reported"), SCRIPTS.values(), ids=SCRIPTS)
def test_nodes_become_stale(steps: Iterable[Step], reported: list[str]) -> None:
    """Which nodes become stale, and when."""
    assert reported == Script().run(*steps)


@pytest.mark.parametrize("text", ["", "soon", "2027-13-01T00:00:00Z"])
def test_a_lease_with_a_malformed_renew_time_has_its_whole_duration(text: str) -> None:
    """A malformed renewTime makes no node stale at once."""
    leases = MonitorLeases()

    assert not leases.seen(MonitorLease("a", text, 45), now=0, wall=NOON)
    assert list(leases.expired(45)) == ["a"]


def test_a_renewal_without_a_zone_is_utc() -> None:
    """Kubernetes' times are UTC."""
    leases = MonitorLeases()

    assert leases.seen(MonitorLease("a", "2027-05-01T11:59:00", 45), now=0, wall=NOON)


@pytest.mark.promise("steer-4")
def test_a_node_without_a_monitor_is_not_stale() -> None:
    """Its devices were listed by hand. The same holds where the scheduler may not list the monitors' Leases."""
    assert not MonitorLeases().stale("node1")


def test_the_timer_is_never_later_than_a_grain() -> None:
    """Checks are grouped: five thousand Leases, each renewed twice, are checked at most twice a second."""
    leases = MonitorLeases()
    assert leases.next_due() is None
    for number in range(5000):
        for renewed in ("2027-05-01T12:00:00Z", "2027-05-01T12:00:15Z"):
            leases.seen(MonitorLease(str(number), renewed, 45), now=number / 333, wall=NOON)
    checks, stale, due = 0, 0, leases.next_due()
    while due is not None:
        checks += 1
        stale += len(list(leases.expired(due)))
        due = leases.next_due()

    assert (checks, stale) == (32, 5000)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([10.0, 20.0]), st.floats(0, 30)), max_size=30))
def test_a_node_is_stale_after_its_lease_duration(renewals: list[tuple[str, float, float]]) -> None:
    """A node is stale when its last renewal is older than its duration; this is noticed at most one grain later."""
    leases, now, seen = MonitorLeases(), 100.0, dict[str, tuple[float, float]]()
    for number, (node, lasts, later) in enumerate(renewals):
        leases.seen(MonitorLease(node, renewal(-number), lasts), now=now, wall=NOON)
        seen[node] = (now, lasts)
        now += later
        list(leases.expired(now))
        for each, (then, lasts_) in seen.items():
            assert leases.stale(each) <= (now >= then + lasts_)
            assert leases.stale(each) >= (now > then + lasts_ + GRAIN)
