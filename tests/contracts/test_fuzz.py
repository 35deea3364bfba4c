"""What `make fuzz` looks for holds of its seeds, and a broken promise would be seen; all without the fuzzer."""

from __future__ import annotations

import pytest

from gpu_scheduler.core.ledger.ledger import Ledger
from gpu_scheduler.core.pods import placement_map
from gpu_scheduler.webhook import review
from tests.fuzz.targets import TARGETS

SEEDS = [(name, seed) for name, target in TARGETS.items() for seed in target.seeds]
# Per breakage: the target that must see it, and what is replaced by what.
BREAKAGES: dict[str, tuple[str, object, str, object]] = {
    "an error that nobody declared": ("map", placement_map, "_devices", lambda ids: len(ids) / 0),
    "a map that loses a device": (
        "map",
        placement_map.PlacementMap,
        "_slot",
        lambda known, position: placement_map.Slot(known.indices[position], "a", ()),
    ),
    "a patch that is never complete": ("review", review, "missing", lambda _, needed: needed),
    "a review without an answer": ("review", review, "_needed", lambda pod: len(pod.ref.name) / 0),
    "a hold that is lost": ("watches", Ledger, "forget", lambda *_: frozenset()),
}


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_a_seed_breaks_no_promise(name: str, seed: bytes) -> None:
    """Each is where the fuzzer begins."""
    TARGETS[name].check(seed)
    assert len(seed) <= TARGETS[name].longest


def check_all(name: str) -> None:
    """Check all seeds of a target; a map is another text each time, or it would be remembered."""
    for seed in TARGETS[name].seeds:
        TARGETS[name].check(seed + b"\n# once more" if name == "map" else seed)


@pytest.mark.parametrize(("name", "place", "what", "broken"), BREAKAGES.values(), ids=BREAKAGES)
def test_a_broken_promise_is_seen(
    name: str, place: object, what: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seed at least shows it, before the fuzzer has changed anything."""
    monkeypatch.setattr(place, what, broken)

    with pytest.raises((AssertionError, ArithmeticError)):
        check_all(name)
