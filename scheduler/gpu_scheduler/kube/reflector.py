"""Lists and watches one resource: an event handler receives every object as it is now, and every deleted object.

It covers pages, bookmarks, resumption, a list with a diff after 410, back-off with jitter, and the age of the last
response.
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
from gpu_scheduler.kube.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from gpu_scheduler.kube.http.client import ApiClient
    from gpu_scheduler.kube.resource import EventHandler, Resource
    from gpu_scheduler.kube.turns import ApplyingLists

T = TypeVar("T")


log = logging.getLogger(__name__)

_events = msgspec.json.Decoder(WatchEvent)
_bookmarks = msgspec.json.Decoder(Bookmark)
_identified = msgspec.json.Decoder(Identified)
_statuses = msgspec.json.Decoder(Status)


class Reflector(Generic[T]):
    """Keeps `handler` up to date with the API server; `run` never returns by itself."""

    def __init__(  # noqa: PLR0913 - what it reads, and what tests turn
        self,
        api: ApiClient,
        resource: Resource[T],
        handler: EventHandler[T],
        *,
        timings: ReflectorTimings | None = None,
        clock: Callable[[], float] = time.monotonic,
        large: asyncio.Lock | None = None,
        lists: ApplyingLists | None = None,
    ) -> None:
        """No request is sent before `run`. Reflectors with the same `large` read objects of megabytes one at a time.

        With `lists`, the changes that a list shows are applied in turns; without it, all in one step.
        """
        self._api = api
        self._resource = resource
        selectors = {"fieldSelector": resource.field_selector, "labelSelector": resource.label_selector}
        self._which = {key: text for key, text in selectors.items() if text}
        self._handler = handler
        self._timings = timings or ReflectorTimings()
        self._clock = clock
        self._large = large or asyncio.Lock()
        self._lists = lists
        self._known: dict[str, T] = {}
        self._undelivered: dict[str, tuple[Callable[[T], None], T]] = {}
        """By key: the calls of the handler that failed, each the last one for its object."""
        self._redeliveries = 0
        """How often these were tried again since there were none."""
        self._redelivery: asyncio.TimerHandle | None = None
        self._version: str | None = None
        self._last_response = clock()
        # Whether the current watch delivered an event or at least lasted; and whether the API server denies access.
        self._progressed = self._denied = False
        # Lists are numbered as they begin, so that a caller can distinguish its own from one already in progress.
        self._begun_lists = self._finished_lists = self._wanted_list = 0
        self._interrupt = asyncio.Event()
        self._listed = asyncio.Condition()
        self.synced = asyncio.Event()

    @property
    def silence(self) -> float:
        """Seconds since the API server last sent anything about this resource."""
        return self._clock() - self._last_response

    @property
    def version(self) -> str | None:
        """The resourceVersion up to which the handler has received every change; None before the first list.

        It is None too from the time that the API server calls it expired until the next list.
        """
        return self._version

    def relist(self) -> Coroutine[None, None, None]:
        """Request a list. The coroutine returned ends when a list that began after this call has been applied."""
        self._wanted_list = self._begun_lists + 1
        self._interrupt.set()
        return self._reached(self._wanted_list)

    async def _reached(self, number: int) -> None:
        async with self._listed:
            await self._listed.wait_for(lambda: self._finished_lists >= number)

    async def run(self) -> None:
        """List, watch, and begin again for ever; ends only by cancellation."""
        try:
            await self._list_and_watch()
        finally:
            if self._redelivery is not None:
                self._redelivery.cancel()

    async def _list_and_watch(self) -> None:
        failures = expirations = 0
        while True:
            expirations = 0 if self._progressed else expirations
            self._progressed = False
            asked: float | None = None
            try:
                if self._version is None or self._wanted_list > self._finished_lists:
                    await self._list()
                if self._resource.list_interval:
                    await self._wait_for_next_list()
                else:
                    await self._watch_until_interrupted()
            except ExpiredError:
                log.info("The resource version has expired: listing again", extra=self._resource.log_fields())
                self._version = None
                # The server answers, so earlier failures no longer count. Only repeated 410s are a reason to back off.
                failures = expirations = 1 if self._progressed else expirations + 1
            except (NoResponseError, RefusedError, *UNREADABLE) as error:
                asked = getattr(error, "retry_after", None)
                failures = 1 if self._progressed else failures + 1
                if getattr(error, "status", 0) in self._resource.empty_if:
                    await self._treat_as_empty(error)
                else:
                    log.warning("Watching failed", extra=self._resource.log_fields(error=str(error), failures=failures))
            else:
                failures = 0 if self._progressed or self._interrupt.is_set() else failures + 1
            if failures:
                await self._pause(self._delay(failures, asked), asked)

    def _delay(self, failures: int, asked: float | None) -> float:
        """Return the seconds to back off: doubled at each failure, with jitter, at least those of a Retry-After.

        Without a Retry-After they are at most `backoff_longest`, and never more than `idle_limit`.
        """
        longest = min(self._timings.backoff_longest, self._timings.idle_limit)
        ceiling: float = min(longest, self._timings.backoff_first * 2 ** min(failures - 1, 16))
        return max(asked or 0.0, ceiling * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing

    async def _pause(self, seconds: float, asked: float | None) -> None:
        """Wait before the next request. `relist` of a new leader ends the wait, unless a Retry-After asked for it.

        While access is denied, `relist` always ends the wait.
        """
        waking = self._interrupt if self._denied or asked is None else asyncio.Event()
        with suppress(TimeoutError):
            await asyncio.wait_for(waking.wait(), seconds)

    async def _wait_for_next_list(self) -> None:
        """Wait instead of watching; a call of `relist` ends the wait at once."""
        await self._pause(min(self._resource.list_interval, self._timings.idle_limit), None)
        self._wanted_list = self._begun_lists + 1
        self._progressed = True

    async def _treat_as_empty(self, error: Exception) -> None:
        """Treat a resource without access as empty. Log it once; requests for it continue."""
        self._last_response = self._clock()
        if not self._denied:
            log.info(
                "The resource cannot be listed: it counts as empty", extra=self._resource.log_fields(error=str(error))
            )
        await self._settle({}, None, self._begun_lists)

    async def _list(self) -> None:
        """Read all pages, then apply them. Apply the first list page by page: no decision is made before its end."""
        self._interrupt.clear()
        number = self._begun_lists = self._begun_lists + 1
        found: dict[str, T] = {}
        first = not self._known and not self.synced.is_set()
        version = await self._read_pages(found, _number(self._version), self._apply if first else None)
        await self._settle(found, version, number)
        if first or not self._resource.list_interval:
            log.info("Listed", extra=self._resource.log_fields(objects=len(found), version=version))

    async def _settle(self, found: dict[str, T], version: str | None, number: int) -> None:
        """Apply `found` as one difference.

        Others run meanwhile. Those that must not see a part of the difference wait for its end, see ApplyingLists.
        """
        known, self._known, self._denied = self._known, found, version is None
        changes = self._difference(known, found)
        if self._lists is None:
            for change in changes:
                self._deliver(*change)
        else:
            with self._lists:
                async for change in in_turns(changes):
                    self._deliver(*change)
        self._version = version
        self._finished_lists = number
        self.synced.set()
        async with self._listed:
            self._listed.notify_all()

    def _difference(self, known: dict[str, T], found: dict[str, T]) -> Iterator[tuple[str, Callable[[T], None], T]]:
        """Yield the calls of the handler: first those for deleted objects, so that their holds are released."""
        for key, value in known.items():
            if key not in found:
                yield key, self._handler.forgotten, value
        for key, value in found.items():
            if known.get(key) is not value or key in self._undelivered:
                yield key, self._handler.applied, value

    async def _read_pages(
        self, found: dict[str, T], level: int, take: Callable[[dict[str, T]], Coroutine[None, None, None]] | None
    ) -> str:
        """Read all pages into `found`, and return the version of the list.

        Objects whose version is at most `level` are known from the watch: keep the known value. `take` receives each
        page's other objects as the page comes.
        """
        version = ""
        async with aclosing(pages(self._api, self._resource.path, self._which, self._large)) as read:
            async for page in read:
                self._last_response = self._clock()
                fresh = await self._read_page(page, level)
                found |= fresh
                if take is not None:
                    await take(fresh)
                version = page.metadata.resource_version or ""
                del page  # its bytes must be released before the next page is received
        return version

    async def _read_page(self, page: ObjectList, level: int) -> dict[str, T]:
        fresh: dict[str, T] = {}
        async for raw in in_turns(page.items or ()):
            if not self._is_known(fresh, raw, level):
                self._read_into(fresh, raw)
        return fresh

    async def _apply(self, fresh: dict[str, T]) -> None:
        self._known |= fresh
        async for key, value in in_turns(fresh.items()):
            self._deliver(key, self._handler.applied, value)

    def _is_known(self, found: dict[str, T], raw: msgspec.Raw, level: int) -> bool:
        """If the watch delivered this version already, put the known value into `found` and return True.

        Decoding an identity costs a tenth of decoding an object, and a new leader lists everything again.
        """
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
        """Watch; a call of `relist` ends the watch at once."""
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
        seconds = random.uniform(self._timings.watch_shortest, self._timings.watch_longest)  # noqa: S311 - spreads load
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
            idle_limit=self._timings.idle_limit,
            pause=self._resource.pause,
        )
        async with stream as (answer, chunks):
            if answer.status == GONE:
                raise ExpiredError
            if not answer.ok:
                raise RefusedError(answer)
            opened = self._last_response = self._clock()
            try:
                async for line in lines(chunks, self._large):
                    self._last_response = self._clock()
                    self._take(_events.decode(line))
                    self._progressed = True
                    # Release it: the next event may come in an hour, and this one may have megabytes.
                    del line
            finally:
                self._progressed = self._progressed or self._clock() - opened > self._timings.quick

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
                self._deliver(key, self._handler.forgotten, value)
            else:
                self._known[key] = value
                self._deliver(key, self._handler.applied, value)

    def _deliver(self, key: str, take: Callable[[T], None], value: T) -> None:
        """Call the handler. Our own error over one object must not end the watch for all objects.

        The object is delivered again until that succeeds, after a back-off and by each list.
        """
        try:
            take(value)
        except Exception:
            if key not in self._undelivered:
                log.exception(
                    "The event handler failed on an object", extra=self._resource.log_fields(object=str(value)[:200])
                )
            self._undelivered[key] = take, value
            if self._redelivery is None:
                self._redeliveries += 1
                seconds = self._delay(self._redeliveries, None)
                self._redelivery = asyncio.get_running_loop().call_later(seconds, self._deliver_again)
        else:
            if self._undelivered.pop(key, None) is not None and not self._undelivered:
                self._redeliveries = 0

    def _deliver_again(self) -> None:
        self._redelivery = None
        for key, (take, value) in tuple(self._undelivered.items()):
            self._deliver(key, take, value)

    def _read_into(self, found: dict[str, T], raw: msgspec.Raw) -> None:
        """Decode one object. If it cannot be decoded, log it and keep its known value, so that the others go on."""
        try:
            key, value = self._resource.read(raw)
        except UNREADABLE as error:
            start = bytes(raw)[:200].decode(errors="replace")
            log.error("An object cannot be read", extra=self._resource.log_fields(error=str(error), start=start))  # noqa: TRY400
            self._keep(found, raw)
        else:
            found[key] = value

    def _keep(self, found: dict[str, T], raw: msgspec.Raw) -> None:
        """Keep the known value. It is safer than to treat the object as deleted: the object may hold a GPU."""
        try:
            key = self._resource.key(_identified.decode(raw).metadata)
        except UNREADABLE:
            return
        if key in self._known:
            found[key] = self._known[key]


def _number(version: str | None) -> int:
    """Return the version as a number; 0, which is no version, for a server whose versions are not numbers.

    Kubernetes 1.35 defines versions as numbers that grow.
    """
    return int(version) if version and version.isascii() and version.isdigit() else 0
