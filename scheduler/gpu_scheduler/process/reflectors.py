"""The reflectors of a command, and whether their caches are complete and current."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gpu_scheduler.kube.reflector import Reflector

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.objects.meta import Identity
    from gpu_scheduler.kube.resource import EventHandler, ReflectorTimings, Resource
    from gpu_scheduler.kube.turns import ApplyingLists

T = TypeVar("T")

# A watch without data is reopened after `idle_limit`. Readiness fails after this multiple of it.
STALE_FACTOR = 2
# Seconds. A first list that waits for the election is read once. After this time it is faster to list twice.
FIRST_LIST_WAIT = 1.0


class Reflectors:
    """One reflector per resource, by the resource's name."""

    def __init__(
        self,
        api: ApiClient,
        timings: ReflectorTimings,
        clock: Callable[[], float] = time.monotonic,
        lists: ApplyingLists | None = None,
    ) -> None:
        """No request is sent before `parts` run. For `lists` see Reflector."""
        self._limit = STALE_FACTOR * timings.idle_limit
        self._timings = timings
        self._api = api
        self._clock = clock
        self._large = asyncio.Lock()
        self._lists = lists
        self._all: dict[str, Reflector[Any]] = {}

    def watch(self, resource: Resource[T], handler: EventHandler[T]) -> None:
        """Keep `handler` up to date with this resource."""
        self._all[resource.name] = Reflector(
            self._api,
            resource,
            handler,
            timings=self._timings,
            clock=self._clock,
            large=self._large,
            lists=self._lists,
        )

    def parts(self, after: asyncio.Event | None = None) -> dict[str, Coroutine[Any, Any, None]]:
        """Return one coroutine per watch, by a description. Each first waits for `after`, at most COURTESY seconds."""
        return {f"watch of {name}": _run(watch, after) for name, watch in self._all.items()}

    async def relist(self) -> None:
        """Return when a list of every resource that began after this call has been applied."""
        await asyncio.gather(*(watch.relist() for watch in self._all.values()))

    def silences(self) -> dict[str, Callable[[], float]]:
        """Return one function per resource: it returns the seconds since the API server last sent data about it."""
        return {name: partial(_silence, watch) for name, watch in self._all.items()}

    def versions(self) -> dict[str, str | None]:
        """Return by resource up to which resourceVersion its handler has received every change, see Reflector."""
        return {name: watch.version for name, watch in self._all.items()}

    def unlisted(self) -> str | None:
        """Return a sentence with the resources that have not been listed yet, or None."""
        missing = [name for name, watch in self._all.items() if not watch.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    def silent(self) -> str | None:
        """Return a sentence with the resources whose watch has been without data for too long, or None."""
        silent = [
            f"{name} for {watch.silence:.0f} s" for name, watch in self._all.items() if watch.silence > self._limit
        ]
        return f"no data from the API server about {', '.join(silent)}" if silent else None


def by_uid(identity: Identity) -> str:
    """Return the key of an object that is identified by its uid."""
    return identity.uid or ""


def by_name(identity: Identity) -> str:
    """Return the key of a cluster-scoped object: its name."""
    return identity.name or ""


def by_path(identity: Identity) -> str:
    """Return the key of a namespaced object: NAMESPACE/NAME."""
    return f"{identity.namespace}/{identity.name}"


async def _run(watch: Reflector[Any], after: asyncio.Event | None) -> None:
    if after is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST_WAIT):
                await after.wait()
    await watch.run()


def _silence(watch: Reflector[Any]) -> float:
    return watch.silence
