"""A real control plane as two processes, etcd and kube-apiserver, on free ports and in a temporary folder.

Everything started here is stopped by its process id. The API server checks tokens and RBAC as any cluster does.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import trustme

from tests.waiting import eventually

Object = dict[str, Any]
T = TypeVar("T")

CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpu-scheduler"
ADMIN_TOKEN: Final = "the-test-admin"  # noqa: S105 - opens a control plane that lives for one test run
MISSING: Final = 404


def program(name: str) -> Path:
    """Find the newest `name` that `make programs` built."""
    found = sorted((CACHE / "bin").glob(f"{name}-v*/{name}"), key=lambda path: _version(path.parent.name))
    if not found:
        raise FileNotFoundError(f"cannot find {name} under {CACHE / 'bin'}: build it first (example: make programs)")
    return found[-1]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def free_port() -> int:
    """Ask the kernel for a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """A program under test, with its output in a file."""

    def __init__(self, name: str, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        """Start it at once."""
        self.name = name
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=env)
        self.pid = self._process.pid

    def output(self) -> str:
        """Tell what it has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def alive(self) -> bool:
        """Tell whether it is running."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def wait(self, seconds: float = 10.0) -> int:
        """Wait for its end and give its exit code."""
        return self._process.wait(seconds)

    def stop(self, seconds: float = 10.0) -> int:
        """End it with SIGTERM, after so many seconds with SIGKILL."""
        if self.alive():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(seconds)
            self._process.kill()
        return self._process.wait()


class Kube:
    """A blocking client for tests: paths and objects, nothing typed."""

    def __init__(self, port: int, ca: str, token: str) -> None:
        """`ca` is a file."""
        self._port = port
        self._token = token
        self._tls = ssl.create_default_context(cafile=ca)

    def call(
        self, method: str, path: str, body: Object | None = None, content_type: str = "application/json"
    ) -> tuple[int, Object]:
        """One request: status and decoded body."""
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._tls, timeout=15)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text.startswith(b"{") else {"text": text.decode()}
        finally:
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

    def __init__(self, folder: Path) -> None:
        """Make certificates and keys, start both, and wait until the API server is ready."""
        self._folder = folder
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
        )
        self.kube = Kube(self.port, str(self.ca), ADMIN_TOKEN)
        self._api = self._start_api()

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
            ],
            folder / "kube-apiserver.log",
        )
        eventually("kube-apiserver is ready", lambda: self._ready(api), seconds=30)
        return api

    def _ready(self, api: Process) -> bool:
        assert api.alive(), api.output()[-2000:]
        with suppress(OSError, http.client.HTTPException):
            return self.kube.call("GET", "/readyz")[0] == 200
        return False

    def restart_api(self) -> None:
        """Replace the API server by another on the same port, as a crash would: clients find cut connections."""
        self._api.send(signal.SIGKILL)
        self._api.wait()
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
        connection = http.client.HTTPConnection("127.0.0.1", self._etcd_port, timeout=10)
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
        self._api.stop()
        self._etcd.stop()
