import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.cluster_events import Aspect, ClassChanged, ClusterEvent, DeviceChanged, NodeChanged
from gpu_scheduler.core.scheduling_queue import SchedulingQueue

GPU = DeviceChanged("node4", "3")
OTHER = DeviceChanged("node4", "2")
SHAPE = ClassChanged("one GPU, whichever")
LARGER = ClassChanged("two GPUs, whichever")
NODE = NodeChanged("node4", Aspect.READY)
ALL: list[ClusterEvent] = [GPU, OTHER, NODE, SHAPE]


# "add a", or a tuple where a word is no text; a number lets that many seconds pass.
Step = float | str | tuple[Any, ...]


class Story:
    """A backlog and a clock that only the story moves."""

    def __init__(self) -> None:
        self.queue = SchedulingQueue()
        self.now = 1000.0

    def tell(self, *steps: Step) -> list[str | None]:
        """Act out the steps; answers what each `pop` gave."""
        popped: list[str | None] = []
        for step in steps:
            if isinstance(step, int | float):
                self.now += step
                continue
            words: list[Any] = step.split() if isinstance(step, str) else list(step)
            verb = words.pop(0)
            if verb == "pop":
                popped.append(self.queue.pop(self.now))
            elif verb == "wait":
                self.queue.add_unschedulable(words[0], words[1:], self.now)
            elif verb == "wake":
                self.queue.on_events(words, self.now)
            elif verb == "hint":
                self.queue.requeue_soon(words, self.now)
            elif verb == "retry":
                self.queue.back_off(words[0], self.now, *map(float, words[1:]))
            elif verb == "rank":
                self.queue.set_priority(words[0], words[1])
            elif verb == "placed":
                self.queue.assumed(words[0])
            else:
                getattr(self.queue, verb)(*words)
        return popped


WAITS = ("wait", "a", GPU)

WAITS_B = ("wait", "b", GPU)
HIGH = ("rank", "b", 5)

IN_VAIN: list[Step] = [WAITS, ("wake", GPU), "pop"]
IN_VAIN_TWICE: list[Step] = [WAITS, WAITS_B] * 3
# Both have come in vain so often that they rest.
WEARY: list[Step] = [("wait", "a", SHAPE), ("wait", "b", SHAPE)] * 4
WEARY_APART: list[Step] = [("wait", "a", SHAPE), ("wait", "b", LARGER)] * 4
BOTH_WEARY: list[Step] = ["add a", "add b", "pop", "pop", *WEARY]

