"""What every command that watches shares: its reflectors, and whether what they say can be trusted."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.kube.resource import ReflectorTimings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.meta import Identity
    from gpu_scheduler.kube.resource import EventHandler, Resource

T = TypeVar("T")

# Readiness allows a watch twice the silence after which it is opened anew.
PATIENCE = 2
# Seconds. What the first list waits for saves it from being read twice; where it takes longer, twice is sooner.
COURTESY = 1.0


class Reflectors:
    """One reflector a resource, by the resource's name."""

    def __init__(self, api: ApiClient, idle_limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is asked before `parts` run; a watch that is silent for `idle_limit` seconds is opened anew."""
        self._limit = PATIENCE * idle_limit
        self._pace = ReflectorTimings(idle_limit=idle_limit)
        self._api = api
        self._clock = clock
        self._large = asyncio.Lock()
        self._all: dict[str, Reflector[Any]] = {}

    def watch(self, resource: Resource[T], observer: EventHandler[T]) -> None:
        """Keep `observer` level with this resource."""
        self._all[resource.name] = Reflector(
            self._api, resource, observer, pace=self._pace, clock=self._clock, large=self._large
        )

    def parts(self, after: asyncio.Event | None = None) -> dict[str, Coroutine[Any, Any, None]]:
        """Every watch as something to run, by what it is; nothing is asked before `after`, unless that is late."""
        return {f"watch of {name}": _run(watch, after) for name, watch in self._all.items()}

    async def relist(self) -> None:
        """Return when a list of every resource that began after this call has been applied."""
        await asyncio.gather(*(watch.relist() for watch in self._all.values()))

    def silences(self) -> dict[str, Callable[[], float]]:
        """By resource, the seconds since the API server last said anything about it."""
        return {name: partial(_silence, watch) for name, watch in self._all.items()}

    def unlisted(self) -> str | None:
        """What has not been listed yet."""
        missing = [name for name, watch in self._all.items() if not watch.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    def silent(self) -> str | None:
        """What has been silent for too long."""
        silent = [
            f"{name} for {watch.silence:.0f} s" for name, watch in self._all.items() if watch.silence > self._limit
        ]
        return f"the API server says nothing of {', '.join(silent)}" if silent else None


def by_uid(identity: Identity) -> str:
    """The key of what is known by its uid."""
    return identity.uid or ""


def by_name(identity: Identity) -> str:
    """The key of what the whole cluster knows by its name."""
    return identity.name or ""


def by_path(identity: Identity) -> str:
    """The key of what its namespace knows by its name."""
    return f"{identity.namespace}/{identity.name}"


async def _run(watch: Reflector[Any], after: asyncio.Event | None) -> None:
    if after is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(COURTESY):
                await after.wait()
    await watch.run()


def _silence(watch: Reflector[Any]) -> float:
    return watch.silence
