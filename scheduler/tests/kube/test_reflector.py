import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec
import pytest

from gpu_scheduler.kube import reflector as reflector_module
from gpu_scheduler.kube.http.watch_stream import lines
from gpu_scheduler.kube.lists import pages
from gpu_scheduler.kube.objects.meta import Identity
from gpu_scheduler.kube.reflector import Reflector
from gpu_scheduler.kube.resource import ReflectorTimings, Resource
from tests.kube.server import FakeServer, Reply, Watch, connected, until
from tests.objects import Object
from tests.waiting import limit

PATH = "/api/v1/things"
QUICK = ReflectorTimings(idle_limit=5, backoff_first=0.01, backoff_longest=0.05, quick=0.2)


class Thing(msgspec.Struct):
    """Enough of an object."""

    metadata: dict[str, str]


def read(raw: msgspec.Raw) -> tuple[str, str]:
    """Key and value of a thing: its name, and its name with its version."""
    meta = msgspec.json.decode(raw, type=Thing).metadata
    return meta["name"], f"{meta['name']}@{meta['resourceVersion']}"


def named(identity: Identity) -> str:
    """The key of a thing."""
    return identity.name or ""


@dataclass
class Notes:
    """An observer that writes down what it is told."""

    told: list[str] = field(default_factory=list)
    fails_on: str = ""

    def applied(self, value: str) -> None:
        """See Observer."""
        if value == self.fails_on:
            raise RuntimeError("a bug")
        self.told.append(f"+{value}")

    def forgotten(self, value: str) -> None:
        """See Observer."""
        self.told.append(f"-{value}")


def thing(name: str, version: int) -> Object:
    """One object."""
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> Object:
    """One watch event."""
    return {"type": kind, "object": thing(name, version)}


def page(version: int, *items: Object, more: str | None = None) -> Reply:
    """One page of a list."""
    return Reply(200, {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)})


EXPIRED: Object = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}


@asynccontextmanager
async def reflecting(
    pace: ReflectorTimings = QUICK, *, optional: bool = False
) -> AsyncIterator[tuple[FakeServer, Reflector[str], Notes]]:
    """A reflector that is running, its observer, and the server that it watches."""
    async with connected() as (server, api):
        notes = Notes()
        resource = Resource("things", PATH, "spec.kind=ours", read, named, optional=optional)
        reflector = Reflector(api, resource, notes, pace=pace)
        task = asyncio.create_task(_start(reflector, server))
        try:
            yield server, reflector, notes
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _start(reflector: Reflector[str], server: FakeServer) -> None:
    """Run once a script is there."""
    await until(lambda: server._scripts)
    await reflector.run()


async def test_a_list_is_read_in_pages_before_anything_is_decided() -> None:
    """`synced` comes after the last page, and the watch goes on from the list's version with bookmarks."""
    async with reflecting() as (server, reflector, notes):
        server.on("GET", PATH, page(7, thing("a", 1), more="token"), page(7, thing("b", 2)))
        server.on("WATCH", PATH, Watch())

        await until(lambda: server.asked("WATCH"))

        assert reflector.synced.is_set()
        assert notes.told == ["+a@1", "+b@2"]
        first, second = server.asked("GET")
        assert first.query == {"limit": "50", "fieldSelector": "spec.kind=ours"}
        assert second.query == {"limit": "200", "fieldSelector": "spec.kind=ours", "continue": "token"}
        watch = server.asked("WATCH")[0].query
        assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("7", "true")
        assert 300 <= int(watch["timeoutSeconds"]) <= 600
        assert watch["fieldSelector"] == "spec.kind=ours"


async def test_a_watch_goes_on_where_the_last_one_ended() -> None:
    """Events and bookmarks move the version; a watch that the server closed is resumed without a list."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7, thing("a", 1)))
        first = (event("ADDED", "b", 8), event("MODIFIED", "a", 9), event("DELETED", "b", 10))
        server.on("WATCH", PATH, Watch((*first, event("BOOKMARK", "", 15)), close=True), Watch())

        await until(lambda: len(server.asked("WATCH")) == 2)

        assert notes.told == ["+a@1", "+b@8", "+a@9", "-b@10"]
        assert server.asked("WATCH")[1].query["resourceVersion"] == "15"
        assert len(server.asked("GET")) == 1


@pytest.mark.parametrize(
    "expiry", [Watch((EXPIRED,), close=True), Reply(410)], ids=["an ERROR event", "the HTTP status"]
)
async def test_after_410_a_list_tells_what_went_meanwhile(expiry: Watch | Reply) -> None:
    """Deletions that nobody saw are emitted, before what is new: what they held is free by then."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 2)), page(20, thing("b", 2), thing("c", 19)))
        server.on("WATCH", PATH, expiry, Watch())

        await until(lambda: len(server.asked("WATCH")) == 2)

        assert notes.told == ["+a@1", "+b@2", "-a@1", "+b@2", "+c@19"]
        assert server.asked("WATCH")[1].query["resourceVersion"] == "20"


