"""What is watched, how it is read, and to whom it is delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from gpu_scheduler.kube.http.client import status_message

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from gpu_scheduler.kube.http.client import ApiResponse
    from gpu_scheduler.kube.objects.meta import Identity

T = TypeVar("T")


class ExpiredError(Exception):
    """The version we would go on from has left the server's memory: only a full list helps."""


class RefusedError(Exception):
    """The API server answered with an error; `retry_after` in seconds where it asked for patience."""

    def __init__(self, answer: ApiResponse) -> None:
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
    key: Callable[[Identity], str]
    optional: bool = False
    pause: float = 0.0
    """Seconds for which its news may lie, so that many are read at once."""

    def log_fields(self, **fields: object) -> dict[str, object]:
        """What a log line about it carries beside its sentence."""
        return {"resource": self.name, **fields}


@dataclass(frozen=True, slots=True)
class ReflectorTimings:
    """The times of a reflector, in seconds."""

    idle_limit: float = 90.0
    watch_shortest: float = 300.0
    watch_longest: float = 600.0
    backoff_first: float = 0.8
    backoff_longest: float = 30.0
    # A watch that ends sooner than this without a word is not progress, however politely it ended.
    quick: float = 1.0


@dataclass(frozen=True, slots=True)
class EventHandlerFuncs(Generic[T]):
    """Where a watch delivers: fits ports.Observer."""

    applied: Callable[[T], None]
    forgotten: Callable[[T], None]


Seen_contra = TypeVar("Seen_contra", contravariant=True)


class EventHandler(Protocol[Seen_contra]):
    """Is told of every object as it is now, in the order things happened."""

    def applied(self, value: Seen_contra) -> None:
        """Take note that it is there, new or changed (or the same: a list tells of everything)."""

    def forgotten(self, value: Seen_contra) -> None:
        """Take note that it is gone; `value` is the last that was seen of it."""
