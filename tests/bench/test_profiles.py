"""Sampled stacks become tables."""

from __future__ import annotations

from bench.contenders.sampler import Sampler
from bench.profiles import shares

STACKS = {"main;loop;decide": 30, "main;loop;send": 60, "main;loop;send;decide": 9, "main": 1}


def test_the_own_cost_of_a_function_is_its_samples() -> None:
    """The sum over all of its callers."""
    own, _ = shares(STACKS)

    assert own == [("send", 60.0), ("decide", 39.0), ("main", 1.0)]


def test_the_whole_cost_of_a_function_is_every_stack_that_contains_it() -> None:
    """Counted once for a stack, without functions that are in all stacks."""
    _, whole = shares({**STACKS, "main;loop;decide;decide": 100})

    assert whole == [("decide", 69.5), ("send", 34.5)]


def test_a_sampler_names_the_running_function() -> None:
    """Functions are named by package and module, without the machine's folders."""
    sampler = Sampler()
    try:
        sum(number % 7 for _ in range(40) for number in range(50_000))
    finally:
        seen = sampler.end()

    assert max(seen, key=lambda stack: seen[stack]).endswith(
        "test_a_sampler_names_the_running_function.<locals>.<genexpr>"
    )
    assert not any("/" in stack for stack in seen)
