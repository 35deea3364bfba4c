"""A webhook that is slow, gone or not believed, and one that is asked again after another has changed the pod."""

from __future__ import annotations

import base64
import json
import signal
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from tests import objects
from tests.integration.command import Command
from tests.integration.served import CONFIGURATIONS, Served
from tests.objects import literal
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.bench import Bench
    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

TIMEOUT: Final = 2
"""Seconds that the API server waits for the webhook."""
SIDECAR: Final = "zz-sidecars"
"""Configurations are asked in the order of their names."""
EXTRA: Final[list[Object]] = [
    {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "none"}},
    {"op": "add", "path": "/spec/initContainers", "value": [{"name": "setup", "image": "none"}]},
]


def _hang(served: Served) -> None:
    served.command.process.send(signal.SIGSTOP)


def _speak(served: Served) -> None:
    served.command.process.send(signal.SIGCONT)


def _distrust(served: Served) -> None:
    served.trust(trustme.CA())


def _trust(served: Served) -> None:
    served.trust(served.authority)


def _expire(served: Served) -> None:
    _issue(served, datetime.now(UTC) - timedelta(minutes=1))
    # An API server looks at a certificate when it connects: with other authorities it connects anew.
    served.trust(served.authority, trustme.CA())


def _renew(served: Served) -> None:
    _issue(served, datetime.now(UTC) + timedelta(days=30))
    served.trust(served.authority)


def _issue(served: Served, ends: datetime) -> None:
    before = served.served_pairs()
    pair = served.authority.issue_cert("localhost", "127.0.0.1", not_after=ends)
    pair.private_key_pem.write_to_path(str(served.tls / "tls.key"))
    pair.cert_chain_pems[0].write_to_path(str(served.tls / "tls.crt"))
    eventually("it serves the new pair", lambda: served.serves_more_than(before))


FAULTS: Final[dict[str, tuple[Callable[[Served], None], Callable[[Served], None]]]] = {
    "slower than anybody waits": (_hang, _speak),
    "of another authority": (_distrust, _trust),
    "with a certificate that has expired": (_expire, _renew),
}


@pytest.mark.parametrize(("spoil", "mend"), FAULTS.values(), ids=FAULTS)
def test_a_webhook_that_does_not_answer_costs_our_pods_alone(
    calling: Bench, served: Served, spoil: Callable[[Served], None], mend: Callable[[Served], None]
) -> None:
    """F16. Ours are refused within the time-out and none slips by; others' pods pass; then all is as before."""
    spoil(served)
    try:
        eventually("ours are refused", lambda: _create(calling, _name())[0] == 500, seconds=20)
        began = time.monotonic()
        status, answer = _create(calling, "ours-0")
        assert (status, "failed calling webhook" in answer["message"]) == (500, True), answer
        assert time.monotonic() - began < TIMEOUT + limit(2)
        began = time.monotonic()
        calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")
        assert time.monotonic() - began < limit(TIMEOUT)
    finally:
        mend(served)
    eventually("ours pass again", lambda: _create(calling, _name())[0] == 201, seconds=20)
    status, answer = _create(calling, "after-0")
    assert (status, answer["spec"]["containers"][0]["env"]) == (201, literal("0")), answer
    eventually("it says that it is ready", lambda: served.command.get("/readyz")[0] == 200)


def test_an_expired_certificate_is_not_ready(calling: Bench, served: Served) -> None:
    """F16. Readiness tells the truth before anybody is refused for it; a new pair cures it, without a restart."""
    pid = served.command.process.pid
    _expire(served)
    try:
        eventually("it is not ready", lambda: served.command.get("/readyz")[0] == 503)
        assert "certificate" in served.command.get("/readyz")[1]
    finally:
        _renew(served)
    eventually("it is ready", lambda: served.command.get("/readyz")[0] == 200)
    assert served.command.process.pid == pid
    assert served.command.process.alive()


class Sidecars(BaseHTTPRequestHandler):
    """Somebody else's webhook, which adds a container and an init container where there is no sidecar yet."""

    def do_POST(self) -> None:
        """Answer a review."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = [each["name"] for each in review["request"]["object"]["spec"]["containers"]]
        answer: Object = {"uid": review["request"]["uid"], "allowed": True}
        if "sidecar" not in names:
            patch = base64.b64encode(json.dumps(EXTRA).encode()).decode("ascii")
            answer |= {"patchType": "JSONPatch", "patch": patch}
        data = json.dumps({**review, "response": answer}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def sidecars(plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """That webhook, registered after ours."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sidecars)
    server.socket = plane.serving_context(tmp_path / "sidecars").wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    webhook = {
        "name": "sidecars.example.com",
        "clientConfig": {
            "url": f"https://127.0.0.1:{server.server_port}/",
            "caBundle": base64.b64encode(plane.ca.read_bytes()).decode("ascii"),
        },
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "reinvocationPolicy": "IfNeeded",
    }
    path = f"{CONFIGURATIONS}/mutatingwebhookconfigurations"
    plane.kube.create(path, {"metadata": {"name": SIDECAR}, "webhooks": [webhook]})
    yield
    plane.kube.delete(f"{path}/{SIDECAR}")
    server.shutdown()
    server.server_close()


def test_containers_that_another_webhook_adds_are_injected_too(calling: Bench, served: Served, sidecars: None) -> None:
    """F17. Asked again after the other one, it gives every container the value exactly once."""
    eventually("the other one is asked", lambda: len(_containers(_create(calling, _name())[1])) == 3, seconds=20)

    status, answer = _create(calling, "train-0")

    assert status == 201, answer
    assert {each["name"]: each["env"] for each in _containers(answer)} == dict.fromkeys(
        ("main", "sidecar", "setup"), literal("0")
    )
    assert _create(calling, "refused-0", env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}])[0] == 403


def test_nobody_passes_a_webhook_that_is_gone(calling: Bench, served: Served, tmp_path: Path) -> None:
    """F16. Nobody listens: ours are refused at once, others' pods pass; the next process answers, by itself."""
    served.command.kill()
    eventually("ours are refused", lambda: _create(calling, _name())[0] == 500, seconds=20)
    calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")

    env = {"CERTIFICATE_DIR": str(served.tls), "WEBHOOK_PORT": str(served.port)}
    served.command = Command(tmp_path, "webhook-1", ["webhook"], env)
    served.command.wait_ready()
    eventually("ours pass again", lambda: _create(calling, _name())[0] == 201, seconds=20)
    status, answer = _create(calling, "after-0")
    assert (status, answer["spec"]["containers"][0]["env"]) == (201, literal("0")), answer


def _containers(body: Object) -> list[Object]:
    spec = body.get("spec", {})
    return [*spec.get("containers", []), *spec.get("initContainers", [])]


def _name() -> str:
    return f"probe{time.monotonic_ns()}-0"


def _create(bench: Bench, name: str, **container: object) -> tuple[int, Object]:
    containers = [{"name": "main", "image": objects.IMAGE, **container}]
    body = objects.pod(name, "0=node1:0\n", containers=containers)
    return bench.kube.call("POST", bench.pods, body)
