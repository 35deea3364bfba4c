import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.cluster_events import Aspect, ClassChanged, ClusterEvent, DeviceChanged, NodeChanged
from gpu_scheduler.core.scheduling_queue import SchedulingQueue
from unit_tests.steps import Cost, Name, counted, same

GPU = DeviceChanged("node4", "3")
OTHER = DeviceChanged("node4", "2")
CLASS = ClassChanged("one GPU, whichever")
OTHER_CLASS = ClassChanged("two GPUs, whichever")
NODE = NodeChanged("node4", Aspect.READY)
ALL: list[ClusterEvent] = [GPU, OTHER, NODE, CLASS]


# "add a", or a tuple where an argument is no text. A number lets that many seconds pass.
Step = float | str | tuple[Any, ...]


class Script:
    """A scheduling queue and a clock that only the steps move."""

    def __init__(self) -> None:
        self.queue = SchedulingQueue()
        self.now = 1000.0

    def run(self, *steps: Step) -> list[str | None]:
        """Run the steps; return the results of all `pop`."""
        popped: list[str | None] = []
        for step in steps:
            if isinstance(step, int | float):
                self.now += step
                continue
            verb, *words = step.split() if isinstance(step, str) else step
            if verb == "pop":
                popped.append(self.queue.pop(self.now))
            else:
                self.act(verb, *words)
        return popped

    def act(self, verb: str, *words: Any) -> None:
        queue, now = self.queue, self.now
        match verb, words:
            case "add", (uid, *known):
                queue.add(uid, now, *known)
            case "wait", (uid, *events):
                queue.add_unschedulable(uid, events, now)
            case "wait at a cost", (uid, cost, *events):
                queue.add_unschedulable(uid, events, now, cost)
            case ("event", events):
                queue.on_events(events, now)
            case ("requeue_soon", events):
                queue.requeue_soon(events, now)
            case "retry", (uid, *seconds):
                queue.back_off(uid, now, *map(float, seconds))
            case "priority", (uid, priority):
                queue.set_priority(uid, priority)
            case "placed", (uid,):
                queue.assumed(uid, now)
            case _:
                queue.remove(*words)


WAITS = ("wait", "a", GPU)
WAITS_B = ("wait", "b", GPU)
B_FIRST = ("priority", "b", (0, 5))
COSTLY = ("wait at a cost", "a", 0.1, GPU)
COSTLY_OF_CLASS = ("wait at a cost", "a", 0.1, CLASS)

IN_VAIN: list[Step] = [WAITS, ("event", GPU), "pop"]
IN_VAIN_TWICE: list[Step] = [WAITS, WAITS_B] * 3
# After so many attempts without a placement, each pod gets a back-off.
ATTEMPTS_OF_BOTH: list[Step] = [("wait", "a", CLASS), ("wait", "b", CLASS)] * 4
ATTEMPTS_OF_TWO_CLASSES: list[Step] = [("wait", "a", CLASS), ("wait", "b", OTHER_CLASS)] * 4
THRICE_IN_VAIN: list[Step] = ["add a", "pop", *IN_VAIN, *IN_VAIN, *IN_VAIN, WAITS]
BOTH_IN_BACKOFF: list[Step] = ["add a", "add b", "pop", "pop", *ATTEMPTS_OF_BOTH]


def failing(*seconds: float) -> list[Step]:
    """Return errors of pod a, and the pop so many seconds after each."""
    return [step for each in seconds for step in ("retry a", each, "pop")]


