"""SIGTERM to webhook, controller and monitor: they finish what is in flight and end."""

from __future__ import annotations

import json
import signal
import socket
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests import objects
from tests.integration.command import Command
from tests.integration.faults.proxy import FaultProxy
from tests.integration.faults.proxy_faults import Delay, Fault
from tests.integration.faults.sigterm import NO_ANSWER, half_asked, stop
from tests.integration.monitored_node import LEASES, NAMESPACE, MonitoredNode, allow
from tests.integration.namespace import SYSTEM_NAMESPACE
from tests.integration.webhook_process import Webhook
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

    from tests.integration.control_plane import ControlPlane
    from tests.integration.workloads import Workloads


class Client:
    """A connection to the webhook, on which a request is sent in two halves."""

    def __init__(self, port: int, authority: trustme.CA) -> None:
        """Connect; ConnectionRefusedError if no process listens."""
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
        """Send the last byte; return the first chunk of the answer, which begins with the status line."""
        self._socket.sendall(self._request[-1:])
        return self._socket.recv(65536).decode()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


class Hook:
    """A process of the webhook and its clients."""

    def __init__(self, command: Command, port: int, authority: trustme.CA) -> None:
        """`authority` has issued the certificate of the webhook."""
        self.command = command
        self._port = port
        self._authority = authority
        self._clients: list[Client] = []

    def call(self) -> Client:
        """Open a connection."""
        client = Client(self._port, self._authority)
        self._clients.append(client)
        return client

    def end(self) -> None:
        """End the process and close the connections."""
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


def test_a_webhook_answers_old_and_new_requests_after_sigterm(hook: Hook) -> None:
    """While it drains, an old request and a new one are answered. Afterwards connections are refused."""
    early = hook.call()
    early.begin()
    hook.command.process.send(signal.SIGTERM)
    eventually("it is not ready", lambda: hook.command.get("/readyz")[0] == 503)
    late = hook.call()
    late.begin()
    for each in (late, early):
        answer = each.finish()
        assert answer.startswith("HTTP/1.1 200 ")
        assert '"allowed":true' in answer.replace(" ", "")
    assert hook.command.process.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        hook.call()


def test_a_webhook_does_not_wait_for_unfinished_requests(hook: Hook) -> None:
    """It ends in time with unfinished requests on both of its ports."""
    for _ in range(3):
        hook.call().begin()
    with half_asked(hook.command):
        stop(hook.command)


@pytest.fixture
def controller_behind_proxy(kinds: ControlPlane, tmp_path: Path) -> Iterator[tuple[Command, FaultProxy]]:
    """A controller that leads, behind a proxy."""
    proxy = FaultProxy(kinds, tmp_path)
    token = kinds.service_account_token(SYSTEM_NAMESPACE, "gpu-scheduler-controller")
    kubeconfig = kinds.kubeconfig(tmp_path / "kubeconfig", token, proxy.port)
    env = {"KUBERNETES_NAMESPACE": SYSTEM_NAMESPACE}
    command = Command(tmp_path, "controller-0", ["controller", "--kubeconfig", str(kubeconfig)], env)
    command.wait_ready()
    eventually("it leads", command.leads, seconds=20)
    yield command, proxy
    command.process.stop()
    proxy.close()


def test_a_controller_finishes_its_writes_in_flight(
    workloads: Workloads, controller_behind_proxy: tuple[Command, FaultProxy]
) -> None:
    """A create in flight at SIGTERM is finished. The pod of a later GPUWorkload is left to the successor."""
    command, proxy = controller_behind_proxy
    with proxy.breaking(Fault("POST", r"/pods$", Delay(1.5))) as fault:
        workloads.place("early")
        eventually("a pod is being created", lambda: fault.struck)
        command.process.send(signal.SIGTERM)
        # On a busy machine the process may read of the GPUWorkload before it runs the handler of the signal.
        eventually("it has the signal", lambda: command.logged("Stopping on a signal"))
        workloads.place("late")
        assert command.process.wait(60) == 0

    assert workloads.pods() == ["early-0"]
    assert command.logged("Released the lease")


def test_a_controller_that_gets_no_answer_ends_in_time(
    workloads: Workloads, controller_behind_proxy: tuple[Command, FaultProxy]
) -> None:
    """Neither its writes nor its renewals are answered."""
    command, proxy = controller_behind_proxy
    with ExitStack() as stack:
        faults = [
            stack.enter_context(proxy.breaking(Fault(verb, "/", NO_ANSWER, times=None))) for verb in ("POST", "PUT")
        ]
        workloads.place("train")
        eventually("nothing is answered", lambda: all(fault.struck for fault in faults))
        stop(command)


def test_a_monitor_that_gets_no_answer_ends_in_time(kinds: ControlPlane, workloads: Workloads, tmp_path: Path) -> None:
    """The API server is paused while the monitor writes its readings: no further one ends."""
    allow(kinds)
    workloads.namespace.node("node1")
    command = MonitoredNode(kinds, tmp_path, "node1").start()
    try:
        command.wait_ready()
        kinds.pause()
        try:
            eventually("it is not ready", lambda: command.get("/readyz")[0] == 503, seconds=60)
            stop(command)
        finally:
            kinds.resume()
    finally:
        command.process.stop()
        kinds.kube.delete(f"{LEASES}/node1")
        kinds.kube.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
