"""Which connections are kept, for how long and how many, and how they are opened."""

import asyncio
import ssl
from typing import Any

import pytest

from gpu_scheduler.kube.http import pool as module
from gpu_scheduler.kube.http.pool import ConnectionPool, Route
from tests.kube.peers import (
    CREATED,
    Talk,
    asking,
    authority,
    obliging,
    post,
    presenting,
    schemes,
    serving,
    trusting,
    watched,
)
from tests.kube.server import until
from tests.waiting import limit


@schemes
async def test_one_connection_serves_many_writes_one_after_the_other(scheme: str) -> None:
    """A handshake costs more than a write."""
    async with serving(obliging, scheme) as peer:
        with asking(peer) as connections:
            for _ in range(5):
                assert (await connections.ask(post(), None)).status == 201

    assert len(peer.talks) == 1


@schemes
async def test_a_server_that_says_close_is_taken_at_its_word(scheme: str) -> None:
    """Each write then has a connection of its own, though the system gives it the last one's number."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(CREATED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            for _ in range(3):
                assert (await connections.ask(post(), None)).body == b"{}"
                assert watched() - peer.open == 1

    assert len(peer.talks) == 3


@schemes
async def test_a_connection_that_the_server_closed_is_not_asked(scheme: str) -> None:
    """A restarted API server costs the next write nothing."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(CREATED)

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            for count in (1, 2):
                assert (await connections.ask(post(), None)).status == 201
                await until(lambda count=count: len(peer.ended) == count and watched() == 1)

    assert len(peer.talks) == 2


@pytest.mark.parametrize(("host", "asked"), [("127.0.0.1", 0), ("localhost", 1)])
async def test_only_a_name_is_looked_up(monkeypatch: pytest.MonkeyPatch, host: str, asked: int) -> None:
    """A thread for each connection to an address would outlive a busy moment for nothing."""
    loop, looked_up = asyncio.get_running_loop(), []
    usual = loop.getaddrinfo

    async def look_up(name: str, *rest: Any, **more: Any) -> Any:
        looked_up.append(name)
        return await usual(name, *rest, **more)

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    async with serving(obliging) as peer:
        port = peer.url.rpartition(":")[2]
        connections = ConnectionPool(Route(f"http://{host}:{port}"), ssl.create_default_context(), 1)
        try:
            assert (await connections.ask(post(), None)).status == 201
        finally:
            connections.close()

    assert looked_up == [host] * asked


async def test_only_so_many_go_at_once() -> None:
    """The next one waits for a place, and goes over the connection of whoever left it."""
    go_on = asyncio.Semaphore(0)

    async def script(talk: Talk) -> None:
        while True:
            await talk.request()
            await go_on.acquire()
            await talk.say(CREATED)

    async with serving(script) as peer:
        with asking(peer, 2) as connections:
            tasks = [asyncio.create_task(connections.ask(post(), None)) for _ in range(3)]
            await until(lambda: len(peer.talks) == 2)
            await asyncio.sleep(0.01)
            assert len(peer.talks) == 2
            for _ in tasks:
                go_on.release()
            assert [reply.status for reply in await asyncio.gather(*tasks)] == [201] * 3

    assert len(peer.talks) == 2


async def test_a_place_is_given_back_whatever_happens() -> None:
    """Refused, cut, held back or given up."""

    async def script(talk: Talk) -> None:
        await talk.head()

    async with serving(script) as peer:
        with asking(peer, 1) as connections:
            for guard in (None, lambda: False, None):
                with pytest.raises(ConnectionError):
                    await connections.ask(post(), guard)
        given_up = ConnectionPool(Route(peer.url.replace("http", "https")), trusting(), 1)
        nowhere = ConnectionPool(Route("http://127.0.0.1:1"), trusting(), 1)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await given_up.ask(post(), None)
            with pytest.raises(ConnectionRefusedError):
                await nowhere.ask(post(), None)


