"""The listener under small limits and short times. Its rules are the same as under the shipped limits."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace

import pytest
import trustme
from aiohttp import web

from gpu_scheduler.process.acceptor import HEALTH_LIMITS, SWEEPS, WEBHOOK_LIMITS
from gpu_scheduler.process.http_server import LONGEST_LINE, MOST_HEADERS, Listener
from gpu_scheduler.process.peer_connection import READ_AHEAD, ConnectionPhase, Limits, PeerConnection, WaitingPeers
from unit_tests.virtual import settle

LIMITS = Limits(served=4, served_per_address=3, handshakes=2, waiting=6, request_timeout=1.0, evictable_after=0.2)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Peers:
    """Connections to one listener, closed at the end."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self.port = port
        self._tls = tls
        self._made: list[asyncio.StreamWriter] = []

    async def connect(self, address: str = "127.0.0.1", *, tls: bool = True) -> Streams:
        context = self._tls if tls else None
        streams = await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            ssl=context,
            server_hostname="localhost" if context else None,
            local_addr=(address, 0),
        )
        self._made.append(streams[1])
        return streams

    async def begin(self, address: str = "127.0.0.1") -> Streams:
        """Connect, and send the first byte of a request."""
        streams = await self.connect(address)
        streams[1].write(GET[:1])
        # The age of connections decides which is evicted.
        await asyncio.sleep(0.02)
        return streams

    def close(self) -> None:
        for writer in self._made:
            writer.transport.abort()


class App:
    """An app that answers `/` at once, `/slow` when `finish` is set, and `/large` with more than any socket holds."""

    def __init__(self) -> None:
        self.finish = asyncio.Event()

    def made(self) -> web.Application:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(text="ok")

        async def slow(_: web.Request) -> web.Response:
            await self.finish.wait()
            return web.Response(text="ok")

        async def large(_: web.Request) -> web.Response:
            return web.Response(body=b"x" * 32_000_000)

        app = web.Application()
        app.router.add_route("*", "/", answer)
        app.router.add_get("/slow", slow)
        app.router.add_get("/large", large)
        return app


@asynccontextmanager
async def serving(limits: Limits = LIMITS, *, tls: bool = False) -> AsyncIterator[tuple[Peers, App]]:
    server = client = None
    if tls:
        authority = trustme.CA()
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
        authority.issue_cert("localhost").configure_cert(server)
        authority.configure_trust(client)
    app = App()
    async with Listener(
        app.made(), address="127.0.0.1", port=0, variable="HTTP_PORT", tls=server, limits=limits
    ) as listener:
        peers = Peers(listener.port, client)
        try:
            yield peers, app
        finally:
            peers.close()


async def ask(streams: Streams, request: bytes = GET) -> bytes:
    streams[1].write(request)
    head = await asyncio.wait_for(streams[0].readuntil(b"\r\n\r\n"), 5)
    length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
    await streams[0].readexactly(length)
    return head.partition(b"\r\n")[0]


async def closed(streams: Streams, within: float = 5) -> bool:
    with suppress(ConnectionError):
        try:
            async with asyncio.timeout(within):
                await streams[0].read()
        except TimeoutError:
            return False
    return True


async def closed_in_time(streams: Streams, began: float) -> bool:
    """Return whether the server closes the connection at the first check of deadlines after the request's time-out."""
    assert await closed(streams)
    took = round(asyncio.get_running_loop().time() - began, 6)
    return LIMITS.request_timeout <= took < LIMITS.request_timeout * (1 + 2 / SWEEPS)


FULL = {
    "its address has too many: its own oldest": (["127.0.0.2", *["127.0.0.1"] * 3], "127.0.0.1", 1),
    "all together have too many: the oldest": ([f"127.0.0.{number}" for number in range(2, 6)], "127.0.0.9", 0),
}


