import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from gpu_scheduler.controller.work_queue import WorkQueue


def queue(*keys: str) -> WorkQueue[str]:
    made: WorkQueue[str] = WorkQueue(1, 8)
    for key in keys:
        made.add(key)
    return made


def test_keys_come_in_the_order_in_which_they_changed() -> None:
    """Each once, however often it changed."""
    work = queue("a", "b", "a")

    assert [work.pop(0), work.pop(0), work.pop(0)] == ["a", "b", None]


def test_a_key_has_one_worker_at_a_time() -> None:
    """A key that changes while it is reconciled comes again afterwards."""
    work = queue("a")
    assert work.pop(0) == "a"
    work.add("a")

    assert (work.pop(0), work.next_due(0)) == (None, None)
    work.done("a", 1)
    assert (work.next_due(1), work.pop(1)) == (1, "a")


def test_a_delayed_key_comes_when_it_is_due() -> None:
    """A change brings it earlier and cancels the delay."""
    work = queue("a")
    work.pop(0)
    work.done("a", 0, again=5)

    assert (work.next_due(0), work.pop(4.9), work.pop(5)) == (5, None, "a")
    work.done("a", 5, again=5)
    work.add("a")
    assert work.pop(6) == "a"
    work.done("a", 6)
    assert (work.pop(100), work.next_due(100), len(work)) == (None, None, 0)


def test_keys_that_wait_or_are_reconciled_are_due_now() -> None:
    """One with a time is due when that has come."""
    work = queue("a", "b")
    work.pop(0)
    assert work.now_due(0) == 2
    work.done("a", 0, again=5)

    assert (work.now_due(4.9), work.now_due(5)) == (1, 2)


def test_a_key_that_fails_backs_off() -> None:
    """The pause doubles up to its maximum. A success resets it."""
    work = queue("a")
    now, pauses = 0.0, []
    for _ in range(5):
        assert work.pop(now) == "a"
        work.failed("a", now)
        due = work.next_due(now)
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [1, 2, 4, 8, 8]

    work.pop(now)
    work.done("a", now)
    work.add("a")
    work.pop(now)
    work.failed("a", now)
    assert work.next_due(now) == now + 1


def test_a_change_during_a_failing_reconcile_ends_the_back_off() -> None:
    """The change may be the remedy."""
    work = queue("a")
    work.pop(0)
    work.add("a")
    work.failed("a", 0)

    assert work.pop(0) == "a"


def test_outdated_timers_do_not_pile_up() -> None:
    """A key that is delayed and changes again and again uses no more memory."""
    work = queue("first")
    work.pop(0)
    work.done("first", 0, again=5)
    for _ in range(1000):
        work.add("a")
        work.pop(0)
        work.done("a", 0, again=1000)

    assert len(work._timers) < 100
    assert len(work) == 2
    assert (work.pop(5), work.pop(999), work.pop(1000)) == ("first", None, "a")


class Model(RuleBasedStateMachine):
    """Compares the queue with a plain model of the keys that are due."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.work: WorkQueue[int] = WorkQueue(1, 4)
        self.now = 0.0
        self.changed: set[int] = set()
        self.busy: set[int] = set()
        self.due: dict[int, float] = {}

    @rule(key=st.integers(0, 3))
    def change(self, key: int) -> None:
        self.work.add(key)
        self.changed.add(key)
        self.due.pop(key, None)

    @rule(seconds=st.integers(0, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(target=keys)
    def pop(self) -> int | None:
        for key in [key for key, due in self.due.items() if due <= self.now]:
            del self.due[key]
            self.changed.add(key)
        found = self.work.pop(self.now)
        assert (found is None) == (not self.changed - self.busy)
        if found is not None:
            assert found in self.changed
            assert found not in self.busy
            self.changed.remove(found)
            self.busy.add(found)
        return found

    @rule(key=consumes(keys), again=st.none() | st.integers(0, 3))
    def end(self, key: int | None, again: int | None) -> None:
        if key is None:
            return
        self.busy.remove(key)
        self.work.done(key, self.now, again)
        if again is not None and key not in self.changed:
            self.due[key] = self.now + again

    @invariant()
    def counts(self) -> None:
        assert len(self.work) == len(self.changed | self.busy | self.due.keys())


TestModel = Model.TestCase


@pytest.mark.parametrize("failures", [40, 1100])
def test_many_failures_do_not_overflow(failures: int) -> None:
    """A cluster may be broken for a week."""
    work = queue("a")
    now = 0.0
    for _ in range(failures):
        work.pop(now)
        work.failed("a", now)
        now += 8
    assert work.pop(now) == "a"
