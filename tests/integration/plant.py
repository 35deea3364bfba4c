"""A real control plane as two processes, etcd and kube-apiserver, on free ports and in a temporary folder.

Everything started here is stopped by its process id. The API server checks tokens and RBAC as any cluster does.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trustme

from tests.integration.programs import Process, free_port, program
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from pathlib import Path

Object = dict[str, Any]
T = TypeVar("T")

ADMIN_TOKEN: Final = "the-test-admin"  # noqa: S105 - opens a control plane that lives for one test run
MISSING: Final = 404
# Go collects its garbage less often: memory is there, and a third of a short-lived server's time is saved.
SPENDTHRIFT: Final = {**os.environ, "GOGC": "400"}


class Kube:
    """A blocking client for tests: paths and objects, nothing typed."""

    def __init__(self, port: int, ca: str, token: str = "", pair: str = "") -> None:
        """`ca` is a file, and so is a client's certificate with its key, which may stand in for a token."""
        self._port = port
        self._who = {"Authorization": f"Bearer {token}"} if token else {}
        self._tls = ssl.create_default_context(cafile=ca)
        if pair:
            self._tls.load_cert_chain(pair)
        # Each thread has a connection of its own, kept open: a handshake costs more than most requests.
        self._own = threading.local()
        self._made: list[http.client.HTTPSConnection] = []

    def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        """One request: status and decoded body."""
        status, text = self.raw(method, path, None if body is None else json.dumps(body).encode(), content_type)
        return status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}

    def raw(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """One request: status and body as bytes."""
        headers = {**self._who, "Content-Type": content_type}
        kept: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            # One that the server has closed since is no fault: the request never left.
            with suppress(ConnectionError, ssl.SSLEOFError):
                return self._exchange(kept, method, path, body, headers)
        fresh = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=limit(15))
        self._made.append(fresh)
        return self._exchange(fresh, method, path, body, headers)

    def _exchange(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> tuple[int, bytes]:
        self._own.connection = None
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._own.connection = connection
        return response.status, text

    def close(self) -> None:
        """End every thread's connection."""
        for connection in self._made:
            connection.close()

    def get(self, path: str) -> Object | None:
        """Read an object; None when there is none."""
        status, body = self.call("GET", path)
        assert status in {200, MISSING}, body
        return body if status != MISSING else None

    def create(self, path: str, body: Object) -> Object:
        """Create an object; anything but success is an error."""
        status, answer = self.call("POST", path, body)
        assert status in {200, 201, 202}, answer
        return answer

    def patch(self, path: str, body: Object) -> Object:
        """Merge `body` into an object."""
        status, answer = self.call("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, answer
        return answer

    def delete(self, path: str) -> None:
        """Delete an object at once, if it is there."""
        status, answer = self.call("DELETE", path, {"gracePeriodSeconds": 0})
        assert status in {200, 202, MISSING}, answer


class ControlPlane:
    """etcd and kube-apiserver; `restart_api` gives a server that remembers nothing of what was watched before."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """Make certificates and keys, start both, and wait until the API server, with these flags more, is ready."""
        self._folder = folder
        self.flags = flags
        self._authority = trustme.CA()
        self.ca = folder / "ca.crt"
        self._authority.cert_pem.write_to_path(str(self.ca))
        pair = self._authority.issue_cert("127.0.0.1", "localhost")
        pair.private_key_pem.write_to_path(str(folder / "api.key"))
        pair.cert_chain_pems[0].write_to_path(str(folder / "api.crt"))
        (folder / "tokens.csv").write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n", encoding="ascii")
        self._etcd_port, peer_port, self.port = free_port(), free_port(), free_port()
        etcd_url, peer_url = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._etcd = Process(
            "etcd",
            [
                str(program("etcd")),
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
            folder / "etcd.log",
            SPENDTHRIFT,
        )
        self.kube = Kube(self.port, str(self.ca), ADMIN_TOKEN)
        try:
            self._api = self._start_api()
        except BaseException:
            self._etcd.stop()
            raise

    def _start_api(self) -> Process:
        folder = self._folder
        api = Process(
            "kube-apiserver",
            [
                str(program("kube-apiserver")),
                f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self.port}",
                f"--tls-cert-file={folder / 'api.crt'}",
                f"--tls-private-key-file={folder / 'api.key'}",
                f"--token-auth-file={folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'api.key'}",
                f"--service-account-signing-key-file={folder / 'api.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                # Bare nodes and pods: no controller makes service accounts, no kubelet takes taints away.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                "--profiling=false",
                *self.flags,
            ],
            folder / "kube-apiserver.log",
            SPENDTHRIFT,
        )
        try:
            eventually("kube-apiserver is ready", lambda: self._ready(api), seconds=30)
        except BaseException:
            api.stop()
            raise
        return api

    def _ready(self, api: Process) -> bool:
        assert api.alive(), api.output()[-2000:]
        with suppress(OSError, http.client.HTTPException):
            return self.kube.call("GET", "/readyz")[0] == 200
        return False

    @property
    def pids(self) -> dict[str, int]:
        """Its processes by name."""
        return {process.name: process.pid for process in (self._api, self._etcd)}

    def restart_api(self) -> None:
        """Replace the API server by another on the same port, as a crash would: clients find cut connections."""
        self.crash_api()
        self.start_api()

    def crash_api(self) -> None:
        """End the API server; nobody listens on its port."""
        self._api.send(signal.SIGKILL)
        self._api.wait()

    def start_api(self) -> None:
        """Start another one in its place."""
        self._api = self._start_api()

    def pause(self) -> None:
        """Let the API server hold its breath: connections stay open, nothing is said."""
        self._api.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it speak again."""
        self._api.send(signal.SIGCONT)

    def compact(self) -> None:
        """Make etcd forget every version but the present one."""
        status = self._etcd_call("/v3/kv/range", {"key": "AA=="})
        self._etcd_call("/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def _etcd_call(self, path: str, body: Object) -> Object:
        connection = http.client.HTTPConnection("127.0.0.1", self._etcd_port, timeout=limit(10))
        try:
            connection.request("POST", path, json.dumps(body))
            answer: Object = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def service_account_token(self, namespace: str, name: str) -> str:
        """Ask for a real token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
        return str(self.kube.create(path, body)["status"]["token"])

    def serving_context(self, folder: Path) -> ssl.SSLContext:
        """Make a certificate that the clients trust for 127.0.0.1, and return what serves with it."""
        folder.mkdir()
        pair = self._authority.issue_cert("127.0.0.1")
        file = folder / "pair.pem"
        pair.private_key_and_cert_chain_pem.write_to_path(str(file))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def kubeconfig(self, path: Path, token: str, port: int | None = None) -> Path:
        """Write a kubeconfig that authenticates with `token`, and goes through `port` when one is given."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{port or self.port}",
                        "certificate-authority": str(self.ca),
                    },
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def stop(self) -> None:
        """End both."""
        self.kube.close()
        self._api.stop()
        self._etcd.stop()