SCRIPTS = {
    "the pod that was added first is popped first": (["add b", "add a", "pop", "pop", "pop"], ["b", "a", None]),
    "a pod that changes keeps its place": (["add a 09", "add b 10", "add a 09", "pop", "pop"], ["a", "b"]),
    "of pods of one second, the one that was added first goes first": (
        ["add b 09", "add a 09", "pop", "pop"],
        ["b", "a"],
    ),
    "an unschedulable pod waits": (["add a", "pop", WAITS, 200, "pop"], ["a", None]),
    "an event that it waits for requeues it": (["add a", "pop", WAITS, 200, ("event", GPU), "pop"], ["a", "a"]),
    "an event that it does not wait for does not requeue it": (
        ["add a", "pop", WAITS, 200, ("event", OTHER, NODE), "pop"],
        ["a", None],
    ),
    "any of several events requeues it": (
        ["add a", "pop", ("wait", "a", GPU, NODE), 9, ("event", NODE), "pop"],
        ["a", "a"],
    ),
    "a pod is requeued once": (
        ["add a", "pop", WAITS, 9, ("event", GPU), "pop", ("event", GPU), "pop"],
        ["a", "a", None],
    ),
    "a requeued pod is popped at once": (["add a", "pop", WAITS, ("event", GPU), "pop"], ["a", "a"]),
    "after three attempts in vain it serves a back-off": (
        [*THRICE_IN_VAIN, ("event", GPU), "pop", 0.9, "pop", 0.1, "pop"],
        ["a", "a", "a", "a", None, None, "a"],
    ),
    "requeued after the end of its back-off, it is popped at once": (
        [*THRICE_IN_VAIN, 1, ("event", GPU), "pop"],
        ["a", "a", "a", "a", "a"],
    ),
    "after a long time, attempts in vain are forgotten": (
        [*THRICE_IN_VAIN, 11, ("event", GPU), "pop", *IN_VAIN],
        ["a", "a", "a", "a", "a", "a"],
    ),
    "its own change does not wait for any back-off": (["add a", "pop", WAITS, "add a", "pop"], ["a", "a"]),
    "its own change ends its wait": (
        ["add a", "pop", WAITS, "add a", "pop", 9, ("event", GPU), "pop"],
        ["a", "a", None],
    ),
    "without any event it is popped every five minutes": (
        ["add a", "pop", WAITS, 299.9, "pop", 0.1, "pop"],
        ["a", None, "a"],
    ),
    "a refused pod waits for its own change or the five minutes": (
        ["add a", "pop", ("wait", "a"), 299, "pop", 1, "pop"],
        ["a", None, "a"],
    ),
    "after an error it is popped in a second": (["add a", "pop", "retry a", 0.9, "pop", 0.1, "pop"], ["a", None, "a"]),
    "it is popped no sooner than the patience of its error": (
        ["add a", "pop", "retry a 5", 4.9, "pop", 0.1, "pop", "retry a 1", 1.9, "pop", 0.1, "pop"],
        ["a", None, "a", None, "a"],
    ),
    "each error doubles the back-off": (
        ["add a", "pop", *failing(1, 1.9), 0.1, "pop", *failing(3.9), 0.1, "pop"],
        ["a", "a", None, "a", None, "a"],
    ),
    "the back-off ends at ten seconds": (
        ["add a", "pop", *failing(1, 2, 4, 8, 9.9), 0.1, "pop", *failing(9.9), 0.1, "pop"],
        ["a", "a", "a", "a", "a", None, "a", None, "a"],
    ),
    "after a long time the back-off is a second again": (
        ["add a", "pop", *failing(1, 2), WAITS, 14, ("event", GPU), "pop", *failing(1)],
        ["a", "a", "a", "a", "a"],
    ),
    "an event that frees nothing requeues in a second": (
        ["add a", "pop", WAITS, 100, ("requeue_soon", GPU), 0.9, "pop", 0.1, "pop"],
        ["a", None, "a"],
    ),
    "further such events do not postpone it": (
        ["add a", "pop", WAITS, 100, ("requeue_soon", GPU), 0.5, ("requeue_soon", GPU), 0.5, "pop"],
        ["a", "a"],
    ),
    "such an event does not delay one that requeues": (
        ["add a", "pop", WAITS, 100, ("requeue_soon", GPU), 0.1, ("event", GPU), "pop", 2, "pop"],
        ["a", "a", None],
    ),
    "such an event does not requeue a pod that waits for another": (
        ["add a", "pop", WAITS, 100, ("requeue_soon", OTHER), 9, "pop"],
        ["a", None],
    ),
    "a pod in back-off that changes itself is popped once": (
        ["add a", "pop", "retry a", "add a", "pop", 20, "pop"],
        ["a", "a", None],
    ),
    "a first attempt goes before a retry of an older pod": (
        ["add a 09", "pop", WAITS, 5, "add b 10", ("event", GPU), "pop", "pop"],
        ["a", "b", "a"],
    ),
    "a first attempt goes before a retry after an error": (
        ["add a 09", "pop", "retry a", 1, "add b 10", "pop", "pop"],
        ["a", "b", "a"],
    ),
    "its own change does not make a retry a first attempt": (
        ["add a 09", "pop", WAITS, "add b 10", "add a 09", "pop", "pop"],
        ["a", "b", "a"],
    ),
    "after four first attempts in a row a retry goes before the next": (
        ["add a", "pop", WAITS, ("event", GPU), *(f"add {uid}" for uid in "bcdef"), *["pop"] * 6],
        ["a", "b", "c", "d", "e", "a", "f"],
    ),
    "the retry of a pod of higher priority goes before first attempts": (
        ["add b", B_FIRST, "pop", WAITS_B, "add a", ("event", GPU), "pop", "pop"],
        ["b", "b", "a"],
    ),
    "four first attempts of higher priority do not let a retry of lower priority go": (
        ["add a", "pop", "retry a", 1]
        + [step for uid in "bcdef" for step in (f"add {uid}", ("priority", uid, (1, 0)))]
        + ["pop"] * 6,
        ["a", "b", "c", "d", "e", "f", "a"],
    ),
    "spec.priority counts before the priority by strategy": (
        ["add a", ("priority", "a", (0, 9)), "add b", ("priority", "b", (1, -5)), "pop", "pop"],
        ["b", "a"],
    ),
    "of equal spec.priority, the priority by strategy counts": (
        ["add a", ("priority", "a", (1, 1)), "add b", ("priority", "b", (1, 2)), "pop", "pop"],
        ["b", "a"],
    ),
    "namespaces take turns": (
        [*(f"add {uid} 09 many" for uid in "abcd"), "add e 10 few", "add f 10 few", *["pop"] * 6],
        ["a", "e", "b", "f", "c", "d"],
    ),
    "a namespace whose pods come one by one has no more turns than another": (
        ["add a 10 few", "add b 10 few", "add c 09 many", "pop", "pop", "add d 09 many", "pop", "pop"],
        ["a", "c", "b", "d"],
    ),
    "within a namespace the oldest pod goes first": (
        ["add a 10 one", "add b 09 one", "add c 11 other", "pop", "pop", "pop"],
        ["b", "c", "a"],
    ),
    "all pods that wait for a GPU are requeued, the oldest first": (
        ["add a 10", "add b 09", "pop", "pop", ("wait", "a", GPU), ("wait", "b", GPU), 5, ("event", GPU), "pop", "pop"],
        ["b", "a", "b", "a"],
    ),
    "a removed pod is not requeued": (["add a", "pop", WAITS, "remove a", 5, ("event", GPU), "pop"], ["a", None]),
    "a pod that was removed and added again has no old timer": (
        ["add a", "pop", "retry a", "remove a", "add a", "pop", 5, "pop"],
        ["a", "a", None],
    ),
    "a pod that waits anew forgets its former events": (
        ["add a", "pop", WAITS, ("wait", "a", OTHER), 5, ("event", GPU), "pop", ("event", OTHER), "pop"],
        ["a", None, "a"],
    ),
    "a pod that waits before it was popped is requeued by its own change": (
        ["add a", WAITS, "pop", "add a", "pop"],
        [None, "a"],
    ),
    "an unknown pod may be retried": (["retry a", 1, "pop"], ["a"]),
    "an unknown pod may be removed": (["remove a", "pop"], [None]),
    "a priority that is set while the pod is handed out counts afterwards": (
        ["add b 11", "pop", B_FIRST, "add a 09", "add b 11", "pop", "pop"],
        ["b", "b", "a"],
    ),
    "a priority alone requeues no pod": (["add b", "pop", WAITS_B, B_FIRST, "pop"], ["b", None]),
    "a priority is kept while the pod waits": (
        ["add b 11", B_FIRST, "pop", WAITS_B, 5, "add a 09", ("event", GPU), "pop", "pop"],
        ["b", "b", "a"],
    ),
    "a priority is removed with the pod": (["add a", B_FIRST, "add b", "remove b", "add b", "pop", "pop"], ["a", "b"]),
    "a second event does not extend a back-off": (
        [*THRICE_IN_VAIN, ("event", GPU), 0.5, ("event", GPU), 0.5, "pop", 5, "pop"],
        ["a", "a", "a", "a", "a", None],
    ),
    "of pods that wait for the same GPUs, the first one serves no back-off": (
        [*BOTH_IN_BACKOFF, ("event", CLASS), "pop", "pop"],
        ["a", "b", "a", None],
    ),
    "after it is assumed, the next one is requeued": (
        [*BOTH_IN_BACKOFF, ("event", CLASS), "pop", "placed a", "pop", "placed b", "pop"],
        ["a", "b", "a", "b", None],
    ),
    "one pod is requeued, and only once": (
        [*BOTH_IN_BACKOFF, ("event", CLASS), "pop", ("wait", "c", CLASS), "placed a", "placed a", "pop", "pop"],
        ["a", "b", "a", "b", None],
    ),
    "of pods that wait for the same GPUs, the oldest is the first one": (
        ["add a 10", "add b 09", "pop", "pop", *ATTEMPTS_OF_BOTH, ("event", CLASS), "pop", "pop"],
        ["b", "a", "b", None],
    ),
    "the first one is the pod of the highest priority": (
        ["add a", "add b", B_FIRST, "pop", "pop", *ATTEMPTS_OF_BOTH, ("event", CLASS), "pop", "pop"],
        ["b", "a", "b", None],
    ),
    "of the first ones for different events, the pod that was added first goes first": (
        ["add a", "add b", "pop", "pop", *ATTEMPTS_OF_TWO_CLASSES, ("event", OTHER_CLASS, CLASS), "pop", "pop"],
        ["a", "b", "a", "b"],
    ),
    "the others are requeued after their back-off": (
        [*BOTH_IN_BACKOFF, ("event", CLASS), "pop", 1, "pop"],
        ["a", "b", "a", "b"],
    ),
    "a pod that waits for a named GPU serves its back-off, whatever pod is assumed": (
        ["add a", "add b", "pop", "pop", *IN_VAIN_TWICE, WAITS, WAITS_B, ("event", GPU), "placed a", "pop"],
        ["a", "b", None],
    ),
    "an event does not shorten what its attempt cost": (
        ["add a", "pop", COSTLY, ("event", GPU), 1.9, "pop", 0.1, "pop"],
        ["a", None, "a"],
    ),
    "nor does its own change, however often": (
        ["add a", "pop", COSTLY, "add a", "pop", 1, "add a", "pop", 0.9, "add a", "pop", 0.1, "pop"],
        ["a", None, None, None, "a"],
    ),
    "nor does a freed device for which many wait": (
        ["add a", "add b", "pop", "pop", COSTLY_OF_CLASS, ("event", CLASS), "pop", 1.9, "pop", 0.1, "pop"],
        ["a", "b", None, None, "a"],
    ),
    "of pods that wait for the same GPUs, the first one waits until its cost is paid, and then serves no back-off": (
        [*BOTH_IN_BACKOFF, ("wait at a cost", "a", 0.01, CLASS), ("event", CLASS), "pop", 0.2, "pop", "pop"],
        ["a", "b", None, "a", None],
    ),
    "an event after the cost was paid requeues at once": (
        ["add a", "pop", COSTLY, 2, ("event", GPU), "pop"],
        ["a", "a"],
    ),
    "a back-off that is longer than the cost counts": (
        [*THRICE_IN_VAIN, ("wait at a cost", "a", 0.01, GPU), ("event", GPU), 1.9, "pop", 0.1, "pop"],
        ["a", "a", "a", "a", None, "a"],
    ),
    "an attempt of great cost delays even the five minutes": (
        ["add a", "pop", ("wait at a cost", "a", 20), 399, "pop", 1, "pop"],
        ["a", None, "a"],
    ),
    "an unknown pod may be assumed": (["placed a", "pop"], [None]),
}


