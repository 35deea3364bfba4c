"""tests/promises.py finds each mismatch between the contract, the markers of tests, and the kept mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.patches import Mutant
from tests.promises import Named, faults, mutant_faults

IDS = ["map-1", "map-2"]
UNIT = Named("scheduler/unit_tests/core/test_placement_map.py::test_a", ("map-1",))
CLUSTER = Named("tests/cluster/verify/test_placement.py::test_b", ("map-2",))
ROWS: dict[str, tuple[list[str], set[Named], list[str]]] = {
    "no test names a promise": (IDS, {UNIT}, ["map-2: no test that `make test` runs names it"]),
    "only a test that make test does not run names a promise": (
        IDS,
        {UNIT, Named("tests/cluster/redeploy/test_tags.py::test_c", ("map-2",))},
        ["map-2: no test that `make test` runs names it"],
    ),
    "a test names an unknown promise": (
        ["map-1"],
        {UNIT, CLUSTER},
        ["map-2: is named by tests/cluster/verify/test_placement.py::test_b, but docs/contract.md has no such id"],
    ),
    "an id occurs twice": (["map-1", "map-1"], {UNIT}, ["map-1: stands twice in docs/contract.md"]),
}


@pytest.mark.parametrize(("ids", "named", "wrong"), ROWS.values(), ids=ROWS)
def test_contract_and_tests_agree(ids: list[str], named: set[Named], wrong: list[str]) -> None:
    """Each fault is a sentence with the id."""
    assert faults(ids, named) == wrong


def broken(name: str, tests: tuple[str, ...], *promises: str) -> Mutant:
    """Return a mutant that breaks these promises."""
    return Mutant(Path(f"{name}.patch"), "It is broken.", tests, promises, ())


FIRST = broken("01-first", (f"{UNIT.test}[a row]",), "map-1")
MUTANTS: dict[str, tuple[tuple[Mutant, ...], list[str]]] = {
    "a test of each mutant names what it breaks": (
        (FIRST, broken("02-second", ("tests/contracts/test_docs.py::test_d", CLUSTER.test), "map-2")),
        [],
    ),
    "none of the mutant's tests names the promise": (
        (FIRST, broken("02-second", (UNIT.test,), "map-2")),
        ["02-second: none of its tests names map-2"],
    ),
    "a mutant breaks an unknown promise": (
        (FIRST, broken("02-second", (CLUSTER.test,), "map-2", "map-9")),
        ["02-second: breaks map-9, but docs/contract.md has no such id"],
    ),
}


@pytest.mark.parametrize(("mutants", "wrong"), MUTANTS.values(), ids=MUTANTS)
def test_contract_and_mutants_agree(mutants: tuple[Mutant, ...], wrong: list[str]) -> None:
    """Each fault is a sentence with the mutant and the id."""
    assert mutant_faults(IDS, {UNIT, CLUSTER}, mutants) == wrong
