"""List and watch of one resource: an observer sees every object as it is, and every one that has gone.

The contract: pages, bookmarks, resumption, a list with a diff after 410, back-off with jitter, silence that shows.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from gpu_scheduler.kube.http.client import ApiResponse, NoResponseError
from gpu_scheduler.kube.http.watch_stream import lines
from gpu_scheduler.kube.lists import GONE, pages
from gpu_scheduler.kube.objects.decoding import UNREADABLE
from gpu_scheduler.kube.objects.meta import Bookmark, Identified, ObjectList, Status, WatchEvent
from gpu_scheduler.kube.resource import ExpiredError, ReflectorTimings, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.resource import EventHandler, Resource

T = TypeVar("T")

DENIED = frozenset({403, 404})

log = logging.getLogger(__name__)

_events = msgspec.json.Decoder(WatchEvent)
_bookmarks = msgspec.json.Decoder(Bookmark)
_identified = msgspec.json.Decoder(Identified)
_statuses = msgspec.json.Decoder(Status)


class Reflector(Generic[T]):
    """Keeps `observer` level with the API server; `run` never returns by itself."""

    def __init__(  # noqa: PLR0913 - what it reads, and what tests turn
        self,
        api: ApiClient,
        resource: Resource[T],
        observer: EventHandler[T],
        *,
        pace: ReflectorTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
        large: asyncio.Lock | None = None,
    ) -> None:
        """Nothing is asked before `run`. Reflectors with the same `large` read objects of megabytes one at a time."""
        self._api = api
        self._resource = resource
        self._which = {"fieldSelector": resource.field_selector} if resource.field_selector else {}
        self._observer = observer
        self._pace = pace or ReflectorTimings()
        self._clock = clock
        self._large = large or asyncio.Lock()
        self._known: dict[str, T] = {}
        self._version: str | None = None
        self._heard = clock()
        # Whether the present watch has brought anything, or at least lasted; and whether there is nothing to see.
        self._moved = self._denied = False
        # Lists are numbered as they begin, so that whoever asks for one can tell it from one already under way.
        self._begun = self._finished = self._wanted = 0
        self._interrupt = asyncio.Event()
        self._listed = asyncio.Condition()
        self.synced = asyncio.Event()

    @property
    def silence(self) -> float:
        """Seconds since the API server last said anything about this resource."""
        return self._clock() - self._heard

    def relist(self) -> Coroutine[None, None, None]:
        """What this gives ends when a list that began after this call has been applied."""
        self._wanted = self._begun + 1
        self._interrupt.set()
        return self._reached(self._wanted)

    async def _reached(self, number: int) -> None:
        async with self._listed:
            await self._listed.wait_for(lambda: self._finished >= number)

    async def run(self) -> None:
        """List, watch, and begin again for ever; ends only by cancellation."""
        failures = expirations = 0
        while True:
            expirations = 0 if self._moved else expirations
            self._moved = False
            asked: float | None = None
            try:
                if self._version is None or self._wanted > self._finished:
                    await self._list()
                await self._watch_until_interrupted()
            except ExpiredError:
                log.info("The version has expired: listing anew", extra=self._resource.log_fields())
                self._version = None
                # The server answers, so earlier silence no longer counts; only 410 after 410 is a reason to slow down.
                failures = expirations = 1 if self._moved else expirations + 1
            except (NoResponseError, RefusedError, *UNREADABLE) as error:
                asked = getattr(error, "retry_after", None)
                failures = 1 if self._moved else failures + 1
                if self._resource.optional and getattr(error, "status", 0) in DENIED:
                    await self._do_without(error)
                else:
                    log.warning("Watching failed", extra=self._resource.log_fields(error=str(error), failures=failures))
            else:
                failures = 0 if self._moved or self._interrupt.is_set() else failures + 1
            if failures:
                await self._pause(self._delay(failures, asked), asked)

    def _delay(self, failures: int, asked: float | None) -> float:
        """Doubling with jitter up to what counts as silence; never sooner than a Retry-After asked, however long."""
        longest = min(self._pace.backoff_longest, self._pace.idle_limit)
        ceiling: float = min(longest, self._pace.backoff_first * 2 ** min(failures - 1, 16))
        return max(asked or 0.0, ceiling * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing

    async def _pause(self, seconds: float, asked: float | None) -> None:
        """Leave the server alone; but a new leader waits for its list only as long as the server itself asks for."""
        waking = self._interrupt if self._denied or asked is None else asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(waking.wait(), seconds)

    async def _do_without(self, error: Exception) -> None:
        """There is nothing to see; told once, and asked again and again."""
        self._heard = self._clock()
        if not self._denied:
            log.info("Doing without what cannot be seen", extra=self._resource.log_fields(error=str(error)))
        await self._settle({}, None, self._begun)

    async def _list(self) -> None:
        """Read all pages, then apply them; the very first, before which nobody decides, as they come."""
        self._interrupt.clear()
        number = self._begun = self._begun + 1
        found: dict[str, T] = {}
        first = not self._known and not self.synced.is_set()
        version = await self._read_pages(found, _number(self._version), self._apply if first else None)
        await self._settle(found, version, number)
        log.info("Listed", extra=self._resource.log_fields(objects=len(found), version=version))

    async def _settle(self, found: dict[str, T], version: str | None, number: int) -> None:
        """Apply what there is as one difference: gone first, so that what they held is free."""
        known, self._known, self._version, self._denied = self._known, found, version, version is None
        for key, value in known.items():
            if key not in found:
                self._hand_over(self._observer.forgotten, value)
        for key, value in found.items():
            if known.get(key) is not value:
                self._hand_over(self._observer.applied, value)
        self._finished = number
        self.synced.set()
        async with self._listed:
            self._listed.notify_all()

    async def _read_pages(self, found: dict[str, T], level: int, take: Callable[[dict[str, T]], None] | None) -> str:
        """Of what the watch has brought already, up to version `level`, no more than that it is still there.

        `take` has each page as it comes.
        """
        version = ""
        async with aclosing(pages(self._api, self._resource.path, self._which, self._large)) as read:
            async for page in read:
                self._heard = self._clock()
                fresh = self._read_page(page, level)
                found |= fresh
                if take is not None:
                    take(fresh)
                version = page.metadata.resource_version or ""
                del page  # its bytes must not be here beside those of the next
        return version

    def _read_page(self, page: ObjectList, level: int) -> dict[str, T]:
        fresh: dict[str, T] = {}
        for raw in page.items or ():
            if not self._is_known(fresh, raw, level):
                self._read_into(fresh, raw)
        return fresh

    def _apply(self, fresh: dict[str, T]) -> None:
        self._known |= fresh
        for value in fresh.values():
            self._hand_over(self._observer.applied, value)

    def _is_known(self, found: dict[str, T], raw: msgspec.Raw, level: int) -> bool:
        """Reading an identity costs a tenth of reading an object, and a new leader reads everything again."""
        if not level:
            return False
        try:
            identity = _identified.decode(raw).metadata
        except UNREADABLE:
            return False
        key = self._resource.key(identity)
        if key not in self._known or not 0 < _number(identity.resource_version) <= level:
            return False
        found[key] = self._known[key]
        return True

    async def _watch_until_interrupted(self) -> None:
        """Watch; a wish for a list ends the watch at once."""
        watching = asyncio.ensure_future(self._watch())
        wanting = asyncio.ensure_future(self._interrupt.wait())
        try:
            await asyncio.wait((watching, wanting), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            for task in (watching, wanting):
                task.cancel()
            await asyncio.gather(watching, wanting, return_exceptions=True)

    async def _watch(self) -> None:
        seconds = random.uniform(self._pace.watch_shortest, self._pace.watch_longest)  # noqa: S311 - spreads load
        query = {
            **self._which,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(int(seconds)),
        }
        # The server ends the watch itself; the client's own limit is for a server that does not.
        stream = self._api.stream(
            self._resource.path,
            query=query,
            limit=seconds + 30,
            idle_limit=self._pace.idle_limit,
            pause=self._resource.pause,
        )
        async with stream as (answer, chunks):
            if answer.status == GONE:
                raise ExpiredError
            if not answer.ok:
                raise RefusedError(answer)
            opened = self._heard = self._clock()
            try:
                async for line in lines(chunks, self._large):
                    self._heard = self._clock()
                    self._take(_events.decode(line))
                    self._moved = True
                    # The next event may come in an hour, and this one may have megabytes.
                    del line
            finally:
                self._moved = self._moved or self._clock() - opened > self._pace.quick

    def _take(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            status = _statuses.decode(event.object)
            if status.code == GONE:
                raise ExpiredError
            raise RefusedError(ApiResponse(status.code or 0, bytes(event.object)))
        if event.type != "BOOKMARK":
            self._change(event)
        self._version = _bookmarks.decode(event.object).metadata.resource_version or self._version

    def _change(self, event: WatchEvent) -> None:
        seen: dict[str, T] = {}
        self._read_into(seen, event.object)
        for key, value in seen.items():
            if event.type == "DELETED":
                self._known.pop(key, None)
                self._hand_over(self._observer.forgotten, value)
            else:
                self._known[key] = value
                self._hand_over(self._observer.applied, value)

    def _hand_over(self, take: Callable[[T], None], value: T) -> None:
        """An error of our own over one object must not cost everybody the watch."""
        try:
            take(value)
        except Exception:
            log.exception("An object could not be taken in", extra=self._resource.log_fields(object=str(value)[:200]))

    def _read_into(self, found: dict[str, T], raw: msgspec.Raw) -> None:
        """One object; one that cannot be read is told and stays as it was known, it must not stop all others."""
        try:
            key, value = self._resource.read(raw)
        except UNREADABLE as error:
            start = bytes(raw)[:200].decode(errors="replace")
            log.error("An object cannot be read", extra=self._resource.log_fields(error=str(error), start=start))  # noqa: TRY400
            self._keep(found, raw)
        else:
            found[key] = value

    def _keep(self, found: dict[str, T], raw: msgspec.Raw) -> None:
        """What was known of it before is nearer to the truth than that it is gone: it may hold a GPU."""
        try:
            key = self._resource.key(_identified.decode(raw).metadata)
        except UNREADABLE:
            return
        if key in self._known:
            found[key] = self._known[key]


def _number(version: str | None) -> int:
    """Versions are numbers that grow, as Kubernetes 1.35 has it; 0, which is none, for a server where they are not."""
    return int(version) if version and version.isascii() and version.isdigit() else 0
