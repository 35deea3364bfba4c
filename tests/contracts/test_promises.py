"""tests/promises.py finds what is wrong between the contract's lines and the tests that name them."""

from __future__ import annotations

import pytest

from tests.promises import Named, faults

IDS = ["map-1", "map-2"]
UNIT = Named("scheduler/tests/core/test_placement_map.py::test_a", ("map-1",))
CLUSTER = Named("tests/cluster/verify/test_placement.py::test_b", ("map-2",))
ROWS: dict[str, tuple[list[str], set[Named], list[str]]] = {
    "tests of any suite hold promises": (IDS, {UNIT, CLUSTER}, []),
    "nobody holds it": (IDS, {UNIT}, ["map-2: no test that `make test` runs names it"]),
    "a suite that make test does not run holds none alone": (
        IDS,
        {UNIT, Named("tests/cluster/redeploy/test_tags.py::test_c", ("map-2",))},
        ["map-2: no test that `make test` runs names it"],
    ),
    "a test names what is no promise": (
        ["map-1"],
        {UNIT, CLUSTER},
        ["map-2: is named by tests/cluster/verify/test_placement.py::test_b, but docs/contract.md has no such id"],
    ),
    "an id stands twice": (["map-1", "map-1"], {UNIT}, ["map-1: stands twice in docs/contract.md"]),
}


@pytest.mark.parametrize(("ids", "named", "wrong"), ROWS.values(), ids=ROWS)
def test_contract_and_tests_agree(ids: list[str], named: set[Named], wrong: list[str]) -> None:
    """Each fault is a sentence with the id."""
    assert faults(ids, named) == wrong
