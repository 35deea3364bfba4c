"""How facts are read: what may not be read becomes `UnreadFact`, and times are the API server's."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from gpu_scheduler.cli.doctor.facts import Known, UnreadFact
from gpu_scheduler.cli.doctor.objects import read_version
from gpu_scheduler.core.immutable import immutable
from gpu_scheduler.kube.http.client import NoResponseError
from gpu_scheduler.kube.lists import UnlistedError
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.resource import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gpu_scheduler.kube.http.client import ApiClient, ApiResponse

    T = TypeVar("T")

FORBIDDEN: Final = 403
_AGAIN: Final = "kubectl get --raw '/readyz?verbose'"
_SECOND: Final = timedelta(seconds=1)


async def fact(right: str, asked: Awaitable[T], question: str = "") -> Known[T] | UnreadFact:
    """Return what was asked for; UnreadFact if the API server does not give it.

    `right` is what the user needs for it. `question` asks for it with `kubectl auth can-i`, if `right` does not.
    """
    try:
        return Known(await asked)
    except UnlistedError as error:
        return missing(right, question) if error.forbidden else UnreadFact(str(error), _AGAIN)
    except NoResponseError as error:
        return UnreadFact(f"no answer from the API server: {error}", _AGAIN)
    except UNREADABLE as error:
        return UnreadFact(f"the API server's answer cannot be read: {error}", _AGAIN)


def missing(right: str, question: str = "") -> UnreadFact:
    """Return the fact that the user may not read it."""
    return UnreadFact(f"missing right to {right}", f"ask for the right (kubectl auth can-i {question or right})")


def refused(what: str, answer: ApiResponse, verb: str) -> UnlistedError:
    """Return the error for an answer that is none."""
    return UnlistedError(what, RefusedError(answer), verb)


@immutable
class ServerClock:
    """The API server's clock, read once."""

    then: datetime
    at: float
    """When it was read, in monotonic seconds."""

    def now(self) -> datetime:
        """Return the API server's time."""
        return self.then + timedelta(seconds=time.monotonic() - self.at)

    def age(self, moment: str | None) -> float:
        """Return the seconds since a moment (RFC 3339); infinite if there is none or it cannot be read."""
        try:
            then = datetime.fromisoformat(moment or "")
        except ValueError:
            return inf
        return (self.now() - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds()


async def read_server(
    api: ApiClient,
) -> tuple[ServerClock, Known[float] | UnreadFact, Known[tuple[int, int]] | UnreadFact]:
    """Return the API server's clock, how many seconds ours is ahead of it, and its version.

    NoResponseError if it does not answer: nothing else can be read then.
    """
    before = datetime.now(UTC)
    answer = await api.call("GET", "/version")
    after, at = datetime.now(UTC), time.monotonic()
    version = await fact("get --raw /version", _version(answer))
    try:
        date = parsedate_to_datetime(answer.date)
    except ValueError:
        return ServerClock(after, at), UnreadFact("the API server's answer has no date", _AGAIN), version
    # The header has whole seconds, and the API server wrote it at any moment between the two.
    ahead = max((before - date - _SECOND).total_seconds(), 0.0) - max((date - after).total_seconds(), 0.0)
    return ServerClock(after - timedelta(seconds=ahead), at), Known(ahead), version


async def _version(answer: ApiResponse) -> tuple[int, int]:
    if not answer.ok:
        raise refused("the version of the API server", answer, "read")
    return read_version(bytes(answer.body)).numbers()