@pytest.mark.promise("wait-3")
@pytest.mark.parametrize(("steps", "popped"), SCRIPTS.values(), ids=SCRIPTS)
def test_pods_are_popped_in_this_order(steps: list[Step], popped: list[str | None]) -> None:
    """The queue pops these pods."""
    assert popped == Script().run(*steps)


DUE = {
    "nothing waits": ([], None),
    "a pod is active": (["add a"], 0.0),
    "a pod is handed out": (["add a", "pop"], None),
    "a pod is in back-off": (["add a", "pop", "retry a", 0.25], 0.75),
    "a pod is unschedulable": (["add a", "pop", WAITS, 100], 200.0),
    "a pod's back-off is over": (["add a", "pop", "retry a", 5], 0.0),
    "the active pod was removed": (["add a", "remove a"], None),
    "the pod in back-off was removed": (["add a", "pop", "retry a", "remove a"], None),
    "the first of two pods": (["add a", "add b", "pop", "pop", WAITS, "retry b"], 1.0),
}


@pytest.mark.promise("wait-4")
@pytest.mark.parametrize(("steps", "seconds"), DUE.values(), ids=DUE)
def test_next_due(steps: list[Step], seconds: float | None) -> None:
    """next_due is the time in which the scheduling loop may sleep."""
    script = Script()
    script.run(*steps)
    due = script.queue.next_due(script.now)

    assert seconds == (None if due is None else due - script.now)


