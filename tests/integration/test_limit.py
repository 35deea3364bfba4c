from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from bench.contenders import load_generator, prepared_requests
from bench.contenders.load_generator import CLIENTS, LoadGenerator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN: Final = "a-token"  # noqa: S105 - opens nothing
PODS: Final = "/api/v1/namespaces/one/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/one/events"
CREATED: Final = 201
HEARS: Final = {"curl": 1.2, "aiohttp": 0.1, "go": 0.1}
"""Seconds until a client has heard of a closed connection: libcurl looks for such ones once a second."""
BREAK: Final = 0
"""In place of a status: the connection ends without an answer."""


class Server(ThreadingHTTPServer):
    """Takes what an API server takes, and remembers it."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.crt"
        authority.cert_pem.write_to_path(str(self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        # Who can speak HTTP/2 would be taken at their word here, and fail.
        context.set_alpn_protocols(["h2", "http/1.1"])
        super().__init__(("127.0.0.1", 0), Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.lock = threading.Lock()
        self.answers: dict[str, int] = {}
        """By body, where it is not success."""
        self.together = threading.Barrier(1)
        """So many requests are answered only when all of them are there."""
        self.waited = 0
        self.connections = 0
        self.open: list[socket.socket] = []
        self.tokens: set[str] = set()
        self.paths: dict[str, str] = {}
        self.taken: list[str] = []
        self.answered: set[str] = set()
        self.early: list[str] = []
        self.here = 0
        self.most = 0

    def come(self, path: str, body: str, token: str) -> None:
        """Note a request; the first ones wait for each other."""
        with self.lock:
            self.tokens.add(token)
            self.paths[body] = path
            self.taken.append(body)
            if body.startswith("event") and body.replace("event", "bind") not in self.answered:
                self.early.append(body)
            self.here += 1
            self.most = max(self.most, self.here)
            self.waited += 1
            waits = self.waited <= self.together.parties
        if waits:
            self.together.wait(10)
        time.sleep(0.002)

    def leave(self, body: str) -> int:
        """Note that it is answered, and tell with what."""
        with self.lock:
            self.here -= 1
            self.answered.add(body)
            return self.answers.get(body, CREATED)

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self.open:
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that go."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1
            self.server.open.append(self.connection)

    def do_GET(self) -> None:
        self._answer(200 if self.path == prepared_requests.HELLO else 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.come(self.path, body, self.headers["Authorization"])
        status = self.server.leave(body)
        if status == BREAK:
            self.close_connection = True
        else:
            self._answer(status)

    def _answer(self, status: int) -> None:
        self.wfile.write(f"HTTP/1.1 {status} Answered\r\nContent-Length: 2\r\n\r\n{{}}".encode())

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def pod(name: str, *, told: bool = True) -> prepared_requests.PreparedPod:
    event = prepared_requests.Request(EVENTS, f"event {name}") if told else None
    return prepared_requests.PreparedPod(prepared_requests.Request(f"{PODS}/{name}/binding", f"bind {name}"), event)


@contextmanager
def generating(
    client: str, server: Server, folder: Path, given: list[prepared_requests.PreparedPod], in_flight: int, **more: int
) -> Iterator[LoadGenerator]:
    path = folder / "prepared_requests.jsonl"
    address = f"https://127.0.0.1:{server.server_address[1]}"
    prepared_requests.write(path, prepared_requests.Header(address, str(server.ca), TOKEN, in_flight, **more), given)
    generator = LoadGenerator(client, path, folder / "generator.log")
    try:
        yield generator
    finally:
        generator.stop()


@pytest.mark.parametrize("client", CLIENTS)
def test_each_order_is_sent_once(client: str, server: Server, tmp_path: Path) -> None:
    """Over so many kept connections, the event after its bind, and nothing before the word is given."""
    given = [pod(f"p{number}", told=number % 5 > 0) for number in range(40)]
    server.together = threading.Barrier(8)
    with generating(client, server, tmp_path, given, 8) as generator:
        generator.wait_ready()
        assert (server.connections, server.taken) == (8, [])
        generator.go()
        load_report = generator.wait(30)
    events = {order.event.body: order.event.path for order in given if order.event}
    assert server.paths == {order.bind.body: order.bind.path for order in given} | events
    assert set(Counter(server.taken).values()) == {1}
    assert server.early == []
    assert server.tokens == {f"Bearer {TOKEN}"}
    assert (server.connections, server.most) == (8, 8)
    assert (load_report.sent, load_report.statuses, load_report.in_flight) == (72, {"201": 72}, 8)
    assert 0 < load_report.to_last_bind <= load_report.seconds
    assert load_report.cpu > 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_pod_has_no_event(client: str, server: Server, tmp_path: Path) -> None:
    """Refusals are counted and all else goes on; ready events go before new binds."""
    server.answers = {"bind taken": 409, "event told": 403}
    given = [pod("taken"), pod("told"), pod("free"), pod("silent", told=False)]
    with generating(client, server, tmp_path, given, 1) as generator:
        generator.wait_ready()
        generator.go()
        load_report = generator.wait(30)
    assert server.taken == ["bind taken", "bind told", "event told", "bind free", "event free", "bind silent"]
    assert (load_report.sent, load_report.statuses) == (6, {"201": 4, "403": 1, "409": 1})
    assert load_report.to_last_bind == load_report.seconds


@pytest.mark.parametrize("client", CLIENTS)
def test_idle_connections_may_be_closed(client: str, server: Server, tmp_path: Path) -> None:
    """Before the word is given nothing is lost with a connection: it is opened again."""
    with generating(client, server, tmp_path, [pod("one"), pod("two")], 2) as generator:
        generator.wait_ready()
        server.hang_up()
        time.sleep(HEARS[client])
        generator.go()
        assert generator.wait(30).statuses == {"201": 4}
    assert server.connections == 4


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broken_connection_is_the_end(client: str, server: Server, tmp_path: Path) -> None:
    """No client sends a second time behind our back: the order may have been carried out."""
    server.answers = {"bind lost": BREAK}
    with generating(client, server, tmp_path, [pod("first"), pod("lost"), pod("last")], 1) as generator:
        generator.wait_ready()
        generator.go()
        with pytest.raises(RuntimeError, match=r"ended with 1: cannot measure: .*, and each must last to the end\Z"):
            generator.wait(30)
    assert server.taken == ["bind first", "event first", "bind lost"]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_authority_is_refused(client: str, server: Server, tmp_path: Path) -> None:
    """The token goes to the API server alone: whoever has another CA's certificate is not greeted."""
    trustme.CA().cert_pem.write_to_path(str(server.ca))
    with (
        generating(client, server, tmp_path, [pod("one")], 1) as generator,
        pytest.raises(RuntimeError, match=r"ended with 1: cannot measure: .*(?i:certificate)"),
    ):
        generator.wait_ready()
    assert server.taken == []


