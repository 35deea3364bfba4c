"""Where a strategy that takes turns goes on: who came last, of those who are still there."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gpu_scheduler.core.ledger.hold import Hold
from gpu_scheduler.core.ledger.latest import LatestHold
from gpu_scheduler.core.refs import PodRef

TIMES = [f"2026-11-21T0{hour}:00:00.00000{micros}Z" for hour in (1, 9) for micros in (0, 7)]


def holder(name: str, when: str | None = None, devices: tuple[str, ...] = ("0",)) -> Hold:
    """A pod that was bound then; assumed where that is not said."""
    ref = PodRef("default", name, f"uid-{name}")
    bound = Hold(ref, "node1", devices, (), 0, None, None, False, None, False)
    return replace(bound, assumed=when is None, assigned_at=when or "")


def place(holder: Hold) -> tuple[str, str]:
    """Where it is found."""
    return holder.node, holder.ref.uid


def came(*holders: Hold) -> LatestHold:
    """These came, in this order."""
    recency = LatestHold()
    for each in holders:
        recency.put(each)
    return recency


def test_nobody_is_nobody() -> None:
    """A cluster without our pods."""
    assert LatestHold().newest() is None


def test_the_newest_binding_counts_not_the_newest_news() -> None:
    """A list tells in any order."""
    old, new = holder("a", TIMES[0]), holder("b", TIMES[1])

    assert came(new, old).newest() == place(new)


def test_who_is_assumed_is_newer_than_who_is_bound() -> None:
    """Of several the last; its time is not known before its Binding is."""
    first, last = holder("z"), holder("a")

    assert came(holder("b", TIMES[3]), first, last, holder("c", TIMES[3])).newest() == place(last)


def test_who_goes_is_forgotten() -> None:
    """The one before it is the newest again."""
    first, last = holder("a", TIMES[0]), holder("b")
    recency = came(first, last)
    recency.drop(last.ref.uid)

    assert recency.newest() == place(first)
    assert dict(came(first).entries()) == dict(recency.entries())


def test_who_claims_nothing_takes_no_turn() -> None:
    """An observer, or a line without GPUs."""
    assert came(holder("a", TIMES[0], ())).newest() is None


def test_a_binding_without_a_time_is_the_oldest() -> None:
    """Whatever bound it."""
    assert came(holder("b", TIMES[0]), holder("a", "")).newest() == place(holder("b", TIMES[0]))
    assert came(holder("a", "")).newest() == place(holder("a", ""))


def test_nothing_is_remembered_of_who_is_gone() -> None:
    """Pods come and go for ever, and nobody asks: the books stay short."""
    recency = came(holder("a", TIMES[0]))
    for _ in range(1000):
        recency.put(holder("b", TIMES[1]))
        recency.drop("uid-b")

    assert len(recency._heap) < 50
    assert recency.newest() == place(holder("a", TIMES[0]))


class Comings(RuleBasedStateMachine):
    """Pods come, are confirmed and go; the model looks at all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.recency = LatestHold()
        self.there: dict[str, Hold] = {}

    @rule(name=st.sampled_from("abcdef"), when=st.sampled_from([*TIMES, "", None, None]), holds=st.booleans())
    def put(self, name: str, when: str | None, holds: bool) -> None:  # noqa: FBT001
        """A pod comes, or is seen again with something else."""
        self.drop(name)
        self.there[name] = holder(name, when, ("1", "0") if holds else ())
        self.recency.put(self.there[name])

    @rule(name=st.sampled_from("abcdef"))
    def drop(self, name: str) -> None:
        """It goes; that may be told of one who never came."""
        self.there.pop(name, None)
        self.recency.drop(f"uid-{name}")

    @invariant()
    def the_newest_is_that_of_a_slow_search(self) -> None:
        """The last of the assumed ones, else who has the newest time, of several the first by name."""
        takers = [each for each in self.there.values() if each.devices]
        assumed = [each for each in takers if each.assumed]
        bound = sorted(takers, key=lambda each: each.ref.uid)
        expected = assumed[-1] if assumed else max(bound, key=lambda each: each.assigned_at, default=None)
        assert self.recency.newest() == (None if expected is None else place(expected))

    @invariant()
    def the_books_are_those_of_a_new_start(self) -> None:
        """Whatever happened before, and in whatever order the pods are told of."""
        assert dict(self.recency.entries()) == dict(came(*reversed(self.there.values())).entries())


TestComings = Comings.TestCase