def test_counts_are_by_queue() -> None:
    """The queues are named as kube-scheduler's; a pod that is handed out is in none."""
    script = Script()
    script.run("add a", "add b", "add c", "add d", "pop", "pop", "pop", WAITS, "retry b")

    assert script.queue.counts() == {"active": 1, "backoff": 1, "unschedulable": 1}


@pytest.mark.promise("wait-2")
def test_a_freed_gpu_requeues_one_pod_among_ten_thousand() -> None:
    """The pod that waits for the GPU is requeued, and no other."""
    queue = SchedulingQueue()
    for number in range(10_000):
        queue.add_unschedulable(str(number), (DeviceChanged("node", str(number)),), 0)
    queue.on_events([DeviceChanged("node", "4711")], 100)

    assert [queue.pop(100), queue.pop(100)] == ["4711", None]


def test_a_freed_device_costs_the_same_however_many_pods_wait_for_it() -> None:
    """The next pod is requeued after each placement. Only the logarithm of the number of waiting pods counts (P9)."""
    little, much = (costs_of_placements(pods) for pods in (40, 4_000))

    assert same(much, little, lines=1.6)


def costs_of_placements(pods: int) -> list[Cost]:
    """Return the costs of 20 placements, while so many pods wait in back-off for devices of one class."""
    queue, uids = SchedulingQueue(), [Name(f"{number:04}") for number in range(pods)]
    for uid in uids:
        queue.add(uid, 0)
        for _ in range(4):
            queue.add_unschedulable(uid, [CLASS], 0)
    queue.on_events([CLASS], 0)

    def place() -> None:
        uid = queue.pop(0)
        assert uid is not None
        queue.assumed(uid, 0)
        queue.remove(uid)

    return [counted(place) for _ in range(20)]


