import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from gpu_scheduler.kube import reflector as reflector_module
from gpu_scheduler.kube import turns
from gpu_scheduler.kube.http.watch_stream import lines
from gpu_scheduler.kube.lists import pages
from gpu_scheduler.kube.objects.meta import Identity
from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.kube.resource import DENIED_OR_NOT_SERVED, ReflectorTimings, Resource
from gpu_scheduler.kube.turns import ApplyingLists
from tests.objects import Object
from unit_tests.kube.server import FakeServer, Reply, Watch, connected, until
from unit_tests.virtual import settle

PATH = "/api/v1/things"
QUICK = ReflectorTimings(idle_limit=5, backoff_first=0.01, backoff_longest=0.05, quick=0.2)


class Thing(msgspec.Struct):
    metadata: dict[str, str]


def read(raw: msgspec.Raw) -> tuple[str, str]:
    meta = msgspec.json.decode(raw, type=Thing).metadata
    return meta["name"], f"{meta['name']}@{meta['resourceVersion']}"


def named(identity: Identity) -> str:
    return identity.name or ""


@dataclass
class RecordingHandler:
    calls: list[str] = field(default_factory=list)
    fails_on: str = ""
    failed_at: list[float] = field(default_factory=list)
    after_call: Callable[[], object] | None = None
    """Run by another task, as soon as one runs."""

    def applied(self, value: str) -> None:
        self._call(f"+{value}")

    def forgotten(self, value: str) -> None:
        self._call(f"-{value}")

    def _call(self, call: str) -> None:
        if call == self.fails_on:
            self.failed_at.append(asyncio.get_running_loop().time())
            raise RuntimeError("a bug")
        self.calls.append(call)
        if self.after_call is not None:
            asyncio.get_running_loop().call_soon(self.after_call)


def thing(name: str, version: int) -> Object:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> Object:
    return {"type": kind, "object": thing(name, version)}


def page(version: int, *items: Object, more: str | None = None) -> Reply:
    return Reply(200, {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)})


EXPIRED: Object = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}


@asynccontextmanager
async def reflecting(
    pace: ReflectorTimings = QUICK,
    *,
    empty_if: frozenset[int] = frozenset(),
    list_interval: float = 0.0,
    lists: ApplyingLists | None = None,
) -> AsyncIterator[tuple[FakeServer, Reflector[str], RecordingHandler]]:
    """Yield the server, a running reflector that watches it, and the reflector's event handler."""
    async with connected() as (server, api):
        handler = RecordingHandler()
        resource = Resource(
            "things", PATH, "spec.kind=ours", read, named, empty_if=empty_if, list_interval=list_interval
        )
        clock = asyncio.get_running_loop().time
        reflector = Reflector(api, resource, handler, timings=pace, clock=clock, lists=lists)
        task = asyncio.create_task(_start(reflector, server))
        try:
            yield server, reflector, handler
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _start(reflector: Reflector[str], server: FakeServer) -> None:
    """Run the reflector once the server has a script."""
    await until(lambda: server._scripts)
    await reflector.run()


async def test_a_list_is_read_in_pages_before_synced_is_set() -> None:
    """The watch then starts from the list's version, with bookmarks."""
    async with reflecting() as (server, reflector, handler):
        server.on("GET", PATH, page(7, thing("a", 1), more="token"), page(7, thing("b", 2)))
        server.on("WATCH", PATH, Watch())

        await until(lambda: server.asked("WATCH"))

        assert reflector.synced.is_set()
        assert handler.calls == ["+a@1", "+b@2"]
        first, second = server.asked("GET")
        assert first.query == {"limit": "50", "fieldSelector": "spec.kind=ours"}
        assert second.query == {"limit": "200", "fieldSelector": "spec.kind=ours", "continue": "token"}
        watch = server.asked("WATCH")[0].query
        assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("7", "true")
        assert 300 <= int(watch["timeoutSeconds"]) <= 600
        assert watch["fieldSelector"] == "spec.kind=ours"


