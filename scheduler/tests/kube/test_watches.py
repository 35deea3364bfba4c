"""Watches as an Api opens them: credentials that change, refusals, and each of their time limits."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from kubernetes.aio.client.configuration import Configuration

from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http import client as module
from gpu_scheduler.kube.http.client import ApiClient, ApiResponse, NoResponseError
from tests.kube.peers import END, HEAD, Talk, chunk, serving
from tests.kube.server import Reply, Watch, connected, until
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.kube.peers import Peer, Script

PATH = "/api/v1/pods"
QUERY = {"watch": "true", "fieldSelector": "spec.x=a&b"}


@asynccontextmanager
async def speaking(script: Script) -> AsyncIterator[tuple[Peer, ApiClient]]:
    """A server that plays a script, and an Api that talks to it."""
    async with serving(script) as peer:
        api = ApiClient(Configuration(host=peer.url), reload=ConfigLoader("nowhere"))
        try:
            yield peer, api
        finally:
            await api.close()


async def watched(api: ApiClient, *, limit: float = 3.0, idle_limit: float = 3.0) -> tuple[ApiResponse, bytes]:
    """One watch until its end."""
    async with api.stream(PATH, query=QUERY, limit=limit, idle_limit=idle_limit) as (answer, chunks):
        return answer, b"".join([piece async for piece in chunks] if answer.ok else [])


async def test_a_watch_is_asked_for_as_a_list_is() -> None:
    """With the same headers but one, and with its query encoded."""
    asked = []

    async def script(talk: Talk) -> None:
        asked.append((await talk.head()).decode())
        await talk.say(HEAD + chunk(b"{}\n") + END)

    async with speaking(script) as (peer, api):
        assert await watched(api) == (ApiResponse(200, b""), b"{}\n")
        await until(lambda: peer.open == 0)

    line, *headers = asked[0].split("\r\n")
    assert line == f"GET {PATH}?watch=true&fieldSelector=spec.x%3Da%26b HTTP/1.1"
    assert f"Host: {peer.url.removeprefix('http://')}" in headers


async def test_a_name_and_a_password_in_the_address_are_no_part_of_the_hosts_name() -> None:
    """A server refuses such a Host."""
    asked = []

    async def script(talk: Talk) -> None:
        asked.append((await talk.head()).decode())
        await talk.say(HEAD + END)

    async with serving(script) as peer:
        api = ApiClient(Configuration(host=peer.url.replace("//", "//me:secret@")), reload=ConfigLoader("nowhere"))
        await watched(api)
        await api.close()

    assert f"\r\nHost: {peer.url.removeprefix('http://')}\r\n" in asked[0]


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (Reply(410, '{"code":410}'), ApiResponse(410, b'{"code":410}')),
        (Reply(429, "slow down", {"Retry-After": "7"}), ApiResponse(429, b"slow down", 7.0)),
    ],
    ids=["gone", "asking for patience"],
)
async def test_a_refused_watch_is_an_answer(reply: Reply, answer: ApiResponse) -> None:
    """With its words and the patience that it asks for."""
    async with connected() as (server, api):
        server.on("WATCH", PATH, reply)
        assert await watched(api) == (answer, b"")


async def test_a_401_reads_the_credentials_again_and_watches() -> None:
    """A rotated token costs a watch one request."""
    async with connected("old", "new") as (server, api):
        server.on("WATCH", PATH, Reply(401), Watch(({"a": 1},), close=True))
        assert await watched(api) == (ApiResponse(200, b""), b'{"a": 1}\n')

    assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


async def test_a_401_that_stays_is_a_watchs_answer() -> None:
    """No loop, and no place lost."""
    async with connected("old", "new") as (server, api):
        server.on("WATCH", PATH, Reply(401, "who are you"))
        assert await watched(api) == (ApiResponse(401, b"who are you"), b"")
        assert len(server.requests) == 2
        assert api._connections._places._value == module.CONNECTIONS


async def test_silence_ends_a_watch() -> None:
    """Before its head and after it, in words that say what was asked and what happened."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD if len(peer.talks) > 1 else b"")
        await talk.rest()

    async with speaking(script) as (peer, api):
        for _ in range(2):
            with pytest.raises(NoResponseError, match=f"^watch {PATH}: TimeoutError$"):
                await watched(api, idle_limit=0.1)
            await until(lambda: peer.open == 0)

    assert len(peer.talks) == 2


async def test_a_watch_has_a_limit_as_a_whole() -> None:
    """A server that speaks on and on doesn't hold it open."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD)
        while True:
            await talk.say(chunk(b"{}\n"))
            await asyncio.sleep(0.01)

    async with speaking(script) as (peer, api):
        began = time.monotonic()
        with pytest.raises(NoResponseError, match=f"^watch {PATH}: TimeoutError$"):
            await watched(api, limit=0.2)
        assert time.monotonic() - began >= 0.2
        await until(lambda: peer.open == 0)


async def test_a_cut_watch_says_so() -> None:
    """It is no end."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD + chunk(b"{}\n"))

    async with speaking(script) as (_, api):
        with pytest.raises(NoResponseError, match=f"^watch {PATH}: the server closed the connection$"):
            await watched(api)


async def test_a_server_that_nobody_reaches_costs_no_more_than_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the watch itself may be silent."""
    assert module.CALL_TIMEOUT == 3.0
    monkeypatch.setattr(module, "CALL_TIMEOUT", 0.1)
    heard = []

    async def script(talk: Talk) -> None:
        heard.append(await talk.rest())

    async with serving(script) as peer:
        api = ApiClient(Configuration(host=peer.url.replace("http", "https")), reload=ConfigLoader("nowhere"))
        began = time.monotonic()
        with pytest.raises(NoResponseError, match=f"^watch {PATH}: TimeoutError$"):
            await watched(api, limit=60, idle_limit=60)
        assert time.monotonic() - began < limit(1)
        await until(lambda: heard)
        assert api._connections._places._value == module.CONNECTIONS
        await api.close()


async def test_who_leaves_a_watch_early_closes_it() -> None:
    """An error of the reader's own is no error of the watch."""

    async def script(talk: Talk) -> None:
        await talk.head()
        await talk.say(HEAD + chunk(b"{}\n"))
        await talk.rest()

    async with speaking(script) as (peer, api):
        with suppress(ValueError):
            async with api.stream(PATH, query=QUERY, limit=3, idle_limit=3) as (_, chunks):
                raise ValueError(await anext(chunks))
        await until(lambda: peer.open == 0)