@pytest.mark.promise("wait-6")
def test_a_hundred_waiting_pods_of_a_namespace_delay_another_by_one_attempt() -> None:
    """Whether the other namespace's pod is new, or older and waits too (S3)."""
    script = Script()
    script.run("add late 99 few", "pop", ("wait", "late", OTHER))
    for number in range(100):
        script.run(f"add {number} 00 many", "pop", ("wait", str(number), GPU))
    script.run(("event", GPU), "add new 99 few")
    assert script.run("pop") == ["new"]

    script.run(("event", OTHER))
    assert "late" in script.run("pop", "pop")


@pytest.mark.promise("wait-3")
def test_a_hold_that_changes_all_the_time_causes_ever_fewer_attempts() -> None:
    """The owner of a running pod, patched twice a second, frees nothing: who waits is tried 12 times a minute."""
    script = Script()
    script.run("add a", "pop", WAITS)
    attempts = 1
    for _ in range(120):
        if script.run(("requeue_soon", GPU), 0.5, "pop") == ["a"]:
            attempts += 1
            script.run(WAITS)

    assert attempts <= 12


@pytest.mark.promise("wait-7")
def test_a_pod_that_changes_all_the_time_uses_a_twentieth_of_it() -> None:
    """An attempt of 20 ms each time that the queue allows one, for a minute of changes and events."""
    script = Script()
    script.run("add a")
    attempts = 0
    for _ in range(6_000):
        if script.run("add a", ("event", GPU), 0.01, "pop") == ["a"]:
            attempts += 1
            script.run(("wait at a cost", "a", 0.02, GPU))

    assert 100 <= attempts <= 60 * 0.05 / 0.02