@pytest.mark.promise("hold-8")
async def test_a_watch_resumes_where_the_last_one_ended() -> None:
    """Events and bookmarks advance the version. A watch that the server closed is resumed without a list."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7, thing("a", 1)))
        first = (event("ADDED", "b", 8), event("MODIFIED", "a", 9), event("DELETED", "b", 10))
        server.on("WATCH", PATH, Watch((*first, event("BOOKMARK", "", 15)), close=True), Watch())

        await until(lambda: len(server.asked("WATCH")) == 2)

        assert handler.calls == ["+a@1", "+b@8", "+a@9", "-b@10"]
        assert server.asked("WATCH")[1].query["resourceVersion"] == "15"
        assert len(server.asked("GET")) == 1


async def test_the_version_says_what_the_handler_has_received() -> None:
    """It advances after the handler, also where only a bookmark tells that nothing has changed."""
    async with reflecting() as (server, reflector, handler):
        before: list[str | None] = []
        handler.applied = lambda _: before.append(reflector.version)  # type: ignore[method-assign, assignment]
        server.on("GET", PATH, page(7, thing("a", 1)))
        server.on("WATCH", PATH, Watch((event("ADDED", "b", 8), event("ADDED", "c", 9), event("BOOKMARK", "", 15))))

        await until(lambda: reflector.version == "15")

    assert before == [None, "7", "8"]


async def test_an_expired_version_is_none_until_the_next_list() -> None:
    """The API server answers 410; what has changed since is unknown until it has listed again."""
    async with reflecting() as (server, reflector, _):
        server.on("GET", PATH, page(7, thing("a", 1)), Reply(hang=True))
        server.on("WATCH", PATH, Reply(410))

        await until(lambda: len(server.asked("GET")) == 2)

        assert reflector.version is None


@pytest.mark.promise("hold-8")
@pytest.mark.parametrize(
    "expiry", [Watch((EXPIRED,), close=True), Reply(410)], ids=["an ERROR event", "the HTTP status"]
)
async def test_a_list_after_410_reports_missed_deletions(expiry: Watch | Reply) -> None:
    """They come before new objects: the resources of deleted objects are free by then."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 2)), page(20, thing("b", 2), thing("c", 19)))
        server.on("WATCH", PATH, expiry, Watch())

        await until(lambda: len(server.asked("WATCH")) == 2)

        assert handler.calls == ["+a@1", "+b@2", "-a@1", "+b@2", "+c@19"]
        assert server.asked("WATCH")[1].query["resourceVersion"] == "20"


async def test_only_consecutive_410s_back_off() -> None:
    """A watch with an event in between is progress: an expiry before it does not delay the next list."""
    # Back-offs that doubled each time would take minutes, longer than `until` waits.
    pace = ReflectorTimings(idle_limit=5, backoff_first=0.05, backoff_longest=60, quick=5)
    async with reflecting(pace) as (server, _, handler):
        server.on("GET", PATH, page(7))
        watches = [Watch((event("ADDED", f"a{number}", 8),), close=True) for number in range(14)]
        server.on("WATCH", PATH, *(reply for one in watches for reply in (one, Reply(410))), Watch())

        await until(lambda: len(server.asked("GET")) == 15)

        assert handler.calls.count("+a13@8") == 1


async def test_an_expired_continue_token_restarts_the_list() -> None:
    """The first list is applied page by page. An object that is missing in the next list is deleted again."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7, thing("a", 1), more="token"), Reply(410), page(9, thing("b", 8)))
        server.on("WATCH", PATH, Watch())

        await until(lambda: server.asked("WATCH"))

        assert handler.calls == ["+a@1", "-a@1", "+b@8"]
        assert "continue" not in server.asked("GET")[2].query


async def test_an_incomplete_later_list_is_never_applied() -> None:
    """It would delete every object on the pages that were not read."""
    async with reflecting() as (server, reflector, handler):
        server.on("GET", PATH, page(7, thing("a", 1)), page(8, thing("b", 8), more="token"), Reply(410))
        server.on("WATCH", PATH, Watch(), Watch())
        await until(lambda: server.asked("WATCH"))
        server.on("GET", PATH, page(9, thing("a", 1), thing("b", 8)))

        await reflector.relist()

        assert handler.calls == ["+a@1", "+a@1", "+b@8"]


async def test_other_tasks_run_while_a_list_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever decides meanwhile waits for its end: the GPU of a deleted pod may be that of a pod later in the list."""
    monkeypatch.setattr(turns, "TURN", 0.0)
    lists, seen, decisions = ApplyingLists(), list[tuple[int, str | None]](), list[asyncio.Task[list[str]]]()
    async with reflecting(lists=lists) as (server, reflector, handler):
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 1)), page(9, thing("c", 8), thing("d", 8)))
        server.on("WATCH", PATH, Watch(), Watch())
        await until(lambda: server.asked("WATCH"))

        async def decide() -> list[str]:
            await lists.ended()
            return handler.calls[2:]

        def look() -> None:
            seen.append((len(handler.calls), reflector.version))
            decisions.append(asyncio.create_task(decide()))

        handler.after_call = look
        await reflector.relist()

        assert handler.calls == ["+a@1", "+b@1", "-a@1", "-b@1", "+c@8", "+d@8"]
        assert seen == [(3, "7"), (4, "7"), (5, "7"), (6, "7")]
        assert [await each for each in decisions] == [handler.calls[2:]] * 4
        assert reflector.version == "9"


