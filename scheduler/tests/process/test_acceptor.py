"""The listener under small limits and short times: what peers may do is the same as with the shipped ones."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import trustme
from aiohttp import web
from structlog.testing import capture_logs

from gpu_scheduler.process.acceptor import HEALTH_LIMITS, WEBHOOK_LIMITS
from gpu_scheduler.process.http_server import LONGEST_LINE, MOST_HEADERS, Listener
from gpu_scheduler.process.peer_connection import READ_AHEAD, Limits, PeerConnection, Phase
from gpu_scheduler.process.waiting_peers import Waiting

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
        # The order of connections is part of some promises.
        await asyncio.sleep(0.02)
        return streams

    def close(self) -> None:
        for writer in self._made:
            writer.transport.abort()


class App:
    """`/` is answered at once, `/slow` when told, `/large` with more than any socket holds."""

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
    """A listener and its peers."""
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
    """Send a request; give the status line."""
    streams[1].write(request)
    head = await asyncio.wait_for(streams[0].readuntil(b"\r\n\r\n"), 5)
    length = next(int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: "))
    await streams[0].readexactly(length)
    return head.partition(b"\r\n")[0]


async def closed(streams: Streams, within: float = 5) -> bool:
    """Whether the server closes the connection in time."""
    with suppress(ConnectionError):
        try:
            async with asyncio.timeout(within):
                await streams[0].read()
        except TimeoutError:
            return False
    return True


async def test_an_address_has_so_many_places() -> None:
    """The next one of that address takes the place of its oldest; nobody else's."""
    async with serving() as (peers, _):
        other = await peers.begin("127.0.0.2")
        first, second, third = [await peers.begin() for _ in range(3)]
        fourth = await peers.connect()

        assert await ask(fourth) == b"HTTP/1.1 200 OK"

        assert await closed(first)
        for each in (other, second, third):
            assert await ask(each, GET[1:]) == b"HTTP/1.1 200 OK"


async def test_all_together_have_so_many_places() -> None:
    """Whoever comes then, from whatever address, takes the place that was longest without a complete request."""
    async with serving() as (peers, _):
        begun = [await peers.begin(f"127.0.0.{number}") for number in range(2, 6)]
        late = await peers.connect("127.0.0.9")

        assert await ask(late) == b"HTTP/1.1 200 OK"

        assert await closed(begun[0])
        for each in begun[1:]:
            assert await ask(each, GET[1:]) == b"HTTP/1.1 200 OK"


async def test_who_completes_requests_keeps_his_place() -> None:
    """An API server's connection is older than those of an attacker at its own address, and outlives them."""
    async with serving() as (peers, _):
        working = await peers.connect()
        for _ in range(8):
            idle = await peers.begin()
            await peers.begin()
            await asyncio.sleep(LIMITS.evictable_after)
            assert await ask(working) == b"HTTP/1.1 200 OK"
        assert not await closed(idle, 0)


async def test_a_request_that_is_being_answered_is_not_cut_short() -> None:
    """However many wait, and however long it takes."""
    async with serving() as (peers, app):
        asking = [await peers.connect() for _ in range(3)]
        answers = [asyncio.create_task(ask(each, GET.replace(b"/ ", b"/slow "))) for each in asking]
        await asyncio.sleep(2 * LIMITS.evictable_after)
        waiting = asyncio.create_task(ask(await peers.connect()))
        await asyncio.sleep(2 * LIMITS.evictable_after)
        assert not waiting.done()

        app.finish.set()

        assert await asyncio.gather(*answers, waiting) == [b"HTTP/1.1 200 OK"] * 4


async def test_nobody_gives_way_before_he_had_a_chance() -> None:
    """A burst of honest requests waits for places instead of cutting one another."""
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
    """Byte by byte it takes no longer than all at once."""

    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in sent:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)

    async with serving() as (peers, _):
        streams = await peers.connect()
        await drip(streams[1])
        assert await closed(streams, LIMITS.request_timeout * 2)


