"""Which connections the pool keeps, how many and how long, and how it opens them."""

import asyncio
import ssl
from typing import Any

import pytest

from gpu_scheduler.kube.http import pool as module
from gpu_scheduler.kube.http.pool import ConnectionPool, Route
from unit_tests.kube.peers import (
    CREATED,
    ServerConnection,
    answer_all,
    answering,
    authority,
    client_context,
    connection_pool,
    pooled,
    post,
    schemes,
    server_context,
    serving,
    watched_sockets,
)
from unit_tests.kube.server import until
from unit_tests.virtual import settle


@schemes
async def test_one_connection_serves_many_writes(scheme: str) -> None:
    """A handshake costs more than a write."""
    async with pooled(answer_all, scheme) as (peer, connections):
        for _ in range(5):
            assert (await connections.ask(post(), None)).status == 201

    assert len(peer.accepted) == 1


@schemes
async def test_a_connection_is_closed_if_the_server_sends_close(scheme: str) -> None:
    """Each write then has its own connection, even if the kernel reuses the last file descriptor."""
    async with pooled(answering(CREATED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")), scheme) as (
        peer,
        connections,
    ):
        for _ in range(3):
            assert (await connections.ask(post(), None)).body == b"{}"
            assert watched_sockets() - peer.open == 1

    assert len(peer.accepted) == 3


@schemes
async def test_a_connection_that_the_server_closed_is_not_used(scheme: str) -> None:
    """A restarted API server does not disturb the next write."""

    async def script(connection: ServerConnection) -> None:
        await connection.request()
        await connection.send(CREATED)

    async with pooled(script, scheme) as (peer, connections):
        for count in (1, 2):
            assert (await connections.ask(post(), None)).status == 201
            await until(lambda count=count: len(peer.ended) == count and watched_sockets() == 1)

    assert len(peer.accepted) == 2


@pytest.mark.parametrize(("host", "lookups"), [("127.0.0.1", 0), ("localhost", 1)])
async def test_only_a_host_name_is_resolved(monkeypatch: pytest.MonkeyPatch, host: str, lookups: int) -> None:
    """A lookup uses a thread that would outlive a busy moment; an address needs none."""
    loop, resolved = asyncio.get_running_loop(), []
    usual = loop.getaddrinfo

    async def resolve(name: str, *rest: Any, **more: Any) -> Any:
        resolved.append(name)
        return await usual(name, *rest, **more)

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    async with serving(answer_all) as peer:
        port = peer.url.rpartition(":")[2]
        connections = ConnectionPool(Route(f"http://{host}:{port}"), ssl.create_default_context(), 1)
        try:
            assert (await connections.ask(post(), None)).status == 201
        finally:
            connections.close()

    assert resolved == [host] * lookups


async def test_concurrent_requests_are_limited() -> None:
    """The next request waits for a slot, and uses the connection of the request that released it."""
    go_on = asyncio.Semaphore(0)

    async def script(connection: ServerConnection) -> None:
        while True:
            await connection.request()
            await go_on.acquire()
            await connection.send(CREATED)

    async with pooled(script, limit=2) as (peer, connections):
        tasks = [asyncio.create_task(connections.ask(post(), None)) for _ in range(3)]
        await until(lambda: len(peer.accepted) == 2)
        await settle()
        assert len(peer.accepted) == 2
        for _ in tasks:
            go_on.release()
        assert [reply.status for reply in await asyncio.gather(*tasks)] == [201] * 3

    assert len(peer.accepted) == 2


async def test_every_failed_request_releases_its_slot() -> None:
    """Refused, cut, stopped by its guard, or cancelled."""

    async def script(connection: ServerConnection) -> None:
        await connection.head()

    async with serving(script) as peer:
        with connection_pool(peer, 1) as connections:
            for guard in (None, lambda: False, None):
                with pytest.raises(ConnectionError):
                    await connections.ask(post(), guard)
        given_up = ConnectionPool(Route(peer.url.replace("http", "https")), client_context(), 1)
        nowhere = ConnectionPool(Route("http://127.0.0.1:1"), client_context(), 1)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await given_up.ask(post(), None)
            with pytest.raises(ConnectionRefusedError):
                await nowhere.ask(post(), None)


async def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall may drop an idle connection without notice. Connections in use stay open."""
    monkeypatch.setattr(module, "IDLE_TIMEOUT", 0.2)
    async with pooled(answer_all) as (peer, connections):
        await asyncio.gather(*(connections.ask(post(), None) for _ in range(3)))
        async with asyncio.timeout(3):
            while peer.open > 1:
                await connections.ask(post(), None)
                await asyncio.sleep(0.01)
        assert len(peer.accepted) == 3
        await until(lambda: peer.open == 0)
        assert (await connections.ask(post(), None)).status == 201
        await until(lambda: len(peer.ended) == 4)


@schemes
async def test_a_closed_pool_sends_nothing(scheme: str) -> None:
    """A request in progress still gets its response, over a connection that is not kept."""
    go_on = asyncio.Event()

    async def script(connection: ServerConnection) -> None:
        await connection.request()
        await go_on.wait()
        await connection.send(CREATED)
        await connection.read_rest()

    async with pooled(script, scheme) as (peer, connections):
        task = asyncio.create_task(connections.ask(post(), None))
        await until(lambda: peer.accepted)
        connections.close()
        go_on.set()
        assert (await task).status == 201
        with pytest.raises(ConnectionError, match="the connection is closed"):
            await connections.ask(post(), None)
        await until(lambda: peer.open == 0)


async def test_an_untrusted_server_receives_nothing() -> None:
    """Not one byte of a write: the server would get the token."""
    received = []

    async def script(connection: ServerConnection) -> None:
        received.append(await connection.read_rest())

    async with serving(script, "https") as peer:
        connections = ConnectionPool(Route(peer.url), ssl.create_default_context(), 1)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connections.ask(post(), None)

    assert b"".join(received) == b""


async def test_the_name_on_the_certificate_may_be_another_than_the_address() -> None:
    """The name is sent to the server and checked in its certificate. Without a name the address is used."""
    sent = []
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert("api.internal").configure_cert(tls)
    tls.sni_callback = lambda _socket, name, _context: sent.append(name)
    async with serving(answer_all, "https", tls=tls) as peer:
        with connection_pool(peer, server_name="api.internal") as connections:
            assert (await connections.ask(post(), None)).status == 201
        for name in (None, "api.elsewhere"):
            with (
                connection_pool(peer, server_name=name) as connections,
                pytest.raises(ssl.SSLCertVerificationError, match=name or "127.0.0.1"),
            ):
                await connections.ask(post(), None)

    assert sent == ["api.internal", None, "api.elsewhere"]


async def test_an_ipv6_address_has_brackets() -> None:
    """The kernel maps this address to an IPv4 server, which works on every machine."""
    async with serving(answer_all, "https", tls=server_context("::ffff:127.0.0.1")) as peer:
        peer.url = peer.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")
        with connection_pool(peer) as connections:
            assert (await connections.ask(post(), None)).status == 201


WRONG = [
    ("127.0.0.1:6443", None, "127.0.0.1:6443: an API server"),
    ("localhost:6443", None, "localhost:6443: an API server"),
    ("https://", None, "https://: an API server"),
    ("https://api:port", None, "https://api:port: an API server"),
    ("https://[::1", None, r"https://\[::1: an API server"),
    ("https://api", "https://me:secret@proxy", "https://proxy: a proxy"),
    ("https://api", "me:sec/ret@proxy:3128", "proxy:3128: a proxy"),
    ("https://api", "socks5://proxy:1080", "socks5://proxy:1080: a proxy"),
    ("https://api", "proxy:3128", "proxy:3128: a proxy"),
    ("https://api", "http://proxy:99999", "http://proxy:99999: a proxy"),
]


@pytest.mark.parametrize(("host", "proxy", "why"), WRONG, ids=[f"{host} {proxy}" for host, proxy, _ in WRONG])
def test_an_unusable_address_is_reported_at_once(host: str, proxy: str | None, why: str) -> None:
    """The error is one sentence with an example, and without a password."""
    with pytest.raises(ValueError, match=rf"^cannot connect to {why}.*\(example: http") as raised:
        ConnectionPool(Route(host, proxy=proxy), client_context(), 1)

    assert "sec" not in str(raised.value)