async def test_other_tasks_run_while_a_page_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first list is applied page by page, in turns too."""
    monkeypatch.setattr(turns, "TURN", 0.0)
    async with reflecting() as (server, reflector, handler):
        seen = list[int]()
        handler.after_call = lambda: seen.append(len(handler.calls))
        server.on("WATCH", PATH, Watch())
        server.on("GET", PATH, page(7, *(thing(f"a{number}", 1) for number in range(4))))
        await until(reflector.synced.is_set)

        assert seen == [1, 2, 3, 4]


async def test_the_next_page_is_requested_before_this_one_is_read() -> None:
    """The API server prepares it meanwhile."""
    counts: list[int] = []
    async with connected() as (server, api):
        server.on("GET", PATH, page(7, thing("a", 1), more="token"), page(7, thing("b", 2)))
        async with aclosing(pages(api, PATH, {}, asyncio.Lock())) as read:
            async for _ in read:
                await until(lambda: len(server.asked("GET")) == 2)
                counts.append(len(server.asked("GET")))

    assert counts == [2, 2]


async def test_errors_back_off() -> None:
    """After 500, 403 and a closed connection the reflector retries with growing pauses, never in a hot loop."""
    pace = ReflectorTimings(idle_limit=5, backoff_first=0.05, backoff_longest=0.4, quick=1)
    async with reflecting(pace) as (server, reflector, _):
        server.on("GET", PATH, Reply(500), Reply(403), Reply(200, "no list"), page(7))
        server.on("WATCH", PATH, Watch(close=True))
        loop = asyncio.get_running_loop()
        began = loop.time()

        await until(reflector.synced.is_set)
        listed = loop.time() - began
        await asyncio.sleep(0.5)

        assert listed > (0.05 + 0.1 + 0.2) / 2
        assert len(server.asked("WATCH")) < 20


async def test_retry_after_is_honoured() -> None:
    """An overloaded API server sends the seconds to wait."""
    async with reflecting() as (server, reflector, _):
        server.on("GET", PATH, Reply(429, headers={"Retry-After": "1"}), page(7))
        server.on("WATCH", PATH, Watch())
        loop = asyncio.get_running_loop()
        began = loop.time()

        await until(reflector.synced.is_set)

        assert loop.time() - began >= 1


async def test_an_idle_watch_is_reopened() -> None:
    """A half-open connection delivers nothing: after the idle limit the watch resumes from the last version."""
    pace = ReflectorTimings(idle_limit=0.1, backoff_first=0.01, backoff_longest=0.02)
    async with reflecting(pace) as (server, _, _handler):
        server.on("GET", PATH, page(7))
        server.on("WATCH", PATH, Watch())

        await until(lambda: len(server.asked("WATCH")) == 3)

        assert {each.query["resourceVersion"] for each in server.asked("WATCH")} == {"7"}
        assert len(server.asked("GET")) == 1


async def test_silence_is_measured_from_the_last_response() -> None:
    """Readiness reads it. It grows while nothing is received, and a refused list does not reset it."""
    now = [100.0]
    async with connected() as (server, api):
        handler = RecordingHandler()
        resource = Resource("things", PATH, None, read, named)
        reflector = Reflector(api, resource, handler, timings=QUICK, clock=lambda: now[0])
        server.on("GET", PATH, Reply(500))
        task = asyncio.create_task(reflector.run())
        now[0] = 130.0
        await until(lambda: len(server.asked("GET")) == 3)

        assert reflector.silence == 30.0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_relist_interrupts_the_watch() -> None:
    """A new leader lists everything again: `relist` returns after a list that began later than the call."""
    async with reflecting() as (server, reflector, handler):
        server.on("GET", PATH, page(7, thing("a", 1)), page(9, thing("b", 8)))
        server.on("WATCH", PATH, Watch())
        await until(lambda: server.asked("WATCH"))

        await reflector.relist()

        assert handler.calls == ["+a@1", "-a@1", "+b@8"]
        assert len(server.asked("GET")) == 2


async def test_a_list_in_progress_does_not_satisfy_a_later_relist() -> None:
    """Its data may be older than the call, so another list follows."""
    answered = asyncio.Event()
    async with reflecting() as (server, reflector, handler):
        server.on("GET", PATH, Reply(200, page(7, thing("a", 1)).body, after=answered), page(9, thing("a", 8)))
        server.on("WATCH", PATH, Watch())
        await until(lambda: server.asked("GET"))

        relist = asyncio.create_task(reflector.relist())
        await settle()
        answered.set()
        await relist

        assert handler.calls == ["+a@1", "+a@8"]


@pytest.mark.promise("text-11")
async def test_an_unreadable_object_does_not_stop_the_others() -> None:
    """It is logged and left out, in a list and in a watch."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7, {"metadata": 5}, thing("a", 1)))
        odd: Object = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "8", "name": "odd", "no": 5}}}
        server.on("WATCH", PATH, Watch((odd, event("ADDED", "b", 9))), Watch())

        await until(lambda: len(handler.calls) == 2)

        assert handler.calls == ["+a@1", "+b@9"]


