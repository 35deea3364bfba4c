"""Measure cost in steps and memory, not in time: a busy machine does not change the result.

Counted are the lines of the scheduler that run, with generated code and each turn of a comprehension, and the peak of
memory. Copies, sorted lists and sets made in C show in the memory. A scan in C that copies nothing shows where it
compares a `Name`, as a search in a list does. A scan in C that does neither is not counted, such as any() over a
dictionary's values; nor is what libraries do.
"""

from __future__ import annotations

import sys
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

_OURS = "gpu_scheduler."


@dataclass(frozen=True)
class Cost:
    """The cost of one call."""

    lines: int
    memory: int
    """The peak, in bytes."""


class Name(str):
    """A name whose comparisons count as lines: use it for keys that the scheduler might scan."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class _Lines:
    """A trace function that counts the lines of the scheduler's frames and of Name's."""

    def __init__(self) -> None:
        self.run = 0

    def enter(self, frame: FrameType, _event: str, _argument: Any) -> Callable[[FrameType, str, Any], Any] | None:
        name = frame.f_globals.get("__name__", "")
        return self._step if name.startswith(_OURS) or name == __name__ else None

    def _step(self, _frame: FrameType, event: str, _argument: Any) -> Callable[[FrameType, str, Any], Any]:
        self.run += event == "line"
        return self._step


@contextmanager
def _followed(by: Callable[[FrameType, str, Any], Any] | None) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(by)
    try:
        yield
    finally:
        sys.settrace(before)


def counted(act: Callable[[], object]) -> Cost:
    lines = _Lines()
    tracemalloc.start()
    try:
        with _followed(lines.enter):
            act()
        return Cost(lines.run, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def repeated(act: Callable[[], object]) -> None:
    """Call `act` without coverage's trace function: many thousand calls take three times as long with it."""
    with _followed(None):
        act()


def same(large: Sequence[Cost], small: Sequence[Cost], lines: float = 1.1, memory: float = 1.3) -> bool:
    """Whether no cost of `large` exceeds the highest cost of `small` times `lines` and `memory`.

    Of memory the median counts: tables in C grow once in a while, in the course of any of the calls.
    """
    dearer = max(each.lines for each in large) > lines * max(each.lines for each in small)
    return not dearer and median(each.memory for each in large) <= memory * median(each.memory for each in small)
