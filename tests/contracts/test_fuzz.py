"""The seeds of `make fuzz` pass its targets, and a broken property is found; without the fuzzer."""

from __future__ import annotations

import pytest

from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.pods import placement_map
from gpu_scheduler.webhook import review
from tests.fuzz.targets import TARGETS

SEEDS = [(name, seed) for name, target in TARGETS.items() for seed in target.seeds]
# Breakage → the target that must find it, and what is replaced by what.
BREAKAGES: dict[str, tuple[str, object, str, object]] = {
    "an undeclared error": ("map", placement_map, "_devices", lambda ids: len(ids) / 0),
    "a map that loses a device": (
        "map",
        placement_map.PlacementMap,
        "_slot",
        lambda known, position: placement_map.Slot(known.indices[position], "a", ()),
    ),
    "a patch that is never complete": ("review", review, "missing", lambda _, needed: needed),
    "a review without an answer": ("review", review, "_needed_env", lambda pod: len(pod.ref.name) / 0),
    "a hold that is lost": ("watches", Ledger, "forget", lambda *_: frozenset()),
}


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_a_seed_breaks_no_property(name: str, seed: bytes) -> None:
    """Each seed is a first input of the fuzzer."""
    TARGETS[name].check(seed)
    assert len(seed) <= TARGETS[name].longest


def check_all(name: str) -> None:
    """Check all seeds of a target; maps differ each time, because parsed maps are cached."""
    for seed in TARGETS[name].seeds:
        TARGETS[name].check(seed + b"\n# once more" if name == "map" else seed)


@pytest.mark.parametrize(("name", "place", "what", "broken"), BREAKAGES.values(), ids=BREAKAGES)
def test_a_broken_property_is_found(
    name: str, place: object, what: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one seed finds it, without any change by the fuzzer."""
    monkeypatch.setattr(place, what, broken)

    with pytest.raises((AssertionError, ArithmeticError)):
        check_all(name)
