"""SIGTERM for whoever is no scheduler: webhook, controller and monitor end what they have begun, in five seconds."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import Command
from tests.integration.faults.acts import Delay, Fault
from tests.integration.faults.ending import LIMIT, NO_ANSWER, half_asked, stop
from tests.integration.faults.proxy import FaultProxy
from tests.integration.faults.replicas import QUICK, note
from tests.integration.served import Webhook
from tests.integration.watched import LEASES, NAMESPACE, Watched, allow
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

    from tests.integration.control_plane import ControlPlane
    from tests.integration.workshop import Orders


class Client:
    """A connection to the webhook, on which a request is sent in two halves."""

    def __init__(self, port: int, authority: trustme.CA) -> None:
        """Connect; ConnectionRefusedError where nobody listens."""
        context = ssl.create_default_context()
        authority.configure_trust(context)
        plain = socket.create_connection(("127.0.0.1", port), timeout=limit(10))
        self._socket = context.wrap_socket(plain, server_hostname="localhost")
        pod = objects.pod("train-0", "0=node1:0\n")
        kind = {"group": "", "version": "v1", "kind": "Pod"}
        request = {"uid": "a", "kind": kind, "operation": "CREATE", "namespace": "default", "object": pod}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        body = json.dumps(review).encode()
        head = f"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        self._request = f"{head}Content-Type: application/json\r\n\r\n".encode() + body

    def begin(self) -> None:
        """Send all but the last byte."""
        self._socket.sendall(self._request[:-1])

    def finish(self) -> str:
        """Send it; give the status line and all that came with it."""
        self._socket.sendall(self._request[-1:])
        return self._socket.recv(65536).decode()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Hook:
    """A webhook's process, and who calls it."""

    def __init__(self, command: Command, port: int, authority: trustme.CA) -> None:
        """It serves with a certificate of this authority."""
        self.command = command
        self._port = port
        self._authority = authority
        self._clients: list[Client] = []

    def call(self) -> Client:
        """Connect."""
        client = Client(self._port, self._authority)
        self._clients.append(client)
        return client

    def end(self) -> None:
        """End it and its callers."""
        self.command.process.stop()
        for client in self._clients:
            client.close()


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    """A webhook with its shipped times."""
    webhook = Webhook(tmp_path, ["webhook"], {})
    hook = Hook(webhook.command, webhook.port, webhook.authority)
    yield hook
    hook.end()


def test_a_webhook_answers_what_it_has_begun_and_what_still_comes(hook: Hook) -> None:
    """It drains for its shipped time: an old request and a new one are answered, and then nobody listens any more."""
    early = hook.call()
    early.begin()
    hook.command.process.send(signal.SIGTERM)
    told = time.monotonic()
    eventually("it is not ready", lambda: hook.command.get("/readyz")[0] == 503)
    late = hook.call()
    late.begin()
    for each in (late, early):
        answer = each.finish()
        assert answer.startswith("HTTP/1.1 200 ")
        assert '"allowed":true' in answer.replace(" ", "")
    assert hook.command.process.wait(10) == 0
    took = time.monotonic() - told

    note(f"the webhook ended {took:.2f} s after SIGTERM")
    assert took <= limit(LIMIT)
    with pytest.raises(ConnectionRefusedError):
        hook.call()


def test_a_webhook_waits_for_no_client_that_never_ends(hook: Hook) -> None:
    """Requests whose other half does not come, on both ports: it ends in time all the same."""
    for _ in range(3):
        hook.call().begin()
    with half_asked(hook.command):
        stop(hook.command)


@pytest.fixture
def foreman(kinds: ControlPlane, tmp_path: Path) -> Iterator[tuple[Command, FaultProxy]]:
    """A controller that leads, behind a proxy."""
    proxy = FaultProxy(kinds, tmp_path)
    token = kinds.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler-controller")
    kubeconfig = kinds.kubeconfig(tmp_path / "kubeconfig", token, proxy.port)
    env = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE, **QUICK.env}
    command = Command(tmp_path, "controller-0", ["controller", "--kubeconfig", str(kubeconfig)], env)
    command.wait_ready()
    eventually("it leads", command.leads, seconds=20)
    yield command, proxy
    command.process.stop()
    proxy.close()


def test_a_controller_ends_what_it_writes(orders: Orders, foreman: tuple[Command, FaultProxy]) -> None:
    """A pod that is being made when SIGTERM comes is made; what was ordered after that is left to the successor."""
    command, proxy = foreman
    with proxy.breaking(Fault("POST", r"/pods$", Delay(1.5))) as fault:
        orders.place("early")
        eventually("a pod is being made", lambda: fault.struck)
        command.process.send(signal.SIGTERM)
        told = time.monotonic()
        orders.place("late")
        assert command.process.wait(10) == 0
        took = time.monotonic() - told

    note(f"the controller ended {took:.2f} s after SIGTERM")
    assert took <= limit(LIMIT)
    assert orders.pods() == ["early-0"]
    assert command.said("Released the lease")


def test_a_controller_that_gets_no_answer_ends_in_time(orders: Orders, foreman: tuple[Command, FaultProxy]) -> None:
    """Neither what it writes nor its lease is answered."""
    command, proxy = foreman
    with ExitStack() as stack:
        faults = [
            stack.enter_context(proxy.breaking(Fault(verb, "/", NO_ANSWER, times=None))) for verb in ("POST", "PUT")
        ]
        orders.place("train")
        eventually("nothing is answered", lambda: all(fault.struck for fault in faults))
        stop(command)


def test_a_monitor_that_gets_no_answer_ends_in_time(kinds: ControlPlane, orders: Orders, tmp_path: Path) -> None:
    """The API server holds its breath while it writes what it read."""
    allow(kinds)
    orders.bench.node("node1")
    command = Watched(kinds, tmp_path, "node1").start()
    try:
        command.wait_ready()
        kinds.pause()
        try:
            time.sleep(1)
            stop(command)
        finally:
            kinds.resume()
    finally:
        command.process.stop()
        kinds.kube.delete(f"{LEASES}/node1")
        kinds.kube.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