GARBLED = {
    "no JSON": "{nonsense\n",
    "a type that is no UTF-8": '{"type": "ADD\udcff", "object": {}}\n',
    "a version that is no UTF-8": '{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "\udcff"}}}\n',
    "an object that is no UTF-8": '{"type": "ADDED", "object": {"metadata": {"name": "\udcff"}}}\n',
    "an error that is no UTF-8": '{"type": "ERROR", "object": {"code": 500, "message": "\udcff"}}\n',
}


@pytest.mark.parametrize("line", GARBLED.values(), ids=GARBLED)
async def test_a_garbled_stream_is_read_again(line: str) -> None:
    """Whatever is wrong with a line: the reflector backs off and resumes from the last valid version."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7))
        broken = Watch((event("ADDED", "a", 8), line), close=True)
        server.on("WATCH", PATH, broken, Watch((event("ADDED", "b", 9),)))

        await until(lambda: len(handler.calls) == 2)

        assert server.asked("WATCH")[1].query["resourceVersion"] == "8"


async def test_lines_are_joined_across_chunks() -> None:
    """A chunk may end anywhere. An incomplete last line is dropped."""

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"on", b"e\ntw", b"o\n\nthree\nfo", b"ur"):
            yield chunk

    assert [line async for line in lines(chunks(), asyncio.Lock())] == [b"one", b"two", b"three"]


async def test_other_tasks_run_while_a_chunk_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage, one chunk may have thousands of events."""
    monkeypatch.setattr(turns, "TURN", 0.0)
    taken, seen = list[bytes | bytearray](), list[int]()

    def look() -> None:
        seen.append(len(taken))

    async def chunks() -> AsyncIterator[bytes]:
        yield b"event\n" * 4

    async for line in lines(chunks(), asyncio.Lock()):
        taken.append(line)
        asyncio.get_running_loop().call_soon(look)

    assert seen == [1, 2, 3]


UNREADABLE: Object = {"metadata": {"name": "a", "resourceVersion": "8", "no": 5}}
STAYS = {
    "when it changes into something unreadable": [
        Watch(({"type": "MODIFIED", "object": UNREADABLE},), close=True),
        Watch(),
    ],
    "when a list shows it unreadable": [Watch((EXPIRED,)), Watch()],
}


