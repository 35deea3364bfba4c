"""What was sampled, as tables tell it."""

from __future__ import annotations

from bench.contenders.sampler import Sampler
from bench.profiles import shares

STACKS = {"main;loop;decide": 30, "main;loop;send": 60, "main;loop;send;decide": 9, "main": 1}


def test_by_itself_a_function_costs_what_is_seen_in_it() -> None:
    """Wherever it was called from."""
    own, _ = shares(STACKS)

    assert own == [("send", 60.0), ("decide", 39.0), ("main", 1.0)]


def test_with_what_it_calls_a_function_costs_every_stack_that_holds_it() -> None:
    """Once, and without those that everybody stands on."""
    _, whole = shares({**STACKS, "main;loop;decide;decide": 100})

    assert whole == [("decide", 69.5), ("send", 34.5)]


def test_a_sampler_sees_who_is_at_work() -> None:
    """By package and module, without the folders of a machine."""
    sampler = Sampler()
    try:
        sum(number % 7 for _ in range(40) for number in range(50_000))
    finally:
        seen = sampler.end()

    assert max(seen, key=lambda stack: seen[stack]).endswith("test_a_sampler_sees_who_is_at_work.<locals>.<genexpr>")
    assert not any("/" in stack for stack in seen)