def test_a_freed_device_goes_to_the_next_namespace() -> None:
    """Of pods that wait in back-off for devices of one class, each namespace has one requeued in turn."""
    script = Script()
    script.run(*(f"add {uid} 09 many" for uid in "abc"), "add d 10 few", *["pop"] * 4)
    waits: list[Step] = [("wait", uid, CLASS) for uid in "abcd"]
    script.run(*waits * 4)
    frees: list[Step] = [("event", CLASS), "pop"]

    assert script.run(*frees * 4) == ["a", "d", "b", "c"]


def test_memory_does_not_grow_with_attempts() -> None:
    """A pod that is tried for weeks leaves no outdated entries."""
    queue, now = SchedulingQueue(), 0.0
    queue.add_unschedulable("quiet", (CLASS,), now)
    for _ in range(2_000):
        queue.add_unschedulable("a", (GPU, NODE, CLASS), now)
        queue.add("a", now)
        queue.pop(now)
        queue.add("a", now)
        for priority in (1, 2, 0):
            queue.set_priority("a", (0, priority))
        now += 0.01
    queue.add("a", now)
    for priority in range(500):
        queue.set_priority("a", (priority, -priority))
    assert queue.pop(now) == "a"
    queue.remove("a")

    assert len(queue._timers) < 200
    for each in (queue._first_attempts, queue._retries, queue._shared[CLASS]):
        entries = [pods for namespaces in each._namespaces.values() for pods in namespaces.values()]
        assert len(entries) + sum(map(len, entries)) < 400
    queue.remove("quiet")
    assert not queue._waiting
    assert not queue._shared


@given(st.randoms(use_true_random=False))
def test_no_pod_is_ever_lost(chance: random.Random) -> None:
    """A pod that was added and not removed is popped again within five minutes and a back-off."""
    queue, now, known = SchedulingQueue(), 0.0, set[str]()
    for _ in range(60):
        uid = chance.choice("abcd")
        now += chance.choice([0, 0, 0.5, 3, 40])
        match chance.randrange(5):
            case 0:
                queue.add(uid, now)
                known.add(uid)
            case 1:
                queue.on_events([chance.choice(ALL)], now)
            case 2:
                queue.remove(uid)
                known.discard(uid)
            case _:
                popped = queue.pop(now)
                if popped is not None and chance.random() < 0.1:
                    queue.assumed(popped, now)
                if popped is not None and chance.random() < 0.5:
                    queue.add_unschedulable(popped, [chance.choice(ALL)], now, chance.choice([0, 0.1, 1]))
                elif popped is not None:
                    queue.back_off(popped, now)
    now += 310
    assert known == set(iter(lambda: queue.pop(now), None))