@pytest.mark.parametrize("watches", STAYS.values(), ids=STAYS)
async def test_an_object_that_becomes_unreadable_keeps_its_last_value(watches: list[Watch]) -> None:
    """It may hold a GPU: an unreadable object does not count as deleted."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7, thing("a", 1)), page(9, UNREADABLE, {"metadata": 5}))
        server.on("WATCH", PATH, *watches)

        await until(lambda: len(server.asked("WATCH")) == 2)

        assert "-a@1" not in handler.calls


async def test_an_unreadable_object_can_be_deleted() -> None:
    """The event handler gets its last readable value."""
    async with reflecting() as (server, _, handler):
        server.on("GET", PATH, page(7, thing("a", 1)))
        server.on("WATCH", PATH, Watch(({"type": "DELETED", "object": UNREADABLE},)), Watch())

        await until(lambda: len(handler.calls) == 2)

        assert handler.calls == ["+a@1", "-a@1"]


async def test_an_error_of_the_event_handler_does_not_stop_the_watch() -> None:
    """Other objects are still delivered, and the watch continues from its version."""
    async with reflecting() as (server, _, handler):
        handler.fails_on = "+a@1"
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 1)))
        server.on("WATCH", PATH, Watch((event("ADDED", "c", 8),)), Watch())

        await until(lambda: len(handler.calls) == 2)

        assert handler.calls == ["+b@1", "+c@8"]


@pytest.mark.parametrize(
    ("fails_on", "events", "calls"),
    [
        ("+a@1", [], ["+b@1", "+a@1"]),
        ("+c@8", [event("ADDED", "c", 8)], ["+a@1", "+b@1", "+c@8"]),
        ("-a@8", [event("DELETED", "a", 8)], ["+a@1", "+b@1", "-a@8"]),
    ],
    ids=["of a list", "of an event", "that was deleted"],
)
async def test_an_object_on_which_the_event_handler_failed_is_delivered_again(
    fails_on: str, events: list[Object], calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """After a back-off that grows, until it succeeds. Its failure is logged once, with the object."""
    async with reflecting() as (server, _, handler):
        handler.fails_on = fails_on
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 1)))
        server.on("WATCH", PATH, Watch(tuple(events)))
        await until(lambda: len(handler.failed_at) == 10)
        *_, ninth, tenth = handler.failed_at
        # The jitter takes up to a half.
        assert tenth - ninth > 0.4 * QUICK.backoff_longest

        handler.fails_on = ""
        await until(lambda: len(handler.calls) == len(calls))
        await asyncio.sleep(1)

    assert handler.calls == calls
    failed = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [each.__dict__["object"] for each in failed] == [fails_on[1:]]


async def test_a_list_delivers_an_object_again_on_which_the_event_handler_failed() -> None:
    """Also at the version that is known, and before its back-off ends. A new leader decides after a list."""
    slow = ReflectorTimings(idle_limit=5000, backoff_first=1000, backoff_longest=1000)
    async with reflecting(slow) as (server, reflector, handler):
        handler.fails_on = "+c@8"
        server.on("GET", PATH, page(7, thing("a", 1)), page(8, thing("a", 1), thing("c", 8)))
        server.on("WATCH", PATH, Watch((event("ADDED", "c", 8),)), Watch())
        await until(lambda: handler.failed_at)

        handler.fails_on = ""
        await asyncio.wait_for(reflector.relist(), 100)

        assert handler.calls == ["+a@1", "+c@8"]
        await asyncio.sleep(2000)
        assert handler.calls == ["+a@1", "+c@8"]


async def test_a_newer_version_takes_the_place_of_one_on_which_the_event_handler_failed() -> None:
    """The older one is not delivered any more."""
    async with reflecting() as (server, _, handler):
        handler.fails_on = "+a@1"
        server.on("GET", PATH, page(7, thing("a", 1)))
        server.on("WATCH", PATH, Watch((event("MODIFIED", "a", 8),)))
        await until(lambda: handler.calls)

        handler.fails_on = ""
        await asyncio.sleep(1)

        assert handler.calls == ["+a@8"]


@dataclass
class Log:
    messages: list[str] = field(default_factory=list)

    def info(self, event: str, **_: object) -> None:
        self.messages.append(event)

    def warning(self, event: str, **_: object) -> None:
        self.messages.append(event)


@pytest.mark.parametrize("denial", [Reply(403), Reply(404)], ids=["forbidden", "no such kind"])
async def test_a_denied_resource_can_count_as_empty(denial: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is synced and not silent, logged once however often it is listed, and read as soon as it is allowed."""
    log = Log()
    monkeypatch.setattr(reflector_module, "log", log)
    async with reflecting(empty_if=DENIED_OR_NOT_SERVED) as (server, reflector, handler):
        server.on("GET", PATH, *[denial] * 5, page(7, thing("a", 1)))
        server.on("WATCH", PATH, Watch())
        await reflector.synced.wait()
        assert handler.calls == []

        await until(lambda: handler.calls == ["+a@1"])

        assert len(server.asked("GET")) == 6
        assert log.messages == ["The resource cannot be listed: it counts as empty", "Listed"]


