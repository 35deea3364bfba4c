"""Which pod holds which line of a map, and which line is free next: compared with sets, and at constant cost."""

from contextlib import closing
from itertools import islice

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpu_scheduler.core.ledger.indices import Indices
from gpu_scheduler.core.pods.placement_map import PlacementMap
from gpu_scheduler.core.refs import WorkloadKey
from unit_tests.steps import counted, same

LINES = (0, 1, 2, 5, 9)
MAPS: dict[WorkloadKey, PlacementMap] = {}


def workload(*lines: int, name: str = "train") -> WorkloadKey:
    """Return the key of a workload with these lines in its map."""
    placement_map = PlacementMap({line: f"{line}=node1:" for line in lines})
    key = WorkloadKey("default", "Deployment", name, placement_map.digest)
    MAPS[key] = placement_map
    return key


TRAIN = workload(*LINES)


class IndicesMachine(RuleBasedStateMachine):
    """Two workloads with one map each; the model is a plain list of holds and reservations."""

    def __init__(self) -> None:
        super().__init__()
        self.indices = Indices()
        self.workloads = (TRAIN, workload(0, 1, name="other"))
        self.taken: list[tuple[WorkloadKey, str, int, str]] = []
        self.created = 0

    @rule(
        which=st.integers(0, 1),
        kind=st.sampled_from(["held", "held", "reserved"]),
        index=st.sampled_from([*LINES, *LINES, 3, 99]),
    )
    def take(self, which: int, kind: str, index: int) -> None:
        """Hold or reserve an index, also an index that the map does not have."""
        self.created += 1
        entry = (self.workloads[which], kind, index, str(self.created))
        self.taken.append(entry)
        (self.indices.hold if kind == "held" else self.indices.reserve)(entry[0], index, entry[3])

    @precondition(lambda self: self.taken)
    @rule(number=st.integers(0, 20))
    def give_back(self, number: int) -> None:
        """End one of the holds and reservations."""
        workload_key, kind, index, uid = self.taken.pop(number % len(self.taken))
        (self.indices.release if kind == "held" else self.indices.unreserve)(workload_key, index, uid)

    @rule(which=st.integers(0, 1), reads=st.integers(0, 6), take=st.booleans())
    def read_some(self, which: int, reads: int, take: bool) -> None:  # noqa: FBT001
        """Read some free lines, as a decision does, and take the last one or none."""
        workload_key = self.workloads[which]
        with closing(self.indices.free(workload_key, MAPS[workload_key])) as free:
            seen = list(islice(free, reads))
        assert seen == self.free(workload_key)[:reads]
        if take and seen:
            self.created += 1
            self.taken.append((workload_key, "held", seen[-1], str(self.created)))
            self.indices.hold(workload_key, seen[-1], str(self.created))

    def free(self, workload_key: WorkloadKey) -> list[int]:
        """Return the free lines, found by a check of every line."""
        busy = {index for owner, _, index, _ in self.taken if owner == workload_key}
        return sorted({slot.index for slot in MAPS[workload_key].slots} - busy)

    @invariant()
    def results_are_those_of_a_slow_search(self) -> None:
        """Free lines and holders are compared."""
        for workload_key in self.workloads:
            assert self.free(workload_key) == list(self.indices.free(workload_key, MAPS[workload_key]))
            for index in (*LINES, 3):
                holders = tuple(uid for *entry, uid in self.taken if entry == [workload_key, "held", index])
                assert holders == self.indices.holders(workload_key, index)

    @invariant()
    def nothing_is_kept_of_deleted_pods(self) -> None:
        """The entries are the current holds and reservations, and a workload without them has no pool."""
        kept = {
            (kind, workload_key, index, uid)
            for (kind, workload_key, index), uids in entries(self.indices)
            for uid in uids
        }
        assert kept == {(kind, workload_key, index, uid) for workload_key, kind, index, uid in self.taken}
        assert self.indices._pools.keys() == {workload_key for workload_key, *_ in self.taken}


def entries(indices: Indices) -> list[tuple[tuple[str, WorkloadKey, int], frozenset[str]]]:
    """Return all entries, with their types."""
    return list(indices.entries())  # type: ignore[arg-type]


TestIndicesMachine = IndicesMachine.TestCase


@pytest.mark.promise("index-14")
def test_the_next_line_costs_the_same_after_4000_pods() -> None:
    """The search does not pass the lines again that pods hold."""
    costs = []
    for held in (10, 4000):
        indices, workload_key = Indices(), workload(*range(5000))

        def place(indices: Indices = indices, workload_key: WorkloadKey = workload_key) -> None:
            with closing(indices.free(workload_key, MAPS[workload_key])) as free:
                index = next(free)
            indices.hold(workload_key, index, "pod")

        for _ in range(held):
            place()
        costs.append(counted(place))

    assert same(costs[1:], costs[:1])


def test_an_infeasible_free_line_has_constant_cost() -> None:
    """The first line's node does not exist, so the line stays free: the next decision does not read all held lines."""
    costs = []
    for held in (10, 4000):
        indices, workload_key = Indices(), workload(*range(5000))
        for index in range(1, held + 1):
            indices.hold(workload_key, index, "pod")

        def read_two(indices: Indices = indices, workload_key: WorkloadKey = workload_key, held: int = held) -> None:
            with closing(indices.free(workload_key, MAPS[workload_key])) as free:
                assert [next(free), next(free)] == [0, held + 1]

        # The first call reads all held lines; later calls must not.
        read_two()
        costs.append(counted(read_two))

    assert same(costs[1:], costs[:1])