async def test_only_410_after_410_slows_down() -> None:
    """A watch in between that brings something is progress: what expired before it costs the next list no pause."""
    pace = ReflectorTimings(idle_limit=5, backoff_first=0.02, backoff_longest=60, quick=5)
    async with reflecting(pace) as (server, _, notes):
        server.on("GET", PATH, page(7))
        told = [Watch((event("ADDED", f"a{number}", 8),), close=True) for number in range(12)]
        server.on("WATCH", PATH, *(answer for one in told for answer in (one, Reply(410))), Watch())

        async with asyncio.timeout(limit(5)):
            await until(lambda: len(server.asked("GET")) == 13)

        assert notes.told.count("+a11@8") == 1


async def test_an_expired_continue_token_begins_the_list_again() -> None:
    """The first list is told as it comes; what stood on a page of it and not in the next list is gone again."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7, thing("a", 1), more="token"), Reply(410), page(9, thing("b", 8)))
        server.on("WATCH", PATH, Watch())

        await until(lambda: server.asked("WATCH"))

        assert notes.told == ["+a@1", "-a@1", "+b@8"]
        assert "continue" not in server.asked("GET")[2].query


async def test_half_a_later_list_is_never_applied() -> None:
    """It would delete everything on the pages that were not read."""
    async with reflecting() as (server, reflector, notes):
        server.on("GET", PATH, page(7, thing("a", 1)), page(8, thing("b", 8), more="token"), Reply(410))
        server.on("WATCH", PATH, Watch(), Watch())
        await until(lambda: server.asked("WATCH"))
        server.on("GET", PATH, page(9, thing("a", 1), thing("b", 8)))

        await reflector.relist()

        assert notes.told == ["+a@1", "+a@1", "+b@8"]


async def test_the_next_page_is_asked_for_before_this_one_is_read() -> None:
    """So the API server works on it meanwhile."""
    asked: list[int] = []
    async with connected() as (server, api):
        server.on("GET", PATH, page(7, thing("a", 1), more="token"), page(7, thing("b", 2)))
        async with aclosing(pages(api, PATH, {}, asyncio.Lock())) as read:
            async for _ in read:
                await until(lambda: len(server.asked("GET")) == 2)
                asked.append(len(server.asked("GET")))

    assert asked == [2, 2]


async def test_errors_are_met_with_patience() -> None:
    """500, 403 and a closed connection are asked again with growing pauses, never in a hot loop."""
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
    """An overloaded API server says when to come back."""
    async with reflecting() as (server, reflector, _):
        server.on("GET", PATH, Reply(429, headers={"Retry-After": "1"}), page(7))
        server.on("WATCH", PATH, Watch())
        loop = asyncio.get_running_loop()
        began = loop.time()

        await until(reflector.synced.is_set)

        assert loop.time() - began >= 1


async def test_a_silent_watch_is_opened_anew() -> None:
    """A half-open connection never speaks: after the idle limit the watch goes on from the last version."""
    pace = ReflectorTimings(idle_limit=0.1, backoff_first=0.01, backoff_longest=0.02)
    async with reflecting(pace) as (server, _, _notes):
        server.on("GET", PATH, page(7))
        server.on("WATCH", PATH, Watch())

        await until(lambda: len(server.asked("WATCH")) == 3)

        assert {each.query["resourceVersion"] for each in server.asked("WATCH")} == {"7"}
        assert len(server.asked("GET")) == 1


async def test_silence_is_measured_from_the_last_word() -> None:
    """Readiness reads it: it grows while nothing comes, and a refused list does not reset it."""
    now = [100.0]
    async with connected() as (server, api):
        notes = Notes()
        resource = Resource("things", PATH, None, read, named)
        reflector = Reflector(api, resource, notes, pace=QUICK, clock=lambda: now[0])
        server.on("GET", PATH, Reply(500))
        task = asyncio.create_task(reflector.run())
        now[0] = 130.0
        await until(lambda: len(server.asked("GET")) == 3)

        assert reflector.silence == 30.0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_list_on_request_interrupts_the_watch() -> None:
    """A new leader looks at everything anew: `relist` returns after a list that began later than the call."""
    async with reflecting() as (server, reflector, notes):
        server.on("GET", PATH, page(7, thing("a", 1)), page(9, thing("b", 8)))
        server.on("WATCH", PATH, Watch())
        await until(lambda: server.asked("WATCH"))

        await reflector.relist()

        assert notes.told == ["+a@1", "-a@1", "+b@8"]
        assert len(server.asked("GET")) == 2


async def test_a_list_under_way_does_not_satisfy_a_later_request() -> None:
    """What it reads may be older than the wish, so another one follows."""
    async with reflecting() as (server, reflector, notes):
        server.on("GET", PATH, Reply(200, page(7, thing("a", 1)).body, after=0.1), page(9, thing("a", 8)))
        server.on("WATCH", PATH, Watch())
        await until(lambda: server.asked("GET"))

        await reflector.relist()

        assert notes.told == ["+a@1", "+a@8"]


async def test_an_unreadable_object_does_not_stop_the_others() -> None:
    """It is logged and left out, in a list and in a watch."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7, {"metadata": 5}, thing("a", 1)))
        odd: Object = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "8", "name": "odd", "no": 5}}}
        server.on("WATCH", PATH, Watch((odd, event("ADDED", "b", 9))), Watch())

        await until(lambda: len(notes.told) == 2)

        assert notes.told == ["+a@1", "+b@9"]