@pytest.mark.promise("serve-1", "serve-2")
@pytest.mark.parametrize(("begun", "late", "evicted"), FULL.values(), ids=FULL)
async def test_an_address_and_all_together_have_a_limit_of_connections(
    begun: list[str], late: str, evicted: int
) -> None:
    """A further connection evicts the one that was longest without a complete request, and no other."""
    async with serving() as (peers, _):
        connections = [await peers.begin(address) for address in begun]

        assert await ask(await peers.connect(late)) == b"HTTP/1.1 200 OK"

        assert await closed(connections.pop(evicted))
        for each in connections:
            assert await ask(each, GET[1:]) == b"HTTP/1.1 200 OK"


@pytest.mark.promise("serve-2")
@pytest.mark.parametrize("tls", [False, True])
async def test_a_slow_peer_outlives_those_of_an_address_with_more(tls: bool) -> None:  # noqa: FBT001 - a row
    """An API server that gets no processor for a moment is slow. Whatever it was about to send, it is not closed."""
    async with serving(replace(LIMITS, handshakes=3, request_timeout=60), tls=tls) as (peers, _):
        slow, *others = [await peers.connect(address, tls=False) for address in ("127.0.0.2", *["127.0.0.1"] * 8)]
        for streams in (slow, *others):
            # The first byte of a handshake, or of a request.
            streams[1].write(b"\x16" if tls else GET[:1])
            await asyncio.sleep(LIMITS.evictable_after)

        assert not await closed(slow, 0.01)


@pytest.mark.promise("serve-2")
async def test_slow_handshakes_outlive_those_of_an_address_that_holds_more_places() -> None:
    """An API server begins several in a burst. The attacker's address has few under way, and many that are complete."""
    limits = replace(LIMITS, served=9, served_per_address=6, handshakes=3, request_timeout=60)
    async with serving(limits, tls=True) as (peers, _):
        for _ in range(4):
            await peers.connect("127.0.0.2")
        slow = [await peers.connect(tls=False) for _ in range(2)]
        stalled = await peers.connect("127.0.0.2", tls=False)
        for streams in (*slow, stalled):
            streams[1].write(b"\x16")
            await asyncio.sleep(limits.evictable_after)

        assert await ask(await peers.connect("127.0.0.3")) == b"HTTP/1.1 200 OK"

        assert await closed(stalled)
        for streams in slow:
            assert not await closed(streams, 0.01)


async def test_a_peer_that_completes_requests_is_not_evicted() -> None:
    """An API server's connection is older than those of an attacker at its own address, and outlives them."""
    async with serving() as (peers, _):
        working = await peers.connect()
        for _ in range(8):
            idle = await peers.begin()
            await peers.begin()
            await asyncio.sleep(LIMITS.evictable_after)
            assert await ask(working) == b"HTTP/1.1 200 OK"
        assert not await closed(idle, 0.01)


@pytest.mark.promise("serve-2")
async def test_a_connection_between_two_requests_outlives_those_that_never_sent_one() -> None:
    """An API server without a processor for a moment keeps its connections; a create on a closed one would fail."""
    async with serving() as (peers, _):
        paused = await peers.connect()
        assert await ask(paused) == b"HTTP/1.1 200 OK"
        others = [await peers.begin(f"127.0.0.{number}") for number in range(2, 9)]

        assert await closed(others[0])
        assert await closed(others[1])

        assert await ask(paused) == b"HTTP/1.1 200 OK"


@pytest.mark.promise("serve-2")
async def test_connections_between_two_requests_lock_no_peer_out() -> None:
    """If all are, the one that has gone longest without a request is closed."""
    async with serving() as (peers, _):
        between = [await peers.connect(f"127.0.0.{number}") for number in range(2, 6)]
        for each in between:
            assert await ask(each) == b"HTTP/1.1 200 OK"

        assert await ask(await peers.connect()) == b"HTTP/1.1 200 OK"

        assert await closed(between[0])
        for each in between[1:]:
            assert await ask(each) == b"HTTP/1.1 200 OK"


