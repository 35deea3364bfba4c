"""A control plane whose API server calls the webhook under its Service's name, with the certificate in its Secret.

In place of kubelets a thread writes the serving Secret into the webhook's folder.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import trustme

from gpu_scheduler.certificates.issuing import Terms, issue, names_of, read_authority
from gpu_scheduler.names import CA_SECRET, RENEWER, SERVING_SECRET
from tests import objects
from tests.integration.command import SCHEDULER, Command
from tests.integration.control_plane import ControlPlane
from tests.integration.namespace import SYSTEM_NAMESPACE as SYSTEM
from tests.integration.role_manifests import rendered, rights_of, values_of
from tests.integration.webhook_process import COLLECTIONS, NAME
from tests.ports import free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.objects import Object

SERVER: Final = f"{NAME}.{SYSTEM}.svc"
SECRETS: Final = f"/api/v1/namespaces/{SYSTEM}/secrets"
PODS: Final = "/api/v1/namespaces/default/pods?dryRun=All"
DAY: Final = timedelta(days=1)
POLL: Final = 0.1
CREATED: Final = 201


@dataclass(slots=True)
class Load:
    """What creates of our pods and new connections met while it went on."""

    creates: int = 0
    connects: int = 0
    failures: list[Object | str] = field(default_factory=list)
    served: set[bytes] = field(default_factory=set)


class Certified:
    """The control plane and the webhook, which serves as soon as there is a pair."""

    def __init__(self, folder: Path, **env: str) -> None:
        """Start the control plane. The namespace has the Service by which the API server finds the webhook here.

        `env` are further variables of the webhook.
        """
        self._folder = folder
        self._env = env
        self._tls = folder / "tls"
        self.port = free_port()
        self._ending = threading.Event()
        self.webhook: Command | None = None
        self.plane = ControlPlane(folder)
        self.kube = self.plane.kube
        self.kube.create("/api/v1/namespaces", {"metadata": {"name": SYSTEM}})
        spec = {"type": "ExternalName", "externalName": "localhost"}
        self.kube.create(f"/api/v1/namespaces/{SYSTEM}/services", {"metadata": {"name": NAME}, "spec": spec})
        self._kubelet = threading.Thread(target=self._sync, daemon=True)
        self._kubelet.start()

    def stop(self) -> None:
        """End everything."""
        self._ending.set()
        self._kubelet.join()
        if self.webhook:
            self.webhook.process.stop()
        self.plane.stop()

    def install(self) -> None:
        """Create what the roles make: both Secrets, the renewer's account with its rights, and the registrations."""
        for collection, body in rights_of("certificates"):
            self.kube.create(collection, body)
        made = trustme.CA()
        certificate, key = made.cert_pem.bytes(), made.private_key_pem.bytes()
        ca = {"ca.crt": certificate, "ca.key": key, "previous.crt": b"", "tls.crt": certificate, "tls.key": key}
        self.store(CA_SECRET, ca, type="Opaque")
        self.store(SERVING_SECRET, self.pair(200 * DAY), type="kubernetes.io/tls")
        values = {**values_of("webhook"), "_webhook_ca_bundle": base64.b64encode(certificate).decode()}
        for body in rendered("webhook", "registrations", values):
            for one in body["webhooks"]:
                one["clientConfig"]["service"]["port"] = self.port
            self.kube.create(COLLECTIONS[body["kind"]], body)
        self.wait_served(self.secret(SERVING_SECRET)["tls.crt"])
        self.wait_called()

    def secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret."""
        found = self.kube.get(f"{SECRETS}/{name}") or {}
        return {key: base64.b64decode(value) for key, value in found.get("data", {}).items()}

    def store(self, name: str, data: dict[str, bytes], **fields: object) -> None:
        """Write a Secret, made anew where its type is given."""
        body: Object = {"data": {key: base64.b64encode(value).decode() for key, value in data.items()}, **fields}
        if "type" in fields:
            self.kube.delete(f"{SECRETS}/{name}")
            self.kube.create(SECRETS, {"metadata": {"name": name}, **body})
        else:
            self.kube.patch(f"{SECRETS}/{name}", body)

    def versions(self) -> list[str]:
        """Return the resource versions of both Secrets."""
        found = [self.kube.get(f"{SECRETS}/{name}") for name in (CA_SECRET, SERVING_SECRET)]
        return [str((each or {}).get("metadata", {}).get("resourceVersion")) for each in found]

    def serve_pair(self, left: timedelta) -> bytes:
        """Store a pair with so much time left, wait until it is served, and return its certificate."""
        pair = self.pair(left)
        self.store(SERVING_SECRET, pair)
        self.wait_served(pair["tls.crt"])
        return pair["tls.crt"]

    def pair(self, left: timedelta) -> dict[str, bytes]:
        """Return a pair of the CA with so much time left."""
        terms = Terms(names_of(NAME, SYSTEM), left, timedelta())
        return issue(read_authority(self.secret(CA_SECRET)), terms, datetime.now(UTC))

    def renew(self, **env: str) -> subprocess.CompletedProcess[str]:
        """Run `gpu-scheduler renew` with the rights of the role."""
        token = self.plane.service_account_token(SYSTEM, RENEWER)
        kubeconfig = self.plane.kubeconfig(self._folder / "renewer.kubeconfig", token)
        return subprocess.run(
            [sys.executable, "-m", "gpu_scheduler", "renew", "--kubeconfig", str(kubeconfig)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SCHEDULER), "KUBERNETES_NAMESPACE": SYSTEM, **env},
            capture_output=True,
            text=True,
            timeout=limit(30),
            check=False,
        )

    def bundles(self) -> list[bytes]:
        """Return the CAs that the API server trusts, of each registered webhook."""
        found = [self.kube.get(f"{collection}/{NAME}") or {} for collection in COLLECTIONS.values()]
        return [base64.b64decode(one["clientConfig"]["caBundle"]) for each in found for one in each.get("webhooks", [])]

    def wait_called(self) -> None:
        """Wait until the API server calls the webhook and trusts it."""

        def reviewed() -> bool:
            status, answer = self.kube.call("POST", PODS, objects.pod("load-0", "0=node1:0\n"))
            return status == CREATED and answer["spec"]["containers"][0].get("env") == objects.literal("0")

        eventually("pods are reviewed", reviewed, seconds=20)

    def served(self) -> set[bytes]:
        """Return what new connections get; raise ssl.SSLError if one of the registrations does not trust it."""
        # Read before: a CA that is added later must not hide that it was missing when the pair was served.
        bundles = self.bundles() or [self.secret(CA_SECRET)["ca.crt"]]
        return {self._served_to(each) for each in dict.fromkeys(bundles)}

    def _served_to(self, trusted: bytes) -> bytes:
        context = ssl.create_default_context(cadata=trusted.decode())
        with (
            socket.create_connection(("localhost", self.port), timeout=limit(5)) as plain,
            context.wrap_socket(plain, server_hostname=SERVER) as secured,
        ):
            certificate = secured.getpeercert(binary_form=True)
        assert certificate
        return ssl.DER_cert_to_PEM_cert(certificate).encode()

    def wait_served(self, certificate: bytes) -> None:
        """Wait until the webhook serves this certificate, and the registrations trust it."""

        def served() -> bool:
            with suppress(ConnectionRefusedError, ssl.SSLCertVerificationError):
                return self.served() == {certificate}
            return False

        eventually("the pair is served", served, seconds=20)

    @contextmanager
    def load(self) -> Iterator[Load]:
        """Create pods and open connections until the block ends; then assert that each create was reviewed."""
        load, stop = Load(), threading.Event()
        threads = [
            threading.Thread(target=work, args=(load, stop)) for work in (self._create, self._create, self._connect)
        ]
        for thread in threads:
            thread.start()
        try:
            yield load
            # What the block did last is noticed by creates and connections that begin after it.
            creates, connects = load.creates + 4, load.connects + 2
            eventually("creates go on", lambda: load.creates >= creates, seconds=60)
            eventually("connections go on", lambda: load.connects >= connects, seconds=60)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert load.failures == []
        assert load.creates > 0

    def _create(self, load: Load, stop: threading.Event) -> None:
        while not stop.wait(POLL / 2):
            status, answer = self.kube.call("POST", PODS, objects.pod("load-0", "0=node1:0\n"))
            load.creates += 1
            if status != CREATED or answer["spec"]["containers"][0].get("env") != objects.literal("0"):
                load.failures.append(answer)

    def _connect(self, load: Load, stop: threading.Event) -> None:
        while not stop.wait(POLL):
            try:
                load.served |= self.served()
            except (OSError, ValueError) as error:
                load.failures.append(repr(error))
            load.connects += 1

    def _sync(self) -> None:
        while not self._ending.wait(POLL):
            data = self.secret(SERVING_SECRET)
            pair = {name: data.get(name, b"") for name in ("tls.crt", "tls.key")}
            if not all(pair.values()):
                continue
            self._tls.mkdir(exist_ok=True)
            if any(not (self._tls / name).exists() or (self._tls / name).read_bytes() != pair[name] for name in pair):
                # Both at once, as a kubelet does. The webhook tries again what it reads in between.
                for name, content in pair.items():
                    (self._tls / f"{name}.new").write_bytes(content)
                for name in pair:
                    (self._tls / f"{name}.new").rename(self._tls / name)
            if self.webhook is None:
                own = {
                    "CERTIFICATE_DIR": str(self._tls),
                    "WEBHOOK_PORT": str(self.port),
                    "CERTIFICATE_POLL": "200ms",
                    **self._env,
                }
                self.webhook = Command(self._folder, "webhook-0", ["webhook"], own)