async def test_a_tls_handshake_must_be_complete_in_time() -> None:
    """Whoever sends its first byte and no more is closed as others are."""
    async with serving(tls=True) as (peers, _):
        streams = await peers.connect(tls=False)
        streams[1].write(b"\x16\x03\x01")
        assert await closed(streams, LIMITS.request_timeout * 2)


async def test_handshakes_that_stall_lock_nobody_out() -> None:
    """So many are under way at once; the next takes the place of the oldest."""
    async with serving(replace(LIMITS, request_timeout=60), tls=True) as (peers, _):
        for _ in range(6):
            stalled = await peers.connect(tls=False)
            stalled[1].write(b"\x16")
        assert await ask(await peers.connect("127.0.0.2")) == b"HTTP/1.1 200 OK"
        assert await ask(await peers.connect()) == b"HTTP/1.1 200 OK"


async def test_silent_peers_cost_a_socket_and_lock_nobody_out() -> None:
    """They have no place; of too many the oldest goes."""
    async with serving(replace(LIMITS, request_timeout=60)) as (peers, _):
        silent = [await peers.connect() for _ in range(LIMITS.waiting + 3)]
        assert await ask(await peers.connect()) == b"HTTP/1.1 200 OK"
        for each in silent[:3]:
            assert await closed(each)
        assert await ask(silent[-1]) == b"HTTP/1.1 200 OK"


async def test_where_descriptors_run_out_a_silent_peer_gives_way() -> None:
    """The connection that nobody can accept would keep the loop awake for ever."""

    class Exhausted:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

    listener = Listener(App().made(), address="127.0.0.1", port=0, variable="HTTP_PORT", limits=LIMITS)
    async with listener:
        streams = await asyncio.open_connection("127.0.0.1", listener.port)
        await asyncio.sleep(0.1)
        acceptor = listener._acceptor
        listening, acceptor._listening = acceptor._listening, Exhausted()  # type: ignore[assignment]
        acceptor._accept()
        acceptor._listening = listening
        assert await closed(streams, LIMITS.request_timeout / 2)
        streams[1].transport.abort()


async def test_idle_between_two_requests_is_no_fault() -> None:
    """An API server keeps its connections for 90 s; the next request has time of its own."""
    async with serving() as (peers, _):
        streams = await peers.connect()
        for _ in range(2):
            assert await ask(streams) == b"HTTP/1.1 200 OK"
            await asyncio.sleep(LIMITS.request_timeout * 1.3)
        streams[1].write(GET[:5])
        assert not await closed(streams, LIMITS.request_timeout * 0.5)
        assert await closed(streams, LIMITS.request_timeout)


async def test_an_answer_must_be_read_in_time() -> None:
    """A peer that asks for much and reads nothing keeps it in our memory."""
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
    """Nobody who asks us sends the next before the answer; who does is closed."""
    async with serving() as (peers, _):
        streams = await peers.connect()
        streams[1].write(GET.replace(b"/ ", b"/slow "))
        await asyncio.sleep(0.1)
        streams[1].write(GET)
        assert await closed(streams)