async def test_a_resource_that_is_denied_later_becomes_empty() -> None:
    """Without the right to watch, its known objects may be outdated."""
    async with reflecting(empty_if=DENIED_OR_NOT_SERVED) as (server, _, handler):
        server.on("GET", PATH, page(7, thing("a", 1)), Reply(403))
        server.on("WATCH", PATH, Watch(close=True), Reply(403))

        await until(lambda: len(server.asked("GET")) == 3)

        assert handler.calls == ["+a@1", "-a@1"]


async def test_a_denied_resource_is_not_silent() -> None:
    """It is listed again before its silence counts: readiness must not take a refusal for a missing response."""
    slow = ReflectorTimings(idle_limit=0.2, backoff_first=0.05, backoff_longest=60)
    async with reflecting(slow, empty_if=DENIED_OR_NOT_SERVED) as (server, reflector, _):
        server.on("GET", PATH, Reply(403))
        await until(lambda: len(server.asked("GET")) == 12)

        assert reflector.silence < 2 * slow.idle_limit


@pytest.mark.parametrize(("headers", "soon"), [({}, True), ({"Retry-After": "60"}, False)])
async def test_a_relist_ends_a_back_off_without_retry_after(headers: dict[str, str], *, soon: bool) -> None:
    """A new leader continues as soon as the server is back. A Retry-After is respected."""
    slow = ReflectorTimings(idle_limit=60, backoff_first=60, backoff_longest=60)
    async with reflecting(slow) as (server, reflector, _):
        server.on("GET", PATH, Reply(503, headers=headers), page(7))
        server.on("WATCH", PATH, Watch())
        await until(lambda: server.asked("GET"))
        await settle()

        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await reflector.relist()

        assert (len(server.asked("GET")) == 2) is soon


async def test_a_denied_required_resource_is_not_synced() -> None:
    """The scheduler decides nothing without its own resources."""
    async with reflecting() as (server, reflector, _):
        server.on("GET", PATH, Reply(403))

        await until(lambda: len(server.asked("GET")) == 3)

        assert not reflector.synced.is_set()


async def test_a_resource_that_may_not_be_watched_is_listed_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only differences reach the handler, and only the first list is logged. No watch is tried."""
    log = Log()
    monkeypatch.setattr(reflector_module, "log", log)
    async with reflecting(list_interval=0.01) as (server, reflector, handler):
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 2)), Reply(500), page(9, thing("b", 9), thing("c", 8)))

        await until(lambda: len(server.asked("GET")) > 5)

        assert handler.calls == ["+a@1", "+b@2", "-a@1", "+b@9", "+c@8"]
        assert log.messages == ["Listed", "Watching failed"]
        assert server.asked("WATCH") == []
        assert reflector.silence < QUICK.idle_limit


PAUSES: dict[str, tuple[dict[str, Any], list[Reply], list[str]]] = {
    "after a denial": ({"empty_if": DENIED_OR_NOT_SERVED}, [Reply(403)], []),
    "of its interval": ({"list_interval": 60}, [page(7, thing("a", 1)), page(8, thing("a", 8))], ["+a@1", "+a@8"]),
}


@pytest.mark.parametrize(("resource", "lists", "calls"), PAUSES.values(), ids=PAUSES)
async def test_a_relist_does_not_wait_for_the_end_of_a_pause(
    resource: dict[str, Any], lists: list[Reply], calls: list[str]
) -> None:
    """A new leader lists at once, however long the pause is: the back-off protects only the server."""
    slow = ReflectorTimings(backoff_first=60, backoff_longest=60)
    async with reflecting(slow, **resource) as (server, reflector, handler):
        server.on("GET", PATH, *lists)
        await reflector.synced.wait()

        async with asyncio.timeout(1):
            await reflector.relist()

        assert handler.calls == calls
        assert len(server.asked("GET")) == 2


async def test_an_interval_is_never_longer_than_a_watch_may_be_silent() -> None:
    """Otherwise readiness would take the pause for a server that does not answer."""
    quick = ReflectorTimings(idle_limit=0.05)
    async with reflecting(quick, list_interval=60) as (server, _, _):
        server.on("GET", PATH, page(7))

        await until(lambda: len(server.asked("GET")) == 3)
