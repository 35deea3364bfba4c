"""The API server calls our webhook over TLS, as MutatingWebhookConfiguration tells it to."""

from __future__ import annotations

import base64
import signal
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.integration.bench import MAP, Bench
from tests.integration.command import Command
from tests.integration.programs import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.plant import ControlPlane, Object

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
NAME = "gpu-scheduler-webhook"


class Served:
    """The webhook's process, its certificate folder, and its registrations."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        """Start it and register both paths."""
        self.tls = folder / "tls"
        self.tls.mkdir()
        self.authority = trustme.CA()
        self.issue(self.authority)
        self.port = free_port()
        self.command = Command(
            folder,
            "webhook-0",
            ["webhook"],
            {
                "CERTIFICATE_DIR": str(self.tls),
                "WEBHOOK_PORT": str(self.port),
                "CERTIFICATE_POLL": "200ms",
                "DRAIN_PERIOD": "2s",
            },
        )
        self._kube = plane.kube
        self.command.wait_ready()
        self._kube.create(
            f"{CONFIGURATIONS}/mutatingwebhookconfigurations",
            {"metadata": {"name": NAME}, "webhooks": [self._webhook("mutate", reinvocationPolicy="IfNeeded")]},
        )
        self._kube.create(
            f"{CONFIGURATIONS}/validatingwebhookconfigurations",
            {"metadata": {"name": NAME}, "webhooks": [self._webhook("validate")]},
        )

    def issue(self, authority: trustme.CA) -> None:
        """Write a new pair, as a kubelet would after a Secret changed."""
        pair = authority.issue_cert("localhost", "127.0.0.1")
        pair.private_key_pem.write_to_path(str(self.tls / "tls.key"))
        pair.cert_chain_pems[0].write_to_path(str(self.tls / "tls.crt"))

    def trust(self, authority: trustme.CA) -> None:
        """Tell the API server whom to believe."""
        for kind in ("mutating", "validating"):
            path = f"{CONFIGURATIONS}/{kind}webhookconfigurations/{NAME}"
            found = self._kube.get(path)
            assert found is not None
            found["webhooks"][0]["clientConfig"]["caBundle"] = _bundle(authority)
            status, answer = self._kube.call("PUT", path, found)
            assert status == 200, answer

    def unregister(self) -> None:
        """Take both registrations away."""
        for kind in ("mutating", "validating"):
            self._kube.delete(f"{CONFIGURATIONS}/{kind}webhookconfigurations/{NAME}")

    def _webhook(self, path: str, **more: str) -> Object:
        rule: dict[str, Any] = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
        return {
            "name": f"{path}.gpu-scheduler.agentaflow.io",
            "clientConfig": {
                "url": f"https://localhost:{self.port}/{path}",
                "caBundle": _bundle(self.authority),
            },
            "rules": [
                {**rule, "operations": ["CREATE"], "resources": ["pods"]},
                {**rule, "operations": ["UPDATE"], "resources": ["pods/ephemeralcontainers"]},
            ],
            "matchConditions": [{"name": "ours", "expression": "object.spec.schedulerName == 'gpu-scheduler'"}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "admissionReviewVersions": ["v1"],
            **more,
        }


@pytest.fixture(scope="module")
def served(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A registered webhook."""
    served = Served(plane, tmp_path_factory.mktemp("webhook"))
    yield served
    served.unregister()
    served.command.process.stop()


@pytest.fixture
def calling(bench: Bench, served: Served) -> Bench:
    """A namespace, once the API server has taken notice of the registrations."""

    def noticed() -> bool:
        status, _ = _create(bench, "probe", "nonsense")
        if status == 201:
            bench.delete("probe")
        return status == 400

    eventually("the API server calls the webhook", noticed)
    return bench


