"""What something costs in steps, not in time: a machine that is busy with something else changes nothing.

Seen is each line of the scheduler that runs, generated code and each turn of a comprehension included, and the memory
that is in use at once: so do copies, sorted lists and sets show that C makes. A scan in C that copies nothing shows
where it compares a `Name`, as looking for one in a list does. Not seen is a scan in C that does neither, such as any()
over a dictionary's values, and what libraries do.
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
    """What was spent."""

    lines: int
    memory: int
    """Bytes, where most of them were in use at once."""


class Name(str):
    """A name that notices when it is compared: use it for keys that something might scan."""

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
    """Follows every frame that is the scheduler's or a Name's."""

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
    """The cost of one thing."""
    lines = _Lines()
    tracemalloc.start()
    try:
        with _followed(lines.enter):
            act()
        return Cost(lines.run, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def repeated(act: Callable[[], object]) -> None:
    """Do it without coverage's looking on: what is done many thousand times takes thrice as long under it."""
    with _followed(None):
        act()


def same(large: Sequence[Cost], small: Sequence[Cost], lines: float = 1.1, memory: float = 1.3) -> bool:
    """Whether nothing of the one costs more than so many times the other's dearest.

    Of memory the middle counts: tables of C grow once in a while, and to whom that happens says nothing.
    """
    dearer = max(each.lines for each in large) > lines * max(each.lines for each in small)
    return not dearer and median(each.memory for each in large) <= memory * median(each.memory for each in small)
