"""What a check reports."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from gpu_scheduler.core.immutable import immutable

if TYPE_CHECKING:
    from collections.abc import Iterable


class Result(StrEnum):
    """How a check ends."""

    ERROR = "error"
    """Something does not work, or soon will not."""
    WARNING = "warning"
    """It works, but not as it should."""
    UNKNOWN = "unknown"
    """It could not be read."""
    OK = "ok"


@immutable
class CheckFinding:
    """What is wrong, and what corrects it."""

    what: str
    remedy: str
    """A command where there is one."""
    object: str = ""
    """The object as kubectl takes it (`lease/gpu-scheduler`); empty if it is none."""
    result: Result = Result.ERROR
    check: str = ""
    """The name of the check that found it."""


MOST_NAMED = 5
"""Most names that one finding lists."""


def listed(names: Iterable[str]) -> str:
    """Return the names as words of a sentence, at most MOST_NAMED of them."""
    found = sorted(names)
    more = len(found) - MOST_NAMED
    return ", ".join(found[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