async def test_a_request_that_is_being_answered_is_not_cut_short() -> None:
    """However many peers wait, and however long the answer takes."""
    async with serving() as (peers, app):
        asking = [await peers.connect() for _ in range(3)]
        answers = [asyncio.create_task(ask(each, GET.replace(b"/ ", b"/slow "))) for each in asking]
        await asyncio.sleep(2 * LIMITS.evictable_after)
        waiting = asyncio.create_task(ask(await peers.connect()))
        await asyncio.sleep(2 * LIMITS.evictable_after)
        assert not waiting.done()

        app.finish.set()

        assert await asyncio.gather(*answers, waiting) == [b"HTTP/1.1 200 OK"] * 4


async def test_no_connection_is_evicted_before_its_minimum_time() -> None:
    """Honest requests of one burst wait for each other and do not evict each other."""
    async with serving() as (peers, _):
        streams = [await peers.connect() for _ in range(6)]

        answers = await asyncio.gather(*(ask(each) for each in streams))

        assert answers == [b"HTTP/1.1 200 OK"] * 6


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nbody"],
    ids=["nothing", "part of a header", "part of a body"],
)
async def test_a_request_must_be_complete_in_time(sent: bytes) -> None:
    """A request that comes byte by byte has no more time than one that comes at once."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in sent:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    async with serving() as (peers, _):
        began = asyncio.get_running_loop().time()
        streams = await peers.connect()
        await drip(streams[1])
        assert await closed_in_time(streams, began)


async def test_a_tls_handshake_must_be_complete_in_time() -> None:
    """A peer that sends only the first byte is closed as others are."""
    async with serving(tls=True) as (peers, _):
        began = asyncio.get_running_loop().time()
        streams = await peers.connect(tls=False)
        streams[1].write(b"\x16\x03\x01")
        assert await closed_in_time(streams, began)


async def test_stalled_handshakes_lock_no_peer_out() -> None:
    """Their number is limited. A further handshake evicts the oldest."""
    async with serving(replace(LIMITS, request_timeout=60), tls=True) as (peers, _):
        for _ in range(6):
            stalled = await peers.connect(tls=False)
            stalled[1].write(b"\x16")
        assert await ask(await peers.connect("127.0.0.2")) == b"HTTP/1.1 200 OK"
        assert await ask(await peers.connect()) == b"HTTP/1.1 200 OK"


async def test_idle_peers_cost_a_socket_and_lock_no_peer_out() -> None:
    """They are not served. If there are too many, the oldest is closed."""
    async with serving(replace(LIMITS, request_timeout=60)) as (peers, _):
        idle = [await peers.connect() for _ in range(LIMITS.waiting + 3)]
        assert await ask(await peers.connect()) == b"HTTP/1.1 200 OK"
        for each in idle[:3]:
            assert await closed(each)
        assert await ask(idle[-1]) == b"HTTP/1.1 200 OK"


async def test_an_idle_peer_is_closed_when_descriptors_run_out() -> None:
    """A connection that cannot be accepted would keep the event loop busy for ever."""

    class Exhausted:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    listener = Listener(App().made(), address="127.0.0.1", port=0, variable="HTTP_PORT", limits=LIMITS)
    async with listener:
        streams = await asyncio.open_connection("127.0.0.1", listener.port)
        await settle()
        acceptor = listener._acceptor
        listening, acceptor._listening = acceptor._listening, Exhausted()  # type: ignore[assignment]
        acceptor._accept()
        acceptor._listening = listening
        assert await closed(streams, LIMITS.request_timeout / 2)
        streams[1].transport.abort()


async def test_idle_between_two_requests_is_no_fault() -> None:
    """An API server keeps its connections for 90 s. Each request has the full time."""
    async with serving() as (peers, _):
        streams = await peers.connect()
        for _ in range(2):
            assert await ask(streams) == b"HTTP/1.1 200 OK"
            await asyncio.sleep(LIMITS.request_timeout * 1.3)
        streams[1].write(GET[:5])
        assert not await closed(streams, LIMITS.request_timeout * 0.5)
        assert await closed(streams, LIMITS.request_timeout)


@pytest.mark.promise("serve-2")
async def test_the_first_request_has_the_full_time_too() -> None:
    """An API server opens connections in a burst, and uses some of them much later, each again in a burst."""
    async with serving(tls=True) as (peers, _):
        late, later = await peers.connect(), await peers.connect()
        await asyncio.sleep(LIMITS.request_timeout * 1.3)
        assert await ask(late) == b"HTTP/1.1 200 OK"
        later[1].write(GET[:5])
        assert not await closed(later, LIMITS.request_timeout * 0.5)
        assert await closed(later, LIMITS.request_timeout)


async def test_a_connection_that_is_never_used_is_closed_at_last() -> None:
    """Otherwise an attacker's would stay open for ever where slots are free."""
    async with serving(replace(LIMITS, idle_timeout=3.0), tls=True) as (peers, _):
        streams = await peers.connect()
        assert not await closed(streams, LIMITS.request_timeout * 1.5)
        assert await closed(streams)


