"""How fast a stream is read, and what becomes of it when nobody reads it any more."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from gpu_scheduler.kube.http import watch_stream as module
from gpu_scheduler.kube.http.watch_stream import WatchStream
from tests.kube.peers import (
    CREATED,
    END,
    HEAD,
    LARGE,
    WATCH,
    Talk,
    asking,
    broken,
    chunk,
    obliging,
    post,
    schemes,
    serving,
)
from tests.kube.server import until
from tests.waiting import limit


async def silent(talk: Talk) -> None:
    """Begin a watch in which nothing happens."""
    await talk.head()
    await talk.say(HEAD)
    await talk.rest()


@schemes
@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["at once", "with a pause"])
async def test_nothing_more_is_read_than_somebody_wants(
    scheme: str, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too much stays with the server; once it is wanted, all of it comes in its order."""
    monkeypatch.setattr(module, "_AHEAD", 2**18)
    pieces = [b"%07d\n" % number * 2**13 for number in range(LARGE // 2**15)]
    said = 0

    async def script(talk: Talk) -> None:
        nonlocal said
        await talk.head()
        await talk.say(HEAD)
        for piece in pieces:
            await talk.say(chunk(piece))
            said += 1
        await talk.say(END)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(pause) as stream:
                await stream.begin(WATCH)
                await until(lambda: len(stream._body) > 2**18)
                before = -1
                while before < said:
                    before = said
                    await asyncio.sleep(0.05)
                assert len(stream._body) <= 2**18 + 2**16
                assert said < len(pieces)
                assert b"".join([piece async for piece in stream.chunks(3)]) == b"".join(pieces)


@contextmanager
def readings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """When a stream is woken to read."""
    times: list[float] = []
    wake = WatchStream._readable

    def woken(stream: WatchStream) -> None:
        times.append(time.monotonic())
        wake(stream)

    with monkeypatch.context() as patch:
        patch.setattr(WatchStream, "_readable", woken)
        yield times


async def test_what_comes_in_one_pause_arrives_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading costs the same for one piece of news as for twenty."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD)
        for _ in range(40):
            await talk.say(chunk(b"."))
            await asyncio.sleep(0.005)
        await talk.say(END)

    async with serving(script) as peer:
        with asking(peer) as connections:
            for pause in (0.0, 0.1):
                with readings(monkeypatch) as times:
                    async with connections.stream(pause) as stream:
                        await stream.begin(WATCH)
                        pieces = [piece async for piece in stream.chunks(3)]
                assert b"".join(pieces) == b"." * 40
                gaps = [later - earlier for earlier, later in pairwise(times[1:])]
                assert len(pieces) <= len(times)
                assert (len(times) > 5) if not pause else (min(gaps) > 0.09)


@schemes
async def test_no_pause_delays_the_head(scheme: str) -> None:
    """Whoever begins waits for it."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD[:9])
        await asyncio.sleep(0.02)
        await talk.say(HEAD[9:])
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(9.0) as stream, asyncio.timeout(limit(3)):
                assert (await stream.begin(WATCH)).status == 200


@schemes
async def test_a_pause_delays_the_end_by_no_more_than_itself(scheme: str) -> None:
    """And what never comes costs nothing: silence is still noticed."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD + chunk(b"a"), END)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(0.05) as stream:
                await stream.begin(WATCH)
                async with asyncio.timeout(limit(1)):
                    assert b"".join([piece async for piece in stream.chunks(3)]) == b"a"
    async with serving(silent, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(0.01) as stream:
                await stream.begin(WATCH)
                with pytest.raises(TimeoutError):
                    await anext(stream.chunks(0.05))


@schemes
async def test_silence_is_counted_from_the_last_word(scheme: str) -> None:
    """A stream that says something now and then may last."""
    rest = limit(0.1)

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD)
        for _ in range(4):
            await asyncio.sleep(rest)
            await talk.say(chunk(b"."))
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                pieces, error = await broken(stream, 3 * rest)
                assert peer.open == 1
            await until(lambda: peer.open == 0)

    assert pieces == [b"."] * 4
    assert isinstance(error, TimeoutError)


@schemes
@pytest.mark.parametrize("pause", [0.0, 9.0], ids=["at once", "with a pause"])
async def test_who_is_cancelled_leaves_nothing_open(scheme: str, pause: float) -> None:
    """Before the head and after it; the place is the next one's."""

    async def script(talk: Talk) -> None:
        asked = await talk.head()
        await talk.say(CREATED if asked.startswith(b"POST") else HEAD if len(peer.talks) > 1 else b"")
        await talk.rest()

    async def watch() -> None:
        async with connections.stream(pause) as stream:
            await stream.begin(WATCH)
            begun.set()
            await anext(stream.chunks(9))

    begun = asyncio.Event()
    async with serving(script, scheme) as peer:
        with asking(peer, 1) as connections:
            for count in (1, 2):
                task = asyncio.create_task(watch())
                await until(lambda count=count: len(peer.talks) == count)
                await (begun.wait() if count == 2 else asyncio.sleep(0.01))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await until(lambda: peer.open == 0)
            assert (await connections.ask(post(), None)).status == 201


async def test_a_stream_gives_its_place_back_however_it_ends() -> None:
    """Ended, cut, refused or not even opened; while it runs the place is its own."""
    said = iter((HEAD + END, HEAD, b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"))

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(next(said))

    async with serving(script) as peer:
        with asking(peer, 1) as connections:
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                assert [piece async for piece in stream.chunks(3)] == []
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.02), connections.stream(0.0):
                        pass
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                with pytest.raises(ConnectionResetError):
                    await anext(stream.chunks(3))
            async with connections.stream(0.0) as stream:
                assert (await stream.begin(WATCH)).status == 410
        peer.url = "http://127.0.0.1:1"
        with asking(peer, 1) as connections:
            for _ in range(2):
                with pytest.raises(ConnectionRefusedError):
                    async with connections.stream(0.0):
                        pass


@schemes
async def test_what_is_under_way_at_the_end_goes_on_to_its_own(scheme: str) -> None:
    """New credentials close what is kept; a watch that was begun with the old ones was allowed."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD, chunk(b"a"))
        await go_on.wait()
        await talk.say(chunk(b"b"), END)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            async with connections.stream(0.0) as stream:
                await stream.begin(WATCH)
                connections.close()
                go_on.set()
                assert b"".join([piece async for piece in stream.chunks(3)]) == b"ab"
                await until(lambda: peer.open == 0)
            with pytest.raises(ConnectionError, match="the connection is closed"):
                async with connections.stream(0.0):
                    pass


async def test_a_stream_is_nobodys_after_it() -> None:
    """Not even where the server would keep its connection; calls have their own."""

    async def script(talk: Talk) -> None:
        if (await talk.head()).startswith(b"GET"):
            await talk.say(HEAD + END)
            await talk.rest()
        else:
            await talk.reader.readexactly(2)
            await talk.say(CREATED)
            await obliging(talk)

    async with serving(script) as peer:
        with asking(peer) as connections:
            for _ in range(2):
                assert (await connections.ask(post(), None)).status == 201
                async with connections.stream(0.0) as stream:
                    await stream.begin(WATCH)
                    assert [piece async for piece in stream.chunks(3)] == []

    assert len(peer.talks) == 3
