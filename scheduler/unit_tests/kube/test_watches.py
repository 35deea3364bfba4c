"""Watches of an ApiClient: changing credentials, refusals, and each time limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gpu_scheduler.kube.config.client_config import ClientConfig
from gpu_scheduler.kube.config.kubeconfig import ConfigLoader
from gpu_scheduler.kube.http import client as module
from gpu_scheduler.kube.http.client import ApiClient, ApiResponse, NoResponseError
from tests.messages import text_of
from unit_tests.kube.peers import END, HEAD, ServerConnection, answering, chunk, serving, serving_client
from unit_tests.kube.server import Reply, Watch, connected, until

PATH = "/api/v1/pods"
QUERY = {"watch": "true", "fieldSelector": "spec.x=a&b"}


async def read_watch(api: ApiClient, *, limit: float = 3.0, idle_limit: float = 3.0) -> tuple[ApiResponse, bytes]:
    async with api.stream(PATH, query=QUERY, limit=limit, idle_limit=idle_limit) as (response, chunks):
        return response, b"".join([piece async for piece in chunks] if response.ok else [])


async def test_a_watch_request_equals_a_list_request() -> None:
    """Except for one header. Its query is encoded."""
    heads = []

    async def script(connection: ServerConnection) -> None:
        heads.append((await connection.head()).decode())
        await connection.send(HEAD + chunk(b"{}\n") + END)

    async with serving_client(script) as (peer, api):
        assert await read_watch(api) == (ApiResponse(200, b""), b"{}\n")
        await until(lambda: peer.open == 0)

    line, *headers = heads[0].split("\r\n")
    assert line == f"GET {PATH}?watch=true&fieldSelector=spec.x%3Da%26b HTTP/1.1"
    assert f"Host: {peer.url.removeprefix('http://')}" in headers


async def test_the_host_header_has_no_user_and_password() -> None:
    """A server refuses such a Host header."""
    heads = []

    async def script(connection: ServerConnection) -> None:
        heads.append((await connection.head()).decode())
        await connection.send(HEAD + END)

    async with serving(script) as peer:
        api = ApiClient(ClientConfig(peer.url.replace("//", "//me:secret@")), reload=ConfigLoader("nowhere"))
        await read_watch(api)
        await api.close()

    assert f"\r\nHost: {peer.url.removeprefix('http://')}\r\n" in heads[0]


@pytest.mark.parametrize(
    ("reply", "response"),
    [
        (Reply(410, '{"code":410}'), ApiResponse(410, b'{"code":410}')),
        (Reply(429, "slow down", {"Retry-After": "7"}), ApiResponse(429, b"slow down", 7.0)),
    ],
    ids=["gone", "with Retry-After"],
)
async def test_a_refused_watch_is_returned(reply: Reply, response: ApiResponse) -> None:
    """With its message and its Retry-After."""
    async with connected() as (server, api):
        server.on("WATCH", PATH, reply)
        assert await read_watch(api) == (response, b"")


async def test_a_401_reloads_the_credentials_and_repeats_the_watch() -> None:
    """A rotated token costs a watch one request."""
    async with connected("old", "new") as (server, api):
        server.on("WATCH", PATH, Reply(401), Watch(({"a": 1},), close=True))
        assert await read_watch(api) == (ApiResponse(200, b""), b'{"a": 1}\n')

    assert [each.headers["Authorization"] for each in server.requests] == ["Bearer old", "Bearer new"]


async def test_a_second_401_is_returned() -> None:
    """No loop, and no slot is lost."""
    async with connected("old", "new") as (server, api):
        server.on("WATCH", PATH, Reply(401, "who are you"))
        assert await read_watch(api) == (ApiResponse(401, b"who are you"), b"")
        assert len(server.requests) == 2
        assert api._connections._slots._value == module.CONNECTIONS


async def test_an_idle_watch_times_out() -> None:
    """Before its head and after it. The error names the request and what happened."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD if len(peer.accepted) > 1 else b"")
        await connection.read_rest()

    async with serving_client(script) as (peer, api):
        for _ in range(2):
            with pytest.raises(NoResponseError, match=f"^watch {PATH}: TimeoutError$"):
                await read_watch(api, idle_limit=0.1)
            await until(lambda: peer.open == 0)

    assert len(peer.accepted) == 2


async def test_a_watch_has_a_total_time_limit() -> None:
    """A server that keeps sending does not hold it open."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD)
        while True:
            await connection.send(chunk(b"{}\n"))
            await asyncio.sleep(0.01)

    async with serving_client(script) as (peer, api):
        clock = asyncio.get_running_loop().time
        began = clock()
        with pytest.raises(NoResponseError, match=f"^watch {PATH}: TimeoutError$"):
            await read_watch(api, limit=0.2)
        assert clock() - began == pytest.approx(0.2)
        await until(lambda: peer.open == 0)


async def test_a_cut_watch_is_an_error() -> None:
    """A cut is no end."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()
        await connection.send(HEAD + chunk(b"{}\n"))

    async with serving_client(script) as (_, api):
        with pytest.raises(NoResponseError, match=f"^watch {PATH}: {text_of('connection: closed by the server')}$"):
            await read_watch(api)


async def test_a_watch_of_an_unreachable_server_times_out_like_a_call() -> None:
    """However long the idle limit of the watch is."""
    clock, received = asyncio.get_running_loop().time, []

    async def script(connection: ServerConnection) -> None:
        received.append(await connection.read_rest())

    async with serving(script) as peer:
        api = ApiClient(ClientConfig(peer.url.replace("http", "https")), reload=ConfigLoader("nowhere"))
        began = clock()
        with pytest.raises(NoResponseError, match=f"^watch {PATH}: TimeoutError$"):
            await read_watch(api, limit=60, idle_limit=60)
        assert clock() - began == pytest.approx(module.CALL_TIMEOUT) == 3
        await until(lambda: received)
        assert api._connections._slots._value == module.CONNECTIONS
        await api.close()


async def test_a_watch_that_is_left_early_is_closed() -> None:
    """An error of the reader is no error of the watch."""
    async with serving_client(answering(HEAD + chunk(b"{}\n"))) as (peer, api):
        with suppress(ValueError):
            async with api.stream(PATH, query=QUERY, limit=3, idle_limit=3) as (_, chunks):
                raise ValueError(await anext(chunks))
        await until(lambda: peer.open == 0)
