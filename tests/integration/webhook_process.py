"""Runs the webhook as a process with a certificate, and registers it at the API server."""

from __future__ import annotations

import base64
import itertools
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import trustme

from tests import objects
from tests.integration.command import Command
from tests.integration.role_manifests import rendered, values_of
from tests.ports import free_port
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

_numbers = itertools.count(1)
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
NAME = "gpu-scheduler-webhook"
COLLECTIONS: Final = {
    "MutatingWebhookConfiguration": f"{CONFIGURATIONS}/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": f"{CONFIGURATIONS}/validatingwebhookconfigurations",
}
UNREVIEWED = "tests/unreviewed"
"""The label of a namespace whose pods are not reviewed."""
UNMUTATED = "tests/unmutated"
"""The label of a namespace about whose pods only the validating paths are asked."""


class Webhook:
    """The webhook's process and its certificate folder."""

    def __init__(self, folder: Path, arguments: list[str], env: dict[str, str], module: str = "gpu_scheduler") -> None:
        """Start the webhook and wait until it is ready. `module` replaces the program's module, to inject a fault."""
        self.tls = folder / "tls"
        self.tls.mkdir()
        self.issue(trustme.CA())
        self.port = free_port()
        own = {"CERTIFICATE_DIR": str(self.tls), "WEBHOOK_PORT": str(self.port)}
        self.command = Command(folder, "webhook-0", arguments, {**env, **own}, module)
        self.command.wait_ready()

    def issue(self, authority: trustme.CA) -> None:
        """Write a new certificate and key, as a kubelet does after a change of the Secret."""
        self.authority = authority
        pair = authority.issue_cert("localhost", "127.0.0.1")
        pair.private_key_pem.write_to_path(str(self.tls / "tls.key"))
        pair.cert_chain_pems[0].write_to_path(str(self.tls / "tls.crt"))

    def client(self, path: str) -> Object:
        """Return the clientConfig with which the API server calls this path."""
        return {"url": f"https://localhost:{self.port}/{path}", "caBundle": _bundle(self.authority)}

    def reviews(self) -> Counter[str]:
        """Return how many reviews the webhook has answered at each path."""
        counts: Counter[str] = Counter()
        for line in self.command.metrics().splitlines():
            found = re.match(r'gpu_scheduler_admission_reviews_total{.*path="([^"]+)".*} ([0-9.]+)', line)
            if found:
                counts[found[1]] += int(float(found[2]))
        return counts

    def registrations(self, **inputs: str) -> Iterator[tuple[str, Object]]:
        """Yield the role's registrations with their collection paths. They call this process instead of a Service.

        `inputs` are the role's, by default its own.
        """
        values = {**values_of("webhook"), "_webhook_ca_bundle": "", **inputs}
        for body in rendered("webhook", "registrations", values):
            for webhook in body["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = self.client(path.removeprefix("/"))
            yield COLLECTIONS[body["kind"]], body


class RegisteredWebhook(Webhook):
    """The webhook with registrations that tests change."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        """Start the webhook and register its two paths."""
        super().__init__(folder, ["webhook"], {"CERTIFICATE_POLL": "200ms", "DRAIN_PERIOD": "2s"})
        self._kube = plane.kube
        self._kube.create(
            f"{CONFIGURATIONS}/mutatingwebhookconfigurations",
            {"metadata": {"name": NAME}, "webhooks": [self.webhook("mutate", reinvocationPolicy="IfNeeded")]},
        )
        self._kube.create(
            f"{CONFIGURATIONS}/validatingwebhookconfigurations",
            {"metadata": {"name": NAME}, "webhooks": [self.webhook("validate")]},
        )

    def trust(self, *authorities: trustme.CA) -> None:
        """Register these CAs as those that the API server trusts. Return when it uses them."""
        for path, found in self._registrations():
            found["webhooks"][0]["clientConfig"]["caBundle"] = _bundle(*authorities)
            self._put(path, found)

    def choose(self, **settings: object) -> None:
        """Change these fields of both registrations. Return when the API server uses them."""
        for path, found in self._registrations():
            found["webhooks"][0].update(settings)
            self._put(path, found)

    def served_pairs(self) -> int:
        """Return how many new certificates the webhook has loaded, by its log."""
        return sum("Serving a new certificate" in str(line.get("event")) for line in self.command.lines())

    def serves_more_than(self, count: int) -> bool:
        """Return whether the webhook has loaded more than `count` new certificates."""
        return self.served_pairs() > count

    def _registrations(self) -> list[tuple[str, Object]]:
        paths = [f"{CONFIGURATIONS}/{kind}webhookconfigurations/{NAME}" for kind in ("mutating", "validating")]
        return [(path, found) for path in paths if (found := self._kube.get(path))]

    def _put(self, path: str, body: Object) -> None:
        """Replace the registration, and wait until the API server uses it.

        A sentinel shows it: a second webhook, which nobody serves, for a pod whose name each change chooses anew.
        """
        name = f"sentinel-{next(_numbers)}"
        body["webhooks"][1:] = [_sentinel(name)]
        status, answer = self._kube.call("PUT", path, body)
        assert status == 200, answer
        pod = objects.pod(name, scheduler="none")
        tried = "/api/v1/namespaces/default/pods?dryRun=All"
        eventually("the registration is in use", lambda: self._kube.call("POST", tried, pod)[0] == 500, seconds=60)

    def unregister(self) -> None:
        """Delete both registrations."""
        for kind in ("mutating", "validating"):
            self._kube.delete(f"{CONFIGURATIONS}/{kind}webhookconfigurations/{NAME}")

    def webhook(self, path: str, **more: Any) -> Object:
        """Return the entry of a registration for pods of ours at this path. `more` are fields of it."""
        rule: dict[str, Any] = {"apiGroups": [""], "apiVersions": ["v1"], "scope": "Namespaced"}
        return {
            "name": f"{path}.gpu-scheduler.agentaflow.io",
            "clientConfig": self.client(path),
            "rules": [
                {**rule, "operations": ["CREATE"], "resources": ["pods"]},
                {**rule, "operations": ["UPDATE"], "resources": ["pods/ephemeralcontainers"]},
            ],
            # Pods of a namespace with this label are not reviewed.
            "namespaceSelector": {"matchExpressions": [{"key": UNREVIEWED, "operator": "DoesNotExist"}]},
            "matchConditions": [{"name": "ours", "expression": "object.spec.schedulerName == 'gpu-scheduler'"}],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": 2,
            "admissionReviewVersions": ["v1"],
            **more,
        }


def _sentinel(name: str) -> Object:
    return {
        "name": "sentinel.gpu-scheduler.agentaflow.io",
        "clientConfig": {"url": "https://127.0.0.1:1/sentinel"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "matchConditions": [
            {"name": "sentinel", "expression": f"has(object.metadata.name) && object.metadata.name == '{name}'"}
        ],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _bundle(*authorities: trustme.CA) -> str:
    return base64.b64encode(b"".join(authority.cert_pem.bytes() for authority in authorities)).decode("ascii")
