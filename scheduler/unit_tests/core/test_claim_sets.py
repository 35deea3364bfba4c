"""Which ResourceClaims the pods of a map carry."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_scheduler.core.pods.claim_sets import ClaimSet, claim_sets, most_pods
from gpu_scheduler.core.pods.placement_map import PlacementMap, Slot, parse_placement_map
from unit_tests.core.build import MAP
from unit_tests.steps import counted

LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")

# Map → the sets of devices of each line.
SETS: dict[str, tuple[str, dict[int, list[str]]]] = {
    "a line of its own has one claim": (MAP, {0: ["0 1"], 1: ["2"], 2: ["0 1 2"], 3: ["3"], 4: ["3"]}),
    "what two lines share is a claim of its own": ("0=node1:0,1,2\n1=node1:2,3", {0: ["0 1", "2"], 1: ["2", "3"]}),
    "a line within another line is one claim": ("0=node1:0,1\n1=node1:1", {0: ["0", "1"], 1: ["1"]}),
    "claims are in the order in which the line names their first devices": (
        "0=node1:5,1,0\n1=node1:1,0",
        {0: ["5", "0 1"], 1: ["0 1"]},
    ),
    "the devices of a claim are in order of number": ("0=node1:10,9,2", {0: ["2 9 10"]}),
    "the same number on another node is another device": ("0=node1:0\n1=node2:0", {0: ["0"], 1: ["0"]}),
    "three lines share in two ways": (
        "0=node1:0,1\n1=node1:1,2\n2=node1:0,1,2",
        {0: ["0", "1"], 1: ["1", "2"], 2: ["0", "1", "2"]},
    ),
    "a line without devices has none": ("0=node1:\n1=node1:0", {0: [], 1: ["0"]}),
}


def claims_of(placement_map: PlacementMap, index: int, namespace: str = "default", uid: str = "u") -> list[ClaimSet]:
    slot = placement_map.get(index)
    assert slot is not None
    return list(claim_sets(placement_map, slot, namespace, uid))


@pytest.mark.promise("isolate-1")
@pytest.mark.parametrize(("text", "sets"), SETS.values(), ids=SETS)
def test_the_devices_of_a_line_are_in_sets(text: str, sets: dict[int, list[str]]) -> None:
    """One claim stands for the devices that exactly the same lines name."""
    parsed = parse_placement_map(text)

    assert sets == {index: [" ".join(each.devices) for each in claims_of(parsed, index)] for index in sets}


def test_lines_with_the_same_devices_have_the_same_claim() -> None:
    """Pods 3 and 4 of the README's map share a claim; all others have claims of their own."""
    parsed = parse_placement_map(MAP)
    found = [[each.name for each in claims_of(parsed, index)] for index in range(5)]

    assert found[3] == found[4]
    assert len({name for names in found for name in names}) == 4


# What a name depends on: map, index, namespace, uid of the controller.
Of = tuple[str, int, str, str]
FIRST: Of = ("0=node1:0,1\n1=node1:2", 0, "default", "u")
OTHERS: dict[str, tuple[Of, bool]] = {
    "the same pod": (FIRST, True),
    "a map that differs only in comments": (("# a\n1=node1:2\n 0 = node1 : 0,1", 0, "default", "u"), True),
    "another namespace": ((FIRST[0], 0, "other", "u"), False),
    "another controller": ((FIRST[0], 0, "default", "v"), False),
    "no controller": ((FIRST[0], 0, "default", ""), False),
    "another line": ((FIRST[0], 1, "default", "u"), False),
    "another map": (("0=node1:0,1\n1=node1:3", 0, "default", "u"), False),
    "another node": (("0=node2:0,1\n1=node1:2", 0, "default", "u"), False),
    "a uid with the text of another part": (("0=node1:0\n1=node1:2", 0, "default", "1\0u"), False),
}


@pytest.mark.promise("isolate-1")
@pytest.mark.parametrize(("other", "same"), OTHERS.values(), ids=OTHERS)
def test_a_name_stands_for_the_workload_and_its_devices(other: Of, *, same: bool) -> None:
    """Whoever reads the same pod finds the same name, and no other pod has it."""
    (one,), (two,) = (
        claims_of(parse_placement_map(text), index, namespace, uid) for text, index, namespace, uid in (FIRST, other)
    )

    assert (one.name == two.name) is same


LINES = st.lists(
    st.tuples(st.sampled_from(["node1", "node2"]), st.lists(st.sampled_from("012345"), unique=True, max_size=6)),
    min_size=1,
    max_size=8,
)


@given(LINES, st.text(max_size=9))
def test_sets_are_a_partition_of_each_line(lines: list[tuple[str, list[str]]], uid: str) -> None:
    """Sets are disjoint and together the line; two lines share a name if and only if they name the whole set."""
    parsed = PlacementMap({i: f"{i}={node}:{','.join(devices)}" for i, (node, devices) in enumerate(lines)})
    found = [claims_of(parsed, index, uid=uid) for index in range(len(lines))]

    for (node, devices), claims in zip(lines, found, strict=True):
        assert sorted(devices) == sorted(device for each in claims for device in each.devices)
        first = [min(devices.index(device) for device in each.devices) for each in claims]
        assert first == sorted(first)
        for claim in claims:
            assert LABEL.fullmatch(claim.name)
            having = [claims_ for claims_ in found if claim in claims_]
            naming = [on for on in lines if on[0] == node and set(claim.devices) & set(on[1])]
            assert len(having) == len(naming)
            assert all(set(claim.devices) <= set(others) for _, others in naming)
            assert most_pods(parsed, Slot(0, node, claim.devices)) == len(naming)
    # No set could be larger: two devices in different sets are not on the same lines.
    for claims in found:
        where = [{at for at, others in enumerate(found) if claim in others} for claim in claims]
        assert len(where) == len({frozenset(each) for each in where})


def test_the_claims_of_the_longest_maps_cost_little() -> None:
    """A map is read once for all of its pods, also if thousands of lines share thousands of devices."""

    def cost(lines: int) -> int:
        shared = PlacementMap({index: f"{index}=n:{index // 2},{9000 + index % 7}" for index in range(lines)})
        slots = shared.slots
        return counted(lambda: [claim_sets(shared, slot, "default", "u") for slot in slots]).lines

    assert cost(2000) <= 8.5 * cost(250)