@pytest.mark.parametrize("client", CLIENTS)
def test_a_greeting_is_answered_as_expected(client: str, server: Server, tmp_path: Path) -> None:
    """Whoever answers otherwise is somebody else, and gets no orders."""
    with (
        generating(client, server, tmp_path, [pod("one")], 1, welcome=404) as generator,
        pytest.raises(RuntimeError, match="cannot begin: /version was answered with 200 and must be with 404"),
    ):
        generator.wait_ready()
    assert server.taken == []


@pytest.mark.parametrize("client", CLIENTS)
def test_orders_are_checked_before_the_start(client: str, server: Server, tmp_path: Path) -> None:
    """Nothing is in flight with no place to be in."""
    with (
        generating(client, server, tmp_path, [pod("one")], 0) as generator,
        pytest.raises(RuntimeError, match=r"ended with 1: cannot read .*prepared_requests.jsonl.*in_flight"),
    ):
        generator.wait_ready()
    assert server.connections == 0


def test_what_cannot_be_started_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By names: the clients that there are, and the tools that are missing."""
    with pytest.raises(ValueError, match="cannot generate load with 'wget': it must be one of curl, aiohttp, go"):
        LoadGenerator("wget", tmp_path / "prepared_requests.jsonl", tmp_path / "generator.log")
    monkeypatch.setattr(load_generator, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="cannot build the load generator: no Go is there"):
        LoadGenerator("go", tmp_path / "prepared_requests.jsonl", tmp_path / "generator.log")
