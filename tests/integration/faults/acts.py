"""What the fault proxy can do to a request, and to which.

Every fault names verb and path: it is plain from a test's text what it breaks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH: Final = "WATCH"
"""The verb of a GET that watches."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer so instead of the API server; where `delivered`, it is asked all the same, and its answer is lost."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    message: str = "injected by a test"
    delivered: bool = False


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection without an answer; where `delivered`, the API server has done what it was asked for."""

    delivered: bool


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing and keep the connection, as a network that drops packets does, until the fault ends."""

    delivered: bool


@dataclass(frozen=True, slots=True)
class Delay:
    """Pass the request on only when the fault ends, or after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the connection in the middle of the body."""


@dataclass(frozen=True, slots=True)
class Freeze:
    """Hold a watch's events back until the fault ends; then all of them come."""


@dataclass(frozen=True, slots=True)
class Twice:
    """Give each event of a watch twice; send any other request twice, and give the second answer."""


@dataclass(frozen=True, slots=True)
class Lose:
    """Swallow a watch's events that have these bytes in them."""

    having: bytes


@dataclass(frozen=True, slots=True)
class Insert:
    """Say this line in a watch, before anything else."""

    line: bytes


@dataclass(frozen=True, slots=True)
class Swap:
    """Let neighbours in a watch change places, where they are about different objects."""


@dataclass(frozen=True, slots=True)
class SmallPages:
    """Have a list come in pages of so many objects."""

    size: int


@dataclass(frozen=True, slots=True)
class Call:
    """Do this before the request is passed on or, `after`, when it was answered; where `lost`, nobody is answered."""

    do: Callable[[], object]
    after: bool = False
    lost: bool = True


Act = Answer | Cut | Hang | Delay | Truncate | Freeze | Twice | Lose | Insert | Swap | SmallPages | Call


@dataclass(slots=True)
class Fault:
    """What happens to requests of this verb in whose path the expression is found: the first `times` after `skip`."""

    verb: str
    path: str
    act: Act
    times: int | None = 1
    skip: int = 0
    bearer: str = ""
    """Only of who brings this token."""
    struck: list[str] = field(default_factory=list)
    """The requests that it hit."""

    def takes(self, verb: str, path: str, bearer: str) -> bool:
        """Whether this request is one of its own; counts."""
        if verb != self.verb or re.search(self.path, path) is None or not bearer.endswith(self.bearer):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and len(self.struck) >= self.times:
            return False
        self.struck.append(f"{verb} {path}")
        return True