STORIES = {
    "who came first is looked at first": (["add b", "add a", "pop", "pop", "pop"], ["b", "a", None]),
    "adding twice is adding once": (["add a", "add a", "pop", "pop"], ["a", None]),
    "a pod handed out is not handed out again": (["add a", "pop", "pop"], ["a", None]),
    "a pod that is removed is not handed out": (["add a", "remove a", "pop"], [None]),
    "a pod that comes again goes to the end": (["add a", "add b", "remove a", "add a", "pop", "pop"], ["b", "a"]),
    "an unschedulable pod waits": (["add a", "pop", WAITS, 200, "pop"], ["a", None]),
    "what it waits for wakes it": (["add a", "pop", WAITS, 200, ("wake", GPU), "pop"], ["a", "a"]),
    "what it does not wait for does not": (["add a", "pop", WAITS, 200, ("wake", OTHER, NODE), "pop"], ["a", None]),
    "any of several things wakes it": (
        ["add a", "pop", ("wait", "a", GPU, NODE), 9, ("wake", NODE), "pop"],
        ["a", "a"],
    ),
    "a pod is woken once": (["add a", "pop", WAITS, 9, ("wake", GPU), "pop", ("wake", GPU), "pop"], ["a", "a", None]),
    "woken, it is looked at at once": (["add a", "pop", WAITS, ("wake", GPU), "pop"], ["a", "a"]),
    "woken in vain a third time, it serves a back-off": (
        ["add a", "pop", *IN_VAIN, *IN_VAIN, *IN_VAIN, WAITS, ("wake", GPU), "pop", 0.9, "pop", 0.1, "pop"],
        ["a", "a", "a", "a", None, None, "a"],
    ),
    "after that, woken when its back-off is over, it is looked at at once": (
        ["add a", "pop", *IN_VAIN, *IN_VAIN, *IN_VAIN, WAITS, 1, ("wake", GPU), "pop"],
        ["a", "a", "a", "a", "a"],
    ),
    "left alone for long, wake-ups in vain are forgotten": (
        ["add a", "pop", *IN_VAIN, *IN_VAIN, *IN_VAIN, WAITS, 11, ("wake", GPU), "pop", *IN_VAIN],
        ["a", "a", "a", "a", "a", "a"],
    ),
    "its own change does not wait for any back-off": (["add a", "pop", WAITS, "add a", "pop"], ["a", "a"]),
    "its own change ends its wait": (
        ["add a", "pop", WAITS, "add a", "pop", 9, ("wake", GPU), "pop"],
        ["a", "a", None],
    ),
    "without any change it is looked at every five minutes": (
        ["add a", "pop", WAITS, 299.9, "pop", 0.1, "pop"],
        ["a", None, "a"],
    ),
    "a refused pod waits for nothing but itself and the five minutes": (
        ["add a", "pop", ("wait", "a"), 299, "pop", 1, "pop"],
        ["a", None, "a"],
    ),
    "after an error it tries again by itself in a second": (
        ["add a", "pop", "retry a", 0.9, "pop", 0.1, "pop"],
        ["a", None, "a"],
    ),
    "it tries no sooner than it was asked to": (
        ["add a", "pop", "retry a 5", 4.9, "pop", 0.1, "pop", "retry a 1", 1.9, "pop", 0.1, "pop"],
        ["a", None, "a", None, "a"],
    ),
    "each error doubles the back-off": (
        ["add a", "pop", "retry a", 1, "pop", "retry a", 1.9, "pop", 0.1, "pop", "retry a", 3.9, "pop", 0.1, "pop"],
        ["a", "a", None, "a", None, "a"],
    ),
    "the back-off ends at ten seconds": (
        [
            "add a",
            "pop",
            "retry a",
            1,
            "pop",
            "retry a",
            2,
            "pop",
            "retry a",
            4,
            "pop",
            "retry a",
            8,
            "pop",
            "retry a",
            9.9,
            "pop",
            0.1,
            "pop",
            "retry a",
            9.9,
            "pop",
            0.1,
            "pop",
        ],
        ["a", "a", "a", "a", "a", None, "a", None, "a"],
    ),
    "a pod left alone for long starts again with a second": (
        [
            "add a",
            "pop",
            "retry a",
            1,
            "pop",
            "retry a",
            2,
            "pop",
            WAITS,
            14,
            ("wake", GPU),
            "pop",
            "retry a",
            1,
            "pop",
        ],
        ["a", "a", "a", "a", "a"],
    ),
    "news that cure nothing are looked at in a second": (
        ["add a", "pop", WAITS, 100, ("hint", GPU), 0.9, "pop", 0.1, "pop"],
        ["a", None, "a"],
    ),
    "more news do not put it off": (
        ["add a", "pop", WAITS, 100, ("hint", GPU), 0.5, ("hint", GPU), 0.5, "pop"],
        ["a", "a"],
    ),
    "news do not keep from the cure": (
        ["add a", "pop", WAITS, 100, ("hint", GPU), 0.1, ("wake", GPU), "pop", 2, "pop"],
        ["a", "a", None],
    ),
    "a pod that waits for something else hears no news": (
        ["add a", "pop", WAITS, 100, ("hint", OTHER), 9, "pop"],
        ["a", None],
    ),
    "a pod in back-off that changes itself is looked at once": (
        ["add a", "pop", "retry a", "add a", "pop", 20, "pop"],
        ["a", "a", None],
    ),
    "a woken pod lets those go first who are active already": (
        ["add a", "pop", WAITS, 5, "add b", ("wake", GPU), "pop", "pop"],
        ["a", "b", "a"],
    ),
    "all who wait for a GPU are woken, in the order they came": (
        ["add b", "add a", "pop", "pop", ("wait", "a", GPU), ("wait", "b", GPU), 5, ("wake", GPU), "pop", "pop"],
        ["b", "a", "b", "a"],
    ),
    "a pod that is removed is not woken": (["add a", "pop", WAITS, "remove a", 5, ("wake", GPU), "pop"], ["a", None]),
    "a pod that was removed and came again has no old timer": (
        ["add a", "pop", "retry a", "remove a", "add a", "pop", 5, "pop"],
        ["a", "a", None],
    ),
    "a pod that waits anew forgets what it waited for": (
        ["add a", "pop", WAITS, ("wait", "a", OTHER), 5, ("wake", GPU), "pop", ("wake", OTHER), "pop"],
        ["a", None, "a"],
    ),
    "a pod that was made to wait before its turn comes when it changes": (
        ["add a", WAITS, "pop", "add a", "pop"],
        [None, "a"],
    ),
    "a pod nobody added may be retried": (["retry a", 1, "pop"], ["a"]),
    "removing a stranger is fine": (["remove a", "pop"], [None]),
    "a higher rank goes first": (["add a", "add b", HIGH, "pop", "pop"], ["b", "a"]),
    "a negative rank goes last": (["add a", ("rank", "a", -1), "add b", "pop", "pop"], ["b", "a"]),
    "a pod that nobody added has no rank": ([HIGH, "add a", "add b", "pop", "pop"], ["a", "b"]),
    "a rank that is given while the pod is looked at counts afterwards": (
        ["add b", "pop", HIGH, "add a", "add b", "pop", "pop"],
        ["b", "b", "a"],
    ),
    "a rank alone makes nobody active": (["add b", "pop", WAITS_B, HIGH, "pop"], ["b", None]),
    "of equals who was active first goes first": (
        ["add a", "add b", "add c", ("rank", "a", 5), ("rank", "c", 5), HIGH, "pop", "pop", "pop"],
        ["a", "b", "c"],
    ),
    "who comes back to its rank has its old place": (
        ["add b", "add a", HIGH, ("rank", "b", 0), "pop", "pop", "pop"],
        ["b", "a", None],
    ),
    "who loses its rank goes behind those who were there before": (
        ["add a", "add b", HIGH, ("rank", "b", 0), "pop", "pop"],
        ["a", "b"],
    ),
    "a rank is kept while the pod waits": (
        ["add b", HIGH, "pop", WAITS_B, 5, "add a", ("wake", GPU), "pop", "pop"],
        ["b", "b", "a"],
    ),
    "a rank goes with the pod": (["add a", HIGH, "add b", "remove b", "add b", "pop", "pop"], ["a", "b"]),
    "woken again, a resting pod rests no longer": (
        ["add a", "pop", *IN_VAIN, *IN_VAIN, *IN_VAIN, WAITS, ("wake", GPU), 0.5, ("wake", GPU), 0.5, "pop", 5, "pop"],
        ["a", "a", "a", "a", "a", None],
    ),
    "of many who may all have the same GPUs, the first in line does not rest": (
        [*BOTH_WEARY, ("wake", SHAPE), "pop", "pop"],
        ["a", "b", "a", None],
    ),
    "placed, it calls up the next in line": (
        [*BOTH_WEARY, ("wake", SHAPE), "pop", "placed a", "pop", "placed b", "pop"],
        ["a", "b", "a", "b", None],
    ),
    "it calls up one, once": (
        [*BOTH_WEARY, ("wake", SHAPE), "pop", ("wait", "c", SHAPE), "placed a", "placed a", "pop", "pop"],
        ["a", "b", "a", "b", None],
    ),
    "the first in line is who has the highest rank": (
        ["add a", "add b", HIGH, "pop", "pop", *WEARY, ("wake", SHAPE), "pop", "pop"],
        ["b", "a", "b", None],
    ),
    "of those at the head of different lines, who came first has the first turn": (
        ["add a", "add b", "pop", "pop", *WEARY_APART, ("wake", LARGER, SHAPE), "pop", "pop"],
        ["a", "b", "a", "b"],
    ),
    "the others have their turn when they have rested": (
        [*BOTH_WEARY, ("wake", SHAPE), "pop", 1, "pop"],
        ["a", "b", "a", "b"],
    ),
    "who waits for a GPU of its own rests, whoever is placed": (
        ["add a", "add b", "pop", "pop", *IN_VAIN_TWICE, WAITS, WAITS_B, ("wake", GPU), "placed a", "pop"],
        ["a", "b", None],
    ),
    "placing a stranger is fine": (["placed a", "pop"], [None]),
}


