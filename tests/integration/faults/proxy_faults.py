"""The faults that the proxy can inject, and the requests that they strike.

Every fault names verb and path, so that the test shows which requests it breaks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH: Final = "WATCH"
"""The verb that the proxy gives to a GET with `watch=true`."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in place of the API server. If `delivered`, the API server executes the request and its answer is lost."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    message: str = "injected by a test"
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection without an answer. If `delivered`, the API server executes the request first."""

    delivered: bool


@dataclass(frozen=True, slots=True)
class Hang:
    """Keep the connection open without an answer until the fault ends, as a network does that drops packets."""

    delivered: bool


@dataclass(frozen=True, slots=True)
class Delay:
    """Forward the request when the fault ends, or after this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the connection in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Hold the events of a watch back until the fault ends, then deliver all of them."""


@dataclass(frozen=True, slots=True)
class Twice:
    """Deliver each event of a watch twice. Send any other request twice, and return the second answer."""


@dataclass(frozen=True, slots=True)
class Lose:
    """Drop the events of a watch that contain these bytes."""

    having: bytes


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert this line as the first line of a watch."""

    line: bytes


@dataclass(frozen=True, slots=True)
class Swap:
    """Swap neighbouring events of a watch that are about different objects."""


@dataclass(frozen=True, slots=True)
class SmallPages:
    """Split a list into pages of this many objects."""

    size: int


@dataclass(frozen=True, slots=True)
class Call:
    """Call `do` before the request is forwarded or, with `after`, once it is executed. If `lost`, return no answer."""

    do: Callable[[], object]
    after: bool = False
    lost: bool = True


Act = Answer | Cut | Hang | Delay | Truncate | Freeze | Twice | Lose | Insert | Swap | SmallPages | Call


@dataclass(slots=True)
class Fault:
    """A fault for requests with `verb` and a match of `path`: after `skip` requests it strikes `times` (None: all)."""

    verb: str
    path: str
    act: Act
    times: int | None = 1
    skip: int = 0
    bearer: str = ""
    """If not empty, strike only requests with this bearer token."""
    struck: list[str] = field(default_factory=list)
    """The requests that the fault struck."""

    def takes(self, verb: str, path: str, bearer: str) -> bool:
        """Return whether the fault strikes this request, and count the request."""
        if verb != self.verb or re.search(self.path, path) is None or not bearer.endswith(self.bearer):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and len(self.struck) >= self.times:
            return False
        self.struck.append(f"{verb} {path}")
        return True