async def test_what_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a firewall between forgets it without a word; what is used stays."""
    monkeypatch.setattr(module, "KEPT", limit(0.2))
    async with serving(obliging) as peer:
        with asking(peer) as connections:
            await asyncio.gather(*(connections.ask(post(), None) for _ in range(3)))
            async with asyncio.timeout(limit(3)):
                while peer.open > 1:
                    await connections.ask(post(), None)
                    await asyncio.sleep(0.01)
            assert len(peer.talks) == 3
            await until(lambda: peer.open == 0)
            assert (await connections.ask(post(), None)).status == 201
            await until(lambda: len(peer.ended) == 4)


@schemes
async def test_after_the_end_nothing_is_sent(scheme: str) -> None:
    """What is under way still gets its answer, over a connection that is not kept."""
    go_on = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await go_on.wait()
        await talk.say(CREATED)
        await talk.rest()

    async with serving(script, scheme) as peer:
        with asking(peer) as connections:
            task = asyncio.create_task(connections.ask(post(), None))
            await until(lambda: peer.talks)
            connections.close()
            go_on.set()
            assert (await task).status == 201
            with pytest.raises(ConnectionError, match="the connection is closed"):
                await connections.ask(post(), None)
            await until(lambda: peer.open == 0)


async def test_a_server_that_nobody_vouches_for_hears_nothing() -> None:
    """Not a byte of a write, whose token would be the server's then."""
    heard = []

    async def script(talk: Talk) -> None:
        heard.append(await talk.rest())

    async with serving(script, "https") as peer:
        connections = ConnectionPool(Route(peer.url), ssl.create_default_context(), 1)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connections.ask(post(), None)

    assert b"".join(heard) == b""


async def test_the_name_on_the_certificate_may_be_another_than_the_address() -> None:
    """It is said to the server and looked for in its certificate, as the address is without it."""
    said = []
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority().issue_cert("api.internal").configure_cert(tls)
    tls.sni_callback = lambda _socket, name, _context: said.append(name)
    async with serving(obliging, "https", tls=tls) as peer:
        with asking(peer, server_name="api.internal") as connections:
            assert (await connections.ask(post(), None)).status == 201
        for name in (None, "api.elsewhere"):
            with (
                asking(peer, server_name=name) as connections,
                pytest.raises(ssl.SSLCertVerificationError, match=name or "127.0.0.1"),
            ):
                await connections.ask(post(), None)

    assert said == ["api.internal", None, "api.elsewhere"]


async def test_an_address_of_ipv6_has_brackets() -> None:
    """One that the kernel takes to a server of IPv4, which every machine has."""
    async with serving(obliging, "https", tls=presenting("::ffff:127.0.0.1")) as peer:
        peer.url = peer.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")
        with asking(peer) as connections:
            assert (await connections.ask(post(), None)).status == 201


WRONG = [
    ("127.0.0.1:6443", None, "127.0.0.1:6443: an API server must speak HTTPS or HTTP"),
    ("localhost:6443", None, "localhost:6443: an API server must speak"),
    ("https://", None, "https://: an API server must speak"),
    ("https://api:port", None, "https://api:port: an API server must speak"),
    ("https://[::1", None, r"https://\[::1: an API server must speak"),
    ("https://api", "https://me:secret@proxy", "https://proxy: a proxy must speak HTTP"),
    ("https://api", "me:sec/ret@proxy:3128", "proxy:3128: a proxy must speak HTTP"),
    ("https://api", "socks5://proxy:1080", "socks5://proxy:1080: a proxy must speak HTTP"),
    ("https://api", "proxy:3128", "proxy:3128: a proxy must speak HTTP"),
    ("https://api", "http://proxy:99999", "http://proxy:99999: a proxy must speak HTTP"),
]


@pytest.mark.parametrize(("host", "proxy", "why"), WRONG, ids=[f"{host} {proxy}" for host, proxy, _ in WRONG])
def test_who_cannot_be_spoken_to_is_named_at_once(host: str, proxy: str | None, why: str) -> None:
    """One sentence with an example, and without a password."""
    with pytest.raises(ValueError, match=rf"^cannot speak to {why}.*\(example: http") as raised:
        ConnectionPool(Route(host, proxy=proxy), trusting(), 1)

    assert "sec" not in str(raised.value)
