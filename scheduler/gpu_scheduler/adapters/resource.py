"""What a reflector is told of a resource: where it is and how it is read, at which pace, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from gpu_scheduler.adapters.api import status_message

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from gpu_scheduler.adapters import objects
    from gpu_scheduler.adapters.api import Answer

T = TypeVar("T")


class ExpiredError(Exception):
    """The version we would go on from has left the server's memory: only a full list helps."""


class RefusedError(Exception):
    """The API server answered with an error; `retry_after` in seconds where it asked for patience."""

    def __init__(self, answer: Answer) -> None:
        """Keep what the operator needs to see."""
        super().__init__(f"HTTP {answer.status}: {status_message(answer)}")
        self.status = answer.status
        self.retry_after = answer.retry_after


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """What to watch: where, which, and how its bytes become (key, value).

    `key` makes the same key from an object of which no more than its identity can be read. Of an `optional` resource
    there is nothing while the API server denies that we may see it.
    """

    name: str
    path: str
    field_selector: str | None
    read: Callable[[msgspec.Raw], tuple[str, T]]
    key: Callable[[objects.Identity], str]
    optional: bool = False
    pause: float = 0.0
    """Seconds for which its news may lie, so that many are read at once."""

    def log_fields(self, **fields: object) -> dict[str, object]:
        """What a log line about it carries beside its sentence."""
        return {"resource": self.name, **fields}


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a reflector, in seconds."""

    idle_limit: float = 90.0
    watch_shortest: float = 300.0
    watch_longest: float = 600.0
    backoff_first: float = 0.8
    backoff_longest: float = 30.0
    # A watch that ends sooner than this without a word is not progress, however politely it ended.
    quick: float = 1.0
