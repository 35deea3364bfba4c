"""Minimizes a failing run: delta debugging finds the fewest steps that still break the invariant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from simulator.plan import Step


def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool], tries: int) -> tuple[Step, ...]:
    """Leave out steps that `fails` does not need, by halves, quarters and so on, within `tries`."""
    kept = tuple(steps)
    parts = 2
    while len(kept) > 1 and tries > 0:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            tries -= 1
            if rest and fails(rest):
                kept, parts = rest, max(2, parts - 1)
                break
            if tries <= 0:
                break
        else:
            if size == 1:
                break
            parts = min(len(kept), 2 * parts)
    return kept
