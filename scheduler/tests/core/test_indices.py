"""Who has which line of a map, and which line is free next: against sets, and at a price that does not grow."""

from contextlib import closing
from functools import partial
from itertools import islice
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_scheduler.core.ledger.indices import Indices
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot
from gpu_scheduler.core.refs import WorkloadKey
from tests.steps import counted, same

LINES = (0, 1, 2, 5, 9)
MAPS: dict[WorkloadKey, PlacementMap] = {}


def workload(*lines: int, name: str = "train") -> WorkloadKey:
    """A workload whose map has these lines."""
    lines_of_it = PlacementMap(tuple(Slot(n, "node1", ()) for n in lines))
    key = WorkloadKey("default", "Deployment", name, lines_of_it.digest)
    MAPS[key] = lines_of_it
    return key


TRAIN = workload(*LINES)
STEPS = {
    "nobody has any: all, lowest first": ("", (0, 1, 2, 5, 9)),
    "a held line is not free": ("hold 0 a", (1, 2, 5, 9)),
    "a claimed line is not free": ("claim 1 a", (0, 2, 5, 9)),
    "a line that is freed is free again": ("hold 0 a, hold 1 b, look, release 0 a", (0, 2, 5, 9)),
    "a claim that is given up frees the line": ("claim 0 a, look, unclaim 0 a, claim 9 b", (0, 1, 2, 5)),
    "a line that two hold is free when both are gone": ("hold 0 a, hold 0 b, look, release 0 a", (1, 2, 5, 9)),
    "held and claimed, it is free when neither is left": ("hold 0 a, claim 0 b, look, release 0 a", (1, 2, 5, 9)),
    "an index that the map does not have changes nothing": ("hold 3 a, hold 10 b, release 3 a", (0, 1, 2, 5, 9)),
    "the last line, freed after all were held": (
        "hold 0 a, hold 1 b, hold 2 c, hold 5 d, hold 9 e, look, release 9 e",
        (9,),
    ),
    "lines come back in order of index, not of time": (
        "hold 0 a, hold 1 b, hold 2 c, hold 5 d, look, release 5 d, release 0 a, release 2 c",
        (0, 2, 5, 9),
    ),
    "a line freed twice before anybody looked is free once": (
        "hold 0 a, look, release 0 a, hold 0 b, release 0 b, hold 9 c",
        (0, 1, 2, 5),
    ),
    "when all are gone nothing is remembered": ("hold 0 a, hold 1 b, look, release 0 a, release 1 b", LINES),
}


@pytest.mark.parametrize(("steps", "free"), STEPS.values(), ids=STEPS)
def test_which_lines_are_free(steps: str, free: tuple[int, ...]) -> None:
    """Free are the lines of the map that nobody holds and no pending pod claims, lowest first."""
    indices = Indices()
    for step in filter(None, steps.split(", ")):
        word, *arguments = step.split()
        if word == "look":
            list(indices.free(TRAIN, MAPS[TRAIN]))
        else:
            getattr(indices, word)(TRAIN, int(arguments[0]), arguments[1])

    assert free == tuple(indices.free(TRAIN, MAPS[TRAIN]))


def test_who_holds_a_line_is_known_by_uid() -> None:
    """In the order in which they came; a claim is no hold."""
    indices = Indices()
    indices.hold(TRAIN, 0, "b")
    indices.hold(TRAIN, 0, "a")
    indices.hold(TRAIN, 0, "d")
    indices.hold(TRAIN, 2, "e")
    indices.claim(TRAIN, 1, "c")

    assert [indices.holders(TRAIN, index) for index in (0, 1, 2, 3)] == [("b", "a", "d"), (), ("e",), ()]
    for uid in "abd":
        assert uid in indices.holders(TRAIN, 0)
        indices.release(TRAIN, 0, uid)
    assert indices.holders(TRAIN, 0) == ()
    assert indices.holders(workload(0, name="other"), 0) == ()


