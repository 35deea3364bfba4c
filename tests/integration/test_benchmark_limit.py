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
from tests.waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN: Final = "a-token"  # noqa: S105 - opens nothing
PODS: Final = "/api/v1/namespaces/one/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/one/events"
CREATED: Final = 201
CLOSE_NOTICED: Final = {"curl": 1.2, "aiohttp": 0.1, "go": 0.1}
"""Seconds until a client notices a closed connection. libcurl checks for them once a second."""
BREAK: Final = 0
"""Instead of a status: the server closes the connection without an answer."""


class Server(ThreadingHTTPServer):
    """A server that accepts the requests of an API server and records them."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.crt"
        authority.cert_pem.write_to_path(str(self.ca))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        # A client that offers HTTP/2 would get it, and fail: this server speaks HTTP/1.1 only.
        context.set_alpn_protocols(["h2", "http/1.1"])
        super().__init__(("127.0.0.1", 0), Handler)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.lock = threading.Lock()
        self.answers: dict[str, int] = {}
        """Request body → the status of its answer, if that is not CREATED."""
        self.together = threading.Barrier(1)
        """The first requests, as many as it has parties, are answered when all of them have arrived."""
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
        """Record a request. The first requests wait for each other (`together`)."""
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
            self.together.wait(limit(10))
        # The scenario: how long the server takes for an answer.
        time.sleep(0.002)

    def leave(self, body: str) -> int:
        """Record the answer. Return its status."""
        with self.lock:
            self.here -= 1
            self.answered.add(body)
            return self.answers.get(body, CREATED)

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self.open:
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log no error of a closed connection."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1
            self.server.open.append(self.connection)

    def do_GET(self) -> None:
        self._answer(200 if self.path == prepared_requests.VERSION_PATH else 404)

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
        """Log nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def pod(name: str, *, reported: bool = True) -> prepared_requests.PreparedPod:
    event = prepared_requests.Request(EVENTS, f"event {name}") if reported else None
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
def test_each_prepared_request_is_sent_once(client: str, server: Server, tmp_path: Path) -> None:
    """Over 8 persistent connections, each event after its bind, and no request before `go`."""
    given = [pod(f"p{number}", reported=number % 5 > 0) for number in range(40)]
    server.together = threading.Barrier(8)
    with generating(client, server, tmp_path, given, 8) as generator:
        generator.wait_ready()
        assert (server.connections, server.taken) == (8, [])
        generator.go()
        load_report = generator.wait(limit(30))
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
    """Refusals are counted, and the run continues. Events of bound pods are sent before new binds."""
    server.answers = {"bind taken": 409, "event told": 403}
    given = [pod("taken"), pod("told"), pod("free"), pod("silent", reported=False)]
    with generating(client, server, tmp_path, given, 1) as generator:
        generator.wait_ready()
        generator.go()
        load_report = generator.wait(limit(30))
    assert server.taken == ["bind taken", "bind told", "event told", "bind free", "event free", "bind silent"]
    assert (load_report.sent, load_report.statuses) == (6, {"201": 4, "403": 1, "409": 1})
    assert load_report.to_last_bind == load_report.seconds


@pytest.mark.parametrize("client", CLIENTS)
def test_idle_connections_may_be_closed(client: str, server: Server, tmp_path: Path) -> None:
    """A connection that is closed before `go` is opened again."""
    with generating(client, server, tmp_path, [pod("one"), pod("two")], 2) as generator:
        generator.wait_ready()
        server.hang_up()
        # The client under test reports nothing that could be waited for.
        time.sleep(CLOSE_NOTICED[client])
        generator.go()
        assert generator.wait(limit(30)).statuses == {"201": 4}
    assert server.connections == 4


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broken_connection_ends_the_run(client: str, server: Server, tmp_path: Path) -> None:
    """No client repeats a request by itself: the server may have executed it."""
    server.answers = {"bind lost": BREAK}
    with generating(client, server, tmp_path, [pod("first"), pod("lost"), pod("last")], 1) as generator:
        generator.wait_ready()
        generator.go()
        with pytest.raises(RuntimeError, match=r"ended with 1: cannot measure: .*, and each must last to the end\Z"):
            generator.wait(limit(30))
    assert server.taken == ["bind first", "event first", "bind lost"]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_authority_is_refused(client: str, server: Server, tmp_path: Path) -> None:
    """The token is sent to the API server only. A server with a certificate of another CA gets no request."""
    trustme.CA().cert_pem.write_to_path(str(server.ca))
    with (
        generating(client, server, tmp_path, [pod("one")], 1) as generator,
        pytest.raises(RuntimeError, match=r"ended with 1: cannot measure: .*(?i:certificate)"),
    ):
        generator.wait_ready()
    assert server.taken == []


@pytest.mark.parametrize("client", CLIENTS)
def test_another_answer_than_expected_ends_the_run(client: str, server: Server, tmp_path: Path) -> None:
    """If /version has another status than expected, it is not the API server, and no other request is sent."""
    with (
        generating(client, server, tmp_path, [pod("one")], 1, welcome=404) as generator,
        pytest.raises(RuntimeError, match="cannot begin: /version was answered with 200 and must be with 404"),
    ):
        generator.wait_ready()
    assert server.taken == []


@pytest.mark.parametrize("client", CLIENTS)
def test_prepared_requests_are_checked_before_the_start(client: str, server: Server, tmp_path: Path) -> None:
    """Zero requests in flight are refused."""
    with (
        generating(client, server, tmp_path, [pod("one")], 0) as generator,
        pytest.raises(RuntimeError, match=r"ended with 1: cannot read .*prepared_requests.jsonl.*in_flight"),
    ):
        generator.wait_ready()
    assert server.connections == 0


def test_a_client_that_cannot_start_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the known clients or the missing tool."""
    with pytest.raises(ValueError, match="cannot generate load with 'wget': it must be one of curl, aiohttp, go"):
        LoadGenerator("wget", tmp_path / "prepared_requests.jsonl", tmp_path / "generator.log")
    monkeypatch.setattr(load_generator, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="cannot build the load generator: no Go is there"):
        LoadGenerator("go", tmp_path / "prepared_requests.jsonl", tmp_path / "generator.log")