async def test_an_answer_must_be_read_in_time() -> None:
    """A peer that requests much and reads nothing keeps the answer in our memory."""
    async with serving() as (peers, _):
        with socket.create_connection(("127.0.0.1", peers.port)) as sock:
            sock.sendall(GET.replace(b"/ ", b"/large "))
            await asyncio.sleep(LIMITS.request_timeout * 2)
            received = 0
            with suppress(ConnectionError):
                while chunk := sock.recv(1 << 20):
                    received += len(chunk)
            assert received < 32_000_000


async def test_requests_come_one_by_one() -> None:
    """Our clients send the next request after the answer. A peer that sends it before is closed."""
    async with serving() as (peers, _):
        streams = await peers.connect()
        streams[1].write(GET.replace(b"/ ", b"/slow "))
        await settle()
        streams[1].write(GET)
        assert await closed(streams)


@pytest.mark.parametrize(
    "head",
    [b"A: b\r\n" * (MOST_HEADERS + 1), b"A: " + b"x" * (LONGEST_LINE + 1) + b"\r\n", b"\x16\x03\x01\r\n"],
    ids=["too many headers", "a header too long", "not HTTP"],
)
async def test_a_header_is_bounded_and_a_bad_one_is_not_logged(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The answer is 400, and the connection is closed. Peers must not be able to fill the log."""
    with caplog.at_level(logging.DEBUG):
        async with serving() as (peers, _):
            streams = await peers.connect()
            status = await ask(streams, b"GET / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
            assert status == b"HTTP/1.0 400 Bad Request"
            assert await closed(streams)
    assert not [record for record in caplog.records if record.name == "aiohttp.server"]


async def test_evicted_connections_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One line for all connections of some seconds, with the address of most of them."""
    async with serving() as (peers, _):
        several = [await peers.begin("127.0.0.7"), await peers.begin("127.0.0.7"), await peers.begin()]
        for each in several:
            assert await closed(each)
        await asyncio.sleep(LIMITS.request_timeout)
    (line,) = [record for record in caplog.records if "no complete request" in record.message]
    assert line.__dict__["most_of"] == "127.0.0.7"


async def test_a_stop_does_not_wait_for_incomplete_requests() -> None:
    """A request that never ends does not delay a stop."""
    async with serving(replace(LIMITS, request_timeout=60)) as (peers, _):
        streams = await peers.begin()
        idle = await peers.connect()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 0.1
    assert await closed(streams)
    assert await closed(idle)


async def test_a_tls_connection_costs_little_memory() -> None:
    """The buffer that asyncio makes has 256 KiB. If asyncio renames the buffer, this test fails."""
    async with serving(tls=True) as (peers, _):
        _, writer = await peers.connect()
        assert await ask((_, writer)) == b"HTTP/1.1 200 OK"
        assert len(writer.transport._ssl_protocol._ssl_buffer) == READ_AHEAD  # type: ignore[attr-defined]


async def test_a_request_that_has_arrived_is_not_made_to_fail() -> None:
    """An API server may have sent it on the connection that was idle for longest."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = PeerConnection(ours, "127.0.0.1", ConnectionOwner(), LIMITS)
        connection.enter(ConnectionPhase.IDLE)
        later = asyncio.get_running_loop().time() + 2 * LIMITS.evictable_after
        assert connection.is_evictable(later)
        theirs.send(b"P")
        assert not connection.is_evictable(later)


@pytest.mark.promise("serve-2")
@pytest.mark.parametrize("limits", [WEBHOOK_LIMITS, HEALTH_LIMITS], ids=["webhook", "health"])
def test_requests_have_ten_seconds(limits: Limits) -> None:
    """To be complete, and again to be answered."""
    assert limits.request_timeout == 10.0


def test_sockets_fit_under_the_smallest_limit_that_runtimes_give() -> None:
    """1,024 descriptors: both servers full, and some left for the rest of the process."""
    sockets = sum(limits.served + limits.waiting for limits in (WEBHOOK_LIMITS, HEALTH_LIMITS))
    assert sockets <= 1024 - 100


class ConnectionOwner:
    def make_handler(self) -> web.RequestHandler:
        raise NotImplementedError

    def opened(self, connection: PeerConnection) -> None:
        raise NotImplementedError

    def lost(self, connection: PeerConnection) -> None:
        raise NotImplementedError


@contextmanager
def peers_at(*addresses: str) -> Iterator[list[PeerConnection]]:
    """Yield a connection of a peer at each address."""
    socks = [socket.socket() for _ in addresses]
    yield [PeerConnection(sock, at, ConnectionOwner(), LIMITS) for sock, at in zip(socks, addresses, strict=True)]
    for sock in socks:
        sock.close()


async def test_addresses_take_turns() -> None:
    """An address with many connections delays only its own connections. Of those, the newest is next."""
    waiting, taken = WaitingPeers(), []
    with peers_at(*["10.0.0.1"] * 5, "10.0.0.2") as (*many, one):
        for connection in (*many, one):
            waiting.enqueue(connection)

        while waiting.next_of_each_address():
            taken.append(waiting.next_of_each_address()[0])
            waiting.take(taken[-1])

        assert taken == [many[4], one, *many[3::-1]]
        assert len(waiting) == 0


@pytest.mark.promise("serve-2")
async def test_peers_that_have_sent_nothing_are_evicted_before_peers_in_a_queue() -> None:
    """If they are more than a quarter of those that wait. Otherwise the longest queue loses its oldest connection."""
    waiting = WaitingPeers()
    with peers_at("10.0.0.1", "10.0.0.2", *["10.0.0.1"] * 3) as (silent, other, *many):
        waiting.add(silent)
        for connection in many:
            assert waiting.first_to_evict() is silent
            waiting.enqueue(connection)

        waiting.enqueue(other)
        assert waiting.first_to_evict() is many[0]

        waiting.remove(many[0])
        waiting.remove(silent)
        assert waiting.first_to_evict() is many[1]
        assert set(waiting) == {other, many[1], many[2]}


@pytest.mark.promise("serve-2")
async def test_of_those_that_have_sent_nothing_the_address_with_most_is_evicted_first() -> None:
    """An API server that gets no processor for half a second has sent nothing, and is older than an attacker's."""
    waiting = WaitingPeers()
    with peers_at("10.0.0.2", "10.0.0.1", "10.0.0.1") as (slow, *many):
        for connection in (slow, *many):
            waiting.add(connection)

        assert waiting.first_to_evict() is many[0]

        waiting.remove(many[0])
        assert waiting.first_to_evict() is slow