@pytest.mark.parametrize(("steps", "popped"), STORIES.values(), ids=STORIES)
def test_story(steps: list[Step], popped: list[str | None]) -> None:
    """Who is looked at, and when."""
    assert popped == Story().tell(*steps)


DUE = {
    "nothing waits": ([], None),
    "somebody is active": (["add a"], 0.0),
    "somebody is handed out": (["add a", "pop"], None),
    "somebody is in back-off": (["add a", "pop", "retry a", 0.25], 0.75),
    "somebody is unschedulable": (["add a", "pop", WAITS, 100], 200.0),
    "somebody's back-off is over": (["add a", "pop", "retry a", 5], 0.0),
    "the active one was removed": (["add a", "remove a"], None),
    "the one in back-off was removed": (["add a", "pop", "retry a", "remove a"], None),
    "the first of two": (["add a", "add b", "pop", "pop", WAITS, "retry b"], 1.0),
}


@pytest.mark.parametrize(("steps", "seconds"), DUE.values(), ids=DUE)
def test_next_due(steps: list[Step], seconds: float | None) -> None:
    """How long the loop may sleep."""
    story = Story()
    story.tell(*steps)
    due = story.queue.next_due(story.now)

    assert seconds == (None if due is None else due - story.now)


def test_counts() -> None:
    """The queues as upstream names them; a pod that is being decided is in none."""
    story = Story()
    story.tell("add a", "add b", "add c", "add d", "pop", "pop", "pop", WAITS, "retry b")

    assert story.queue.counts() == {"active": 1, "backoff": 1, "unschedulable": 1}