@pytest.mark.parametrize(
    "head",
    [b"A: b\r\n" * (MOST_HEADERS + 1), b"A: " + b"x" * (LONGEST_LINE + 1) + b"\r\n", b"\x16\x03\x01\r\n"],
    ids=["too many headers", "a header too long", "no HTTP"],
)
async def test_a_header_is_bounded_and_a_bad_one_is_not_logged(head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """400, and the connection is closed; a log that peers can fill is no log."""
    with caplog.at_level(logging.DEBUG):
        async with serving() as (peers, _):
            streams = await peers.connect()
            status = await ask(streams, b"GET / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
            assert status == b"HTTP/1.0 400 Bad Request"
            assert await closed(streams)
    assert not [record for record in caplog.records if record.name == "aiohttp.server"]


async def test_what_is_sent_away_is_told_once() -> None:
    """One line for all of some seconds, with the address that most of them came from."""
    with capture_logs() as lines:
        async with serving() as (peers, _):
            several = [await peers.begin("127.0.0.7"), await peers.begin("127.0.0.7"), await peers.begin()]
            for each in several:
                assert await closed(each)
            await asyncio.sleep(LIMITS.request_timeout)
    (told,) = [line for line in lines if "no complete request" in line["event"]]
    assert told["most_of"] == "127.0.0.7"


async def test_the_end_waits_for_nobody_who_has_not_asked() -> None:
    """A request that never ends does not hold up a stop; one that is being answered gets its answer."""
    async with serving(replace(LIMITS, request_timeout=60)) as (peers, _):
        streams = await peers.begin()
        silent = await peers.connect()
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 2
    assert await closed(streams)
    assert await closed(silent)


async def test_a_tls_connection_costs_little_memory() -> None:
    """The buffer that asyncio makes has 256 KiB; a library that names it otherwise is noticed here."""
    async with serving(tls=True) as (peers, _):
        _, writer = await peers.connect()
        assert await ask((_, writer)) == b"HTTP/1.1 200 OK"
        assert len(writer.transport._ssl_protocol._ssl_buffer) == READ_AHEAD  # type: ignore[attr-defined]


async def test_a_request_that_has_arrived_is_not_made_to_fail() -> None:
    """An API server may have sent it on the connection that was idle for longest."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = PeerConnection(ours, "127.0.0.1", Owner(), LIMITS)
        connection.enter(Phase.IDLE)
        later = asyncio.get_running_loop().time() + 2 * LIMITS.evictable_after
        assert connection.is_evictable(later)
        theirs.send(b"P")
        assert not connection.is_evictable(later)


def test_sockets_fit_under_the_smallest_limit_that_runtimes_give() -> None:
    """1,024 descriptors: both servers full, and some left for the rest of the process."""
    sockets = sum(limits.served + limits.waiting for limits in (WEBHOOK_LIMITS, HEALTH_LIMITS))
    assert sockets <= 1024 - 100


class Owner:
    """Nobody."""

    def make_handler(self) -> web.RequestHandler:
        raise NotImplementedError

    def opened(self, connection: PeerConnection) -> None:
        raise NotImplementedError

    def lost(self, connection: PeerConnection) -> None:
        raise NotImplementedError


async def test_addresses_take_turns() -> None:
    """One that opens a hundred connections waits behind its own, and others do not; of its own the newest is next."""
    waiting = Waiting()
    socks = [socket.socket() for _ in range(6)]
    many = [PeerConnection(sock, "10.0.0.1", Owner(), LIMITS) for sock in socks[:5]]
    one = PeerConnection(socks[5], "10.0.0.2", Owner(), LIMITS)
    for connection in (*many, one):
        waiting.enqueue(connection)

    taken = []
    while waiting.turns():
        taken.append(waiting.turns()[0])
        waiting.take(taken[-1])

    assert taken == [many[4], one, *many[3::-1]]
    assert len(waiting) == 0
    for sock in socks:
        sock.close()


async def test_of_too_many_that_wait_the_larger_group_gives_way() -> None:
    """The silent, or the address that has most in the queue."""
    waiting = Waiting()
    socks = [socket.socket() for _ in range(4)]
    silent, first, second, third = (PeerConnection(sock, "10.0.0.1", Owner(), LIMITS) for sock in socks)
    waiting.add(silent)
    waiting.enqueue(first)
    assert waiting.crowding() is silent
    waiting.enqueue(second)
    assert waiting.crowding() is first
    waiting.remove(first)
    waiting.enqueue(third)
    waiting.remove(second)
    assert set(waiting) == {silent, third}
    for sock in socks:
        sock.close()
