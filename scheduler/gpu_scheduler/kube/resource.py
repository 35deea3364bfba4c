"""A watched resource, how its objects are decoded, and the event handler that receives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.http.client import status_message

if TYPE_CHECKING:
    from collections.abc import Callable

    import msgspec

    from gpu_scheduler.kube.http.client import ApiResponse
    from gpu_scheduler.kube.objects.meta import Identity

T = TypeVar("T")


NOT_SERVED: Final = frozenset({404})
"""The API server does not know the kind."""
DENIED_OR_NOT_SERVED: Final = NOT_SERVED | {403}


class ExpiredError(Exception):
    """The resource version is too old for the API server to resume from; only a full list helps."""


class RefusedError(Exception):
    """The API server answered with an error. `retry_after`: seconds of its Retry-After header, or None."""

    def __init__(self, answer: ApiResponse) -> None:
        """Keep status and Retry-After; the text has the status and the server's message for the operator."""
        super().__init__(f"HTTP {answer.status}: {status_message(answer)}")
        self.status = answer.status
        self.retry_after = answer.retry_after


@immutable
class Resource(Generic[T]):
    """A resource to watch: its path, its selector, and how the bytes of an object become (key, value).

    `key` makes the same key from an object's identity alone, for an object that cannot be decoded further.
    """

    name: str
    path: str
    field_selector: str | None
    read: Callable[[msgspec.Raw], tuple[str, T]]
    key: Callable[[Identity], str]
    empty_if: frozenset[int] = frozenset()
    """HTTP statuses of a list or watch that mean that there are no objects."""
    pause: float = 0.0
    """Seconds that its events may wait in the kernel, so that many are read at once."""
    list_interval: float = 0.0
    """Seconds between two lists of a resource that may not be watched; 0 if it is watched."""
    label_selector: str = ""

    def log_fields(self, **fields: object) -> dict[str, object]:
        """Return the fields of a log line about this resource."""
        return {"resource": self.name, **fields}


@immutable
class ReflectorTimings:
    """The times of a reflector, in seconds."""

    idle_limit: float = 90.0
    watch_shortest: float = 300.0
    watch_longest: float = 600.0
    backoff_first: float = 0.8
    backoff_longest: float = 30.0
    # A watch that ends sooner than this without an event counts as a failure, even if the server ended it in order.
    quick: float = 1.0


@immutable
class EventHandlerFuncs(Generic[T]):
    """An EventHandler made of two functions."""

    applied: Callable[[T], None]
    forgotten: Callable[[T], None]


Seen_contra = TypeVar("Seen_contra", contravariant=True)


class EventHandler(Protocol[Seen_contra]):
    """Receives every object as it is now, in the order of the events."""

    def applied(self, value: Seen_contra) -> None:
        """Handle an object that exists: new, changed, or the same (a list has every object)."""

    def forgotten(self, value: Seen_contra) -> None:
        """Handle a deletion; `value` is the last known value of the object."""