def test_a_freed_gpu_wakes_one_pod_among_ten_thousand() -> None:
    """The right pod, and the others stay quiet."""
    queue = SchedulingQueue()
    for number in range(10_000):
        queue.add_unschedulable(str(number), (DeviceChanged("node", str(number)),), 0)
    queue.on_events([DeviceChanged("node", "4711")], 100)

    assert [queue.pop(100), queue.pop(100)] == ["4711", None]


def test_memory_does_not_grow_with_attempts() -> None:
    """A pod that is tried for weeks leaves no trail."""
    queue, now = SchedulingQueue(), 0.0
    queue.add_unschedulable("quiet", (), now)
    for _ in range(2_000):
        queue.add_unschedulable("a", (GPU, NODE), now)
        queue.add("a")
        queue.pop(now)
        queue.add("a")
        for rank in (1, 2, 0):
            queue.set_priority("a", rank)
        now += 0.01
    queue.add("a")
    for rank in range(500):
        queue.set_priority("a", rank)
    assert queue.pop(now) == "a"
    queue.remove("a")

    assert len(queue._timers) < 200
    assert len(queue._active) < 200
    assert queue._waiting == {}


@given(st.randoms(use_true_random=False))
def test_no_pod_is_ever_lost(chance: random.Random) -> None:
    """Whatever happens, who was added and not removed is handed out again within five minutes and a back-off."""
    queue, now, known = SchedulingQueue(), 0.0, set[str]()
    for _ in range(60):
        uid = chance.choice("abcd")
        now += chance.choice([0, 0, 0.5, 3, 40])
        match chance.randrange(5):
            case 0:
                queue.add(uid)
                known.add(uid)
            case 1:
                queue.on_events([chance.choice(ALL)], now)
            case 2:
                queue.remove(uid)
                known.discard(uid)
            case _:
                popped = queue.pop(now)
                if popped is not None and chance.random() < 0.1:
                    queue.assumed(popped)
                if popped is not None and chance.random() < 0.5:
                    queue.add_unschedulable(popped, [chance.choice(ALL)], now)
                elif popped is not None:
                    queue.back_off(popped, now)
    now += 310
    assert known == set(iter(lambda: queue.pop(now), None))


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["add", "remove", "pop", -1, 0, 1]))))
def test_order_is_rank_then_becoming_active(steps: list[tuple[str, str | int]]) -> None:
    """Whatever is ranked anew meanwhile: as if all who are active were sorted at each turn."""
    queue, ranks, known, active = SchedulingQueue(), dict[str, int](), set[str](), list[str]()
    for uid, step in steps:
        if step == "add":
            queue.add(uid)
            known.add(uid)
            active += [uid] if uid not in active else []
        elif step == "remove":
            queue.remove(uid)
            ranks.pop(uid, None)
            known.discard(uid)
            active = [other for other in active if other != uid]
        elif step == "pop":
            first = max(active, key=lambda other: ranks.get(other, 0), default=None)
            assert queue.pop(0) == first
            active = [other for other in active if other != first]
        else:
            queue.set_priority(uid, int(step))
            ranks |= {uid: int(step)} if uid in known else {}
