"""A webhook that is slow, stopped or untrusted, and one that is called again after another webhook's change."""

from __future__ import annotations

import signal
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest
import trustme

from tests import objects
from tests.integration.command import Command
from tests.integration.other_webhook import registered_after_ours
from tests.objects import literal
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.integration.namespace import Namespace
    from tests.integration.webhook_process import RegisteredWebhook
    from tests.objects import Object

EXTRA: Final[list[Object]] = [
    {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "none"}},
    {"op": "add", "path": "/spec/initContainers", "value": [{"name": "setup", "image": "none"}]},
]


def _hang(registered: RegisteredWebhook) -> None:
    registered.command.process.send(signal.SIGSTOP)


def _serve(registered: RegisteredWebhook) -> None:
    registered.command.process.send(signal.SIGCONT)


def _distrust(registered: RegisteredWebhook) -> None:
    registered.trust(trustme.CA())


def _trust(registered: RegisteredWebhook) -> None:
    registered.trust(registered.authority)


def _expire(registered: RegisteredWebhook) -> None:
    _issue(registered, datetime.now(UTC) - timedelta(minutes=1))
    # An API server checks a certificate when it connects. With another caBundle it connects again.
    registered.trust(registered.authority, trustme.CA())


def _renew(registered: RegisteredWebhook) -> None:
    _issue(registered, datetime.now(UTC) + timedelta(days=30))
    registered.trust(registered.authority)


def _issue(registered: RegisteredWebhook, ends: datetime) -> None:
    before = registered.served_pairs()
    pair = registered.authority.issue_cert("localhost", "127.0.0.1", not_after=ends)
    pair.private_key_pem.write_to_path(str(registered.tls / "tls.key"))
    pair.cert_chain_pems[0].write_to_path(str(registered.tls / "tls.crt"))
    eventually("it serves the new pair", lambda: registered.serves_more_than(before))


FAULTS: Final[dict[str, tuple[Callable[[RegisteredWebhook], None], Callable[[RegisteredWebhook], None]]]] = {
    "slower than the time-out": (_hang, _serve),
    "with a certificate of another authority": (_distrust, _trust),
    "with a certificate that has expired": (_expire, _renew),
}


@pytest.mark.parametrize(("damage", "restore"), FAULTS.values(), ids=FAULTS)
def test_a_webhook_that_does_not_answer_affects_our_pods_only(
    calling: Namespace,
    registered: RegisteredWebhook,
    damage: Callable[[RegisteredWebhook], None],
    restore: Callable[[RegisteredWebhook], None],
) -> None:
    """F16. Our pods are refused, other pods are admitted. Later our pods are admitted again."""
    damage(registered)
    try:
        eventually("ours are refused", lambda: _create(calling, _name())[0] == 500, seconds=20)
        status, answer = _create(calling, "ours-0")
        assert (status, "failed calling webhook" in answer["message"]) == (500, True), answer
        calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")
    finally:
        restore(registered)
    eventually("ours pass again", lambda: _create(calling, _name())[0] == 201, seconds=20)
    status, answer = _create(calling, "after-0")
    assert (status, answer["spec"]["containers"][0]["env"]) == (201, literal("0")), answer
    eventually("it is ready", lambda: registered.command.get("/readyz")[0] == 200)


def test_an_expired_certificate_is_not_ready(calling: Namespace, registered: RegisteredWebhook) -> None:
    """F16. /readyz fails on an expired certificate. A new pair makes the webhook ready again without a restart."""
    pid = registered.command.process.pid
    _expire(registered)
    try:
        eventually("it is not ready", lambda: registered.command.get("/readyz")[0] == 503)
        assert "certificate" in registered.command.get("/readyz")[1]
    finally:
        _renew(registered)
    eventually("it is ready", lambda: registered.command.get("/readyz")[0] == 200)
    assert registered.command.process.pid == pid
    assert registered.command.process.alive()


def _sidecars(pod: Object) -> list[Object]:
    """Return the patch that adds a container and an init container to a pod without a sidecar."""
    return [] if "sidecar" in {each["name"] for each in pod["spec"]["containers"]} else EXTRA


@pytest.fixture
def sidecars(plane: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """Another webhook, which adds containers."""
    with registered_after_ours(plane, tmp_path, _sidecars):
        yield


def test_containers_that_another_webhook_adds_are_injected_too(
    calling: Namespace, registered: RegisteredWebhook, sidecars: None
) -> None:
    """F17. The API server calls our webhook again: every container gets the value exactly once."""
    eventually("the other webhook is called", lambda: len(_containers(_create(calling, _name())[1])) == 3, seconds=20)

    status, answer = _create(calling, "train-0")

    assert status == 201, answer
    assert {each["name"]: each["env"] for each in _containers(answer)} == dict.fromkeys(
        ("main", "sidecar", "setup"), literal("0")
    )
    assert _create(calling, "refused-0", env=[{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}])[0] == 403


def test_no_pod_of_ours_is_admitted_without_the_webhook(
    calling: Namespace, registered: RegisteredWebhook, tmp_path: Path
) -> None:
    """F16. No process listens: our pods are refused, other pods are admitted. The next process serves without help."""
    registered.command.kill()
    eventually("ours are refused", lambda: _create(calling, _name())[0] == 500, seconds=20)
    calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")

    env = {"CERTIFICATE_DIR": str(registered.tls), "WEBHOOK_PORT": str(registered.port)}
    registered.command = Command(tmp_path, "webhook-1", ["webhook"], env)
    registered.command.wait_ready()
    eventually("ours pass again", lambda: _create(calling, _name())[0] == 201, seconds=20)
    status, answer = _create(calling, "after-0")
    assert (status, answer["spec"]["containers"][0]["env"]) == (201, literal("0")), answer


def _containers(body: Object) -> list[Object]:
    spec = body.get("spec", {})
    return [*spec.get("containers", []), *spec.get("initContainers", [])]


def _name() -> str:
    return f"probe{time.monotonic_ns()}-0"


def _create(namespace: Namespace, name: str, **container: object) -> tuple[int, Object]:
    containers = [{"name": "main", "image": objects.IMAGE, **container}]
    body = objects.pod(name, "0=node1:0\n", containers=containers)
    return namespace.kube.call("POST", namespace.pods, body)