GARBLED = {
    "no JSON": "{nonsense\n",
    "a type that is no UTF-8": '{"type": "ADD\udcff", "object": {}}\n',
    "a version that is no UTF-8": '{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "\udcff"}}}\n',
    "an object that is no UTF-8": '{"type": "ADDED", "object": {"metadata": {"name": "\udcff"}}}\n',
    "an error that is no UTF-8": '{"type": "ERROR", "object": {"code": 500, "message": "\udcff"}}\n',
}


@pytest.mark.parametrize("line", GARBLED.values(), ids=GARBLED)
async def test_a_garbled_stream_is_read_again(line: str) -> None:
    """Whatever a line is made of: back off and go on from the last good version."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7))
        broken = Watch((event("ADDED", "a", 8), line), close=True)
        server.on("WATCH", PATH, broken, Watch((event("ADDED", "b", 9),)))

        await until(lambda: len(notes.told) == 2)

        assert server.asked("WATCH")[1].query["resourceVersion"] == "8"


async def test_lines_are_cut_wherever_the_network_cut_them() -> None:
    """Chunks end anywhere; an incomplete last line is dropped."""

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in (b"on", b"e\ntw", b"o\n\nthree\nfo", b"ur"):
            yield chunk

    assert [line async for line in lines(chunks(), asyncio.Lock())] == [b"one", b"two", b"three"]


UNREADABLE: Object = {"metadata": {"name": "a", "resourceVersion": "8", "no": 5}}
STAYS = {
    "when it changes into something unreadable": [
        Watch(({"type": "MODIFIED", "object": UNREADABLE},), close=True),
        Watch(),
    ],
    "when a list shows it unreadable": [Watch((EXPIRED,)), Watch()],
}


@pytest.mark.parametrize("watches", STAYS.values(), ids=STAYS)
async def test_what_can_no_longer_be_read_stays_as_it_was_known(watches: list[Watch]) -> None:
    """It may hold a GPU: nothing that cannot be read is taken to be gone."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7, thing("a", 1)), page(9, UNREADABLE, {"metadata": 5}))
        server.on("WATCH", PATH, *watches)

        await until(lambda: len(server.asked("WATCH")) == 2)

        assert "-a@1" not in notes.told


async def test_an_unreadable_object_that_goes_is_gone() -> None:
    """What was known of it is what is forgotten."""
    async with reflecting() as (server, _, notes):
        server.on("GET", PATH, page(7, thing("a", 1)))
        server.on("WATCH", PATH, Watch(({"type": "DELETED", "object": UNREADABLE},)), Watch())

        await until(lambda: len(notes.told) == 2)

        assert notes.told == ["+a@1", "-a@1"]