@pytest.mark.promise("env-1", "env-2", "map-2")
def test_devices_are_injected_at_admission(calling: Bench, served: Served) -> None:
    """Every container, init containers too, gets both variables in front of its own; the log says what and for whom."""
    status, pod = _create(
        calling,
        "webhook-test-0",
        "0=node1:0,1\n",
        containers=[{"name": "main", "image": "none", "env": [{"name": "MINE", "value": "yes"}]}],
        initContainers=[{"name": "prepare", "image": "none"}],
    )

    assert status == 201, pod
    injected = [
        {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1"},
        {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
    ]
    assert pod["spec"]["containers"][0]["env"] == [*injected, {"name": "MINE", "value": "yes"}]
    assert pod["spec"]["initContainers"][0]["env"] == injected
    assert served.command.said("Injecting CUDA_VISIBLE_DEVICES=0,1 for pod webhook-test-0 (index 0)")


@pytest.mark.promise("map-6", "text-6")
def test_a_bad_map_is_refused_with_its_line(calling: Bench) -> None:
    """`kubectl apply` shows the parser's sentence: line, what was wrong, and an example that works."""
    status, answer = _create(calling, "train-0", "0=node1:0\n1=node9:x\n")

    assert status == 400
    assert answer["message"].startswith(
        'admission webhook "mutate.gpu-scheduler.agentaflow.io" denied the request: '
        "MapInvalid: cannot read placement map, line 2:"
    )
    assert "(example: 1=node2:0,1)" in answer["message"]


@pytest.mark.promise("env-10", "text-6")
def test_a_container_that_sets_the_variable_itself_is_refused(calling: Bench) -> None:
    """EnvConflict is no typing mistake but something we do not allow: 403."""
    container = {"name": "main", "image": "none", "env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "7"}]}

    status, answer = _create(calling, "train-0", "0=node1:0\n", containers=[container])

    assert status == 403
    assert "EnvConflict: " in answer["message"]


@pytest.mark.promise("env-3")
def test_a_debug_container_sees_what_its_pod_sees(calling: Bench) -> None:
    """`kubectl debug` goes through pods/ephemeralcontainers, which is reviewed too."""
    _create(calling, "train-0", "0=node1:2\n")
    patch = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}}

    status, pod = calling.kube.call(
        "PATCH",
        f"{calling.pods}/train-0/ephemeralcontainers",
        patch,
        "application/strategic-merge-patch+json",
    )

    assert status == 200, pod
    (debug,) = pod["spec"]["ephemeralContainers"]
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "2"} in debug["env"]


@pytest.mark.promise("index-5")
def test_generated_names_are_no_index(calling: Bench) -> None:
    """A bare generated pod has no static index, whatever digits its suffix brings: refused with the cure."""
    body = _body("", "0=node1:0\n")
    body["metadata"] = {**body["metadata"], "generateName": "train-"}
    del body["metadata"]["name"]

    status, answer = calling.kube.call("POST", calling.pods, body)

    assert status == 403
    assert "Unsupported: " in answer["message"]
    assert "agentaflow.gpu/index" in answer["message"]


@pytest.mark.promise("hook-2")
def test_other_schedulers_pods_never_ask_us(calling: Bench, served: Served) -> None:
    """The matchConditions keep everybody else independent of the webhook, even while it does not answer."""
    served.command.process.send(signal.SIGSTOP)
    try:
        calling.pod("foreign-0", "nonsense", None, scheduler="default-scheduler")
    finally:
        served.command.process.send(signal.SIGCONT)


@pytest.mark.promise("hook-5")
def test_a_new_certificate_is_served_without_a_restart(calling: Bench, served: Served) -> None:
    """The directory changes, the trust in the registration changes, and the same process goes on answering."""
    pid = served.command.process.pid
    authority = trustme.CA()

    served.issue(authority)
    eventually("it serves the new pair", lambda: served.command.said("Serving a new certificate"))
    served.trust(authority)

    def injected() -> bool:
        status, _ = _create(calling, "after-0", "0=node1:0\n")
        return status == 201

    eventually("pods are admitted under the new certificate", injected)
    assert served.command.process.pid == pid
    assert served.command.process.alive()


def test_a_webhook_that_is_told_to_stop_answers_to_the_end(calling: Bench, served: Served) -> None:
    """While its endpoint is taken out of the Service it is not ready and still admits; then it exits with code 0."""
    served.command.process.send(signal.SIGTERM)
    eventually("it is not ready any more", lambda: served.command.get("/readyz")[0] == 503)

    status, answer = _create(calling, "late-0", "0=node1:0\n")

    assert status == 201, answer
    assert served.command.process.wait(5) == 0


def _create(bench: Bench, name: str, text: str, **spec: list[Object]) -> tuple[int, Object]:
    return bench.kube.call("POST", bench.pods, _body(name, text, **spec))


def _body(name: str, text: str, **spec: list[Object]) -> Object:
    containers: list[Object] = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name, "annotations": {MAP: text}},
        "spec": {"schedulerName": "gpu-scheduler", "containers": containers, **spec},
    }


def _bundle(authority: trustme.CA) -> str:
    return base64.b64encode(authority.cert_pem.bytes()).decode("ascii")
