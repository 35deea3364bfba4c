"""The seeds of `make fuzz` pass its targets, without the fuzzer."""

from __future__ import annotations

import pytest

from tests.fuzz.targets import TARGETS

SEEDS = [(name, seed) for name, target in TARGETS.items() for seed in target.seeds]


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_a_seed_breaks_no_property(name: str, seed: bytes) -> None:
    """Each seed is a first input of the fuzzer."""
    TARGETS[name].check(seed)
    assert len(seed) <= TARGETS[name].longest