class Lives(RuleBasedStateMachine):
    """Two workloads with one map each; the model is the plain list of who has what."""

    def __init__(self) -> None:
        super().__init__()
        self.indices = Indices()
        self.workloads = (TRAIN, workload(0, 1, name="other"))
        self.taken: list[tuple[WorkloadKey, str, int, str]] = []
        self.made = 0

    @rule(
        which=st.integers(0, 1),
        word=st.sampled_from(["held", "held", "claimed"]),
        index=st.sampled_from([*LINES, *LINES, 3, 99]),
    )
    def take(self, which: int, word: str, index: int) -> None:
        """Somebody holds or claims an index, one that the map does not have included."""
        self.made += 1
        entry = (self.workloads[which], word, index, str(self.made))
        self.taken.append(entry)
        (self.indices.hold if word == "held" else self.indices.claim)(entry[0], index, entry[3])

    @precondition(lambda self: self.taken)
    @rule(number=st.integers(0, 20))
    def give_back(self, number: int) -> None:
        """Any of them ends."""
        whose, word, index, uid = self.taken.pop(number % len(self.taken))
        (self.indices.release if word == "held" else self.indices.unclaim)(whose, index, uid)

    @rule(which=st.integers(0, 1), looks=st.integers(0, 6), take=st.booleans())
    def ask(self, which: int, looks: int, take: bool) -> None:  # noqa: FBT001
        """A decision looks at some free lines and stops at any of them, with or without taking it."""
        whose = self.workloads[which]
        with closing(self.indices.free(whose, MAPS[whose])) as free:
            seen = list(islice(free, looks))
        assert seen == self.free(whose)[:looks]
        if take and seen:
            self.made += 1
            self.taken.append((whose, "held", seen[-1], str(self.made)))
            self.indices.hold(whose, seen[-1], str(self.made))

    def free(self, whose: WorkloadKey) -> list[int]:
        """Every line, looked at one after the other."""
        busy = {index for owner, _, index, _ in self.taken if owner == whose}
        return sorted({slot.index for slot in MAPS[whose].slots} - busy)

    @invariant()
    def the_answers_are_those_of_a_walk_over_all(self) -> None:
        """Free lines and holders."""
        for whose in self.workloads:
            assert self.free(whose) == list(self.indices.free(whose, MAPS[whose]))
            for index in (*LINES, 3):
                holders = tuple(uid for *entry, uid in self.taken if entry == [whose, "held", index])
                assert holders == self.indices.holders(whose, index)

    @invariant()
    def nothing_is_kept_of_who_is_gone(self) -> None:
        """The entries are those that somebody has, and no pool outlives its pods."""
        noted = {(word, whose, index, uid) for (word, whose, index), uids in entries(self.indices) for uid in uids}
        assert noted == {(word, whose, index, uid) for whose, word, index, uid in self.taken}
        assert self.indices._pools.keys() == {whose for whose, *_ in self.taken}


def entries(indices: Indices) -> list[tuple[tuple[str, WorkloadKey, int], frozenset[str]]]:
    """Everything that is noted, with its types."""
    return list(indices.entries())  # type: ignore[arg-type]


TestLivesOfIndices = Lives.TestCase


def leaver(tide: int, live: list[int], random: Random) -> int:
    """Who goes next: in one tide the oldest, in the next the youngest, then anybody."""
    return (0, len(live) - 1, random.randrange(len(live)))[tide % 3]


def test_a_decision_costs_the_same_after_50000_pods() -> None:
    """On a map of 5,000 lines that fills up and empties, over and over, no pod's turn becomes dearer."""
    indices, whose, random = Indices(), workload(*range(5000)), Random(5)  # noqa: S311 - a lot, no secret
    live: list[int] = []
    # Static claims stand between; some pods always stay, so that nothing is ever forgotten as a whole.
    for index in range(100, 5000, 500):
        indices.claim(whose, index, "static")

    def rise_and_fall(tide: int) -> None:
        while len(live) < 4900:
            with closing(indices.free(whose, MAPS[whose])) as free:
                index = next(free)
            indices.hold(whose, index, "pod")
            live.append(index)
        while len(live) > 100:
            indices.release(whose, live.pop(leaver(tide, live, random)), "pod")

    costs = {}
    for tide in range(12):
        turn = partial(rise_and_fall, tide)
        if tide in {2, 11}:
            costs[tide] = counted(turn)
        else:
            turn()

    assert 0 < costs[11].lines <= 1.1 * costs[2].lines
    assert costs[11].memory <= 1.1 * costs[2].memory


def test_a_line_that_cannot_be_had_costs_no_walk() -> None:
    """The first line's node is gone, so it stays free: who comes next is not led past all lines that are held."""
    costs = []
    for held in (10, 4000):
        indices, whose = Indices(), workload(*range(5000))
        for index in range(1, held + 1):
            indices.hold(whose, index, "pod")

        def look(indices: Indices = indices, whose: WorkloadKey = whose, held: int = held) -> None:
            with closing(indices.free(whose, MAPS[whose])) as free:
                assert [next(free), next(free)] == [0, held + 1]

        # The first walks past them, once and for all.
        look()
        costs.append(counted(look))

    assert same(costs[1:], costs[:1])