UIDS = "abcdef"
CREATED = {uid: f"2026-11-24T0{number}:00:00Z" for number, uid in enumerate("fadcbe")}
NAMESPACES = dict(zip(UIDS, ("one", "one", "one", "two", "two", "three"), strict=True))
LEVELS = [(0, 0), (0, 1), (1, -1)]


class Order:
    """What must hold of each pop, by the pods that are active, those that were tried, and the pops before."""

    def __init__(self) -> None:
        self.active: dict[str, int] = {}
        """The number of pops when the pod was active first, with its present priority."""
        self.priorities: dict[str, tuple[int, int]] = {}
        self.tried: set[str] = set()
        self.pops: list[tuple[str, tuple[int, int], bool]] = []
        self.retries_passed = 0

    def line(self, uid: str) -> tuple[tuple[int, int], bool]:
        return self.priorities[uid], uid in self.tried

    def set_priority(self, uid: str, priority: tuple[int, int]) -> None:
        if uid in self.priorities and self.priorities[uid] != priority:
            self.priorities[uid] = priority
            self.active |= {uid: len(self.pops)} if uid in self.active else {}

    def popped(self, uid: str) -> None:
        highest = max(self.priorities[each] for each in self.active)
        rivals = {each for each in self.active if self.priorities[each] == highest}
        assert uid in rivals
        both = len({each in self.tried for each in rivals}) == 2
        assert not both or (uid in self.tried) == (self.retries_passed >= 4)
        fellows = [each for each in rivals if self.line(each) == self.line(uid)]
        own = [each for each in fellows if NAMESPACES[each] == NAMESPACES[uid]]
        assert uid == min(own, key=CREATED.__getitem__)
        turn = (NAMESPACES[uid], *self.line(uid))
        if turn in self.pops:
            before = len(self.pops) - self.pops[::-1].index(turn)
            waited = {NAMESPACES[each] for each in fellows if self.active[each] < before} - {NAMESPACES[uid]}
            since = {namespace for namespace, *line in self.pops[before:] if tuple(line) == self.line(uid)}
            assert waited <= since
        passes = uid not in self.tried and not self.tried.isdisjoint(self.active)
        self.retries_passed = self.retries_passed + 1 if passes else 0
        self.pops.append(turn)
        del self.active[uid]


@pytest.mark.promise("steer-5")
@given(st.lists(st.tuples(st.sampled_from(UIDS), st.sampled_from(["add", "remove", "pop", "pop", "wait", *LEVELS]))))
def test_each_pop_keeps_the_order(steps: list[tuple[str, str | tuple[int, int]]]) -> None:
    """Priority, first attempts before retries, no namespace twice before another that waits, then age."""
    queue, order, waiting = SchedulingQueue(), Order(), set[str]()
    for uid, step in steps:
        if step == "add":
            queue.add(uid, 0, CREATED[uid], NAMESPACES[uid])
            order.priorities.setdefault(uid, (0, 0))
            order.active.setdefault(uid, len(order.pops))
            waiting.discard(uid)
        elif step == "remove":
            queue.remove(uid)
            order.active.pop(uid, None)
            order.priorities.pop(uid, None)
            order.tried.discard(uid)
            waiting.discard(uid)
        elif step == "pop":
            popped = queue.pop(0)
            assert (popped is None) == (not order.active)
            if popped is not None:
                order.popped(popped)
                waiting.add(popped)
        elif isinstance(step, tuple):
            queue.set_priority(uid, step)
            order.set_priority(uid, step)
        elif uid in waiting:
            queue.add_unschedulable(uid, [CLASS], 0)
            order.tried.add(uid)