async def test_an_error_of_our_own_over_one_object_does_not_stop_the_watch() -> None:
    """The others are told of, and the watch goes on from where it is."""
    async with reflecting() as (server, _, notes):
        notes.fails_on = "a@1"
        server.on("GET", PATH, page(7, thing("a", 1), thing("b", 1)))
        server.on("WATCH", PATH, Watch((event("ADDED", "c", 8),)), Watch())

        await until(lambda: len(notes.told) == 2)

        assert notes.told == ["+b@1", "+c@8"]


@dataclass
class Log:
    """What was logged, whatever the level."""

    told: list[str] = field(default_factory=list)

    def info(self, event: str, **_: object) -> None:
        self.told.append(event)

    def warning(self, event: str, **_: object) -> None:
        self.told.append(event)


DENIALS = {"nobody gave us the right": Reply(403), "there is no such kind": Reply(404)}


@pytest.mark.parametrize("denial", DENIALS.values(), ids=DENIALS)
async def test_what_is_optional_and_denied_is_empty(denial: Reply, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is synced and not silent, told once however often it is asked again, and seen as soon as it can be."""
    log = Log()
    monkeypatch.setattr(reflector_module, "log", log)
    async with reflecting(optional=True) as (server, reflector, notes):
        server.on("GET", PATH, *[denial] * 5, page(7, thing("a", 1)))
        server.on("WATCH", PATH, Watch())
        await reflector.synced.wait()
        assert notes.told == []

        await until(lambda: notes.told == ["+a@1"])

        assert len(server.asked("GET")) == 6
        assert log.told == ["Doing without what cannot be seen", "Listed"]


async def test_what_is_denied_later_is_gone() -> None:
    """A right that is taken away while we watch leaves nothing to believe."""
    async with reflecting(optional=True) as (server, _, notes):
        server.on("GET", PATH, page(7, thing("a", 1)), Reply(403))
        server.on("WATCH", PATH, Watch(close=True), Reply(403))

        await until(lambda: len(server.asked("GET")) == 3)

        assert notes.told == ["+a@1", "-a@1"]


async def test_what_is_denied_does_not_seem_silent() -> None:
    """It is asked for again before its silence counts: readiness would take an answer for none."""
    slow = ReflectorTimings(idle_limit=limit(0.2), backoff_first=0.05, backoff_longest=60)
    async with reflecting(slow, optional=True) as (server, reflector, _):
        server.on("GET", PATH, Reply(403))
        async with asyncio.timeout(limit(5)):
            await until(lambda: len(server.asked("GET")) == 12)

        assert reflector.silence < 2 * slow.idle_limit


async def test_a_list_on_request_does_not_wait_for_what_is_denied() -> None:
    """A new leader goes on at once: the back-off is the server's rest, not ours."""
    slow = ReflectorTimings(backoff_first=60, backoff_longest=60)
    async with reflecting(slow, optional=True) as (server, reflector, _):
        server.on("GET", PATH, Reply(403))
        await reflector.synced.wait()

        async with asyncio.timeout(limit(3)):
            await reflector.relist()

        assert len(server.asked("GET")) == 2


@pytest.mark.parametrize(("asked", "soon"), [({}, True), ({"Retry-After": "60"}, False)])
async def test_a_list_on_request_ends_a_back_off_that_nobody_asked_for(asked: dict[str, str], *, soon: bool) -> None:
    """A new leader goes on as soon as the server is back; what a Retry-After asks for is kept."""
    slow = ReflectorTimings(idle_limit=60, backoff_first=60, backoff_longest=60)
    async with reflecting(slow) as (server, reflector, _):
        server.on("GET", PATH, Reply(503, headers=asked), page(7))
        server.on("WATCH", PATH, Watch())
        await until(lambda: server.asked("GET"))
        await asyncio.sleep(0.1)

        with suppress(TimeoutError):
            async with asyncio.timeout(limit(1)):
                await reflector.relist()

        assert (len(server.asked("GET")) == 2) is soon


async def test_what_is_denied_and_not_optional_is_waited_for() -> None:
    """Without our own resources nothing is decided."""
    async with reflecting() as (server, reflector, _):
        server.on("GET", PATH, Reply(403))

        await until(lambda: len(server.asked("GET")) == 3)

        assert not reflector.synced.is_set()
