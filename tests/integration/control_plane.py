"""A real control plane as two processes, etcd and kube-apiserver, on free ports and in a temporary folder.

Each process is stopped by its process id. The API server checks tokens and RBAC like that of any cluster.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import trustme

from tests.integration.programs import Process, program
from tests.kube_client import NONE, KubeClient
from tests.ports import free_port
from tests.waiting import eventually, limit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.objects import Object

ADMIN_TOKEN: Final = "the-test-admin"  # noqa: S105 - opens a control plane that lives for one test run
# Go collects garbage less often. It costs memory, and saves a third of the CPU time of a short-lived server.
GO_ENV: Final = {**os.environ, "GOGC": "400"}


class ControlPlane:
    """etcd and kube-apiserver. After `restart_api` the API server has an empty watch cache."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """Create certificates, start both, and wait until the API server is ready. `flags` are added to its own."""
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
            GO_ENV,
        )
        self._clients: list[KubeClient] = []
        self._users: dict[tuple[str, str], KubeClient] = {}
        self.kube = self.client(ADMIN_TOKEN)
        try:
            self._api = self._start_api()
        except BaseException:
            self._etcd.stop()
            raise

    def _start_api(self, *flags: str) -> Process:
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
                f"--client-ca-file={self.ca}",
                "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'api.key'}",
                f"--service-account-signing-key-file={folder / 'api.key'}",
                "--service-cluster-ip-range=10.0.0.0/24",
                # No controller runs that creates service accounts and removes the taint of new nodes.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                "--profiling=false",
                *self.flags,
                *flags,
            ],
            folder / "kube-apiserver.log",
            GO_ENV,
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

    def client(self, token: str, headers: Mapping[str, str] = NONE) -> KubeClient:
        """Return a client that is closed with the control plane."""
        client = KubeClient(self.port, str(self.ca), token, headers=headers)
        self._clients.append(client)
        return client

    def client_as(self, user: str, node: str = "") -> KubeClient:
        """Return a client that impersonates a user, with all RBAC rights: only policies restrict it.

        `node` is the node that the user's token names for its pod; empty if the token names none.
        """
        if (user, node) not in self._users:
            headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
            if node:
                headers["Impersonate-Extra-authentication.kubernetes.io%2fnode-name"] = node
            self._users[user, node] = self.client(ADMIN_TOKEN, headers)
        return self._users[user, node]

    def client_of(self, namespace: str, account: str) -> KubeClient:
        """Return a client with a real token of a service account."""
        return self.client(self.service_account_token(namespace, account))

    def user_client(self, folder: Path, user: str, group: str) -> KubeClient:
        """Return a client with a certificate of a user, as a kubelet has one."""
        pair = folder / "user.pem"
        pair.write_text("".join(file.read_text() for file in self.user_certificate(folder, user, group)))
        client = KubeClient(self.port, str(self.ca), pair=str(pair))
        self._clients.append(client)
        return client

    @property
    def pids(self) -> dict[str, int]:
        """The process ids by name."""
        return {process.name: process.pid for process in (self._api, self._etcd)}

    def restart_api(self, *flags: str) -> None:
        """Kill the API server and start another on the same port with these flags. All connections are cut."""
        self.crash_api()
        self._api = self._start_api(*flags)

    def crash_api(self) -> None:
        """Kill the API server. No process listens on its port then."""
        self._api.send(signal.SIGKILL)
        self._api.wait()

    def start_api(self) -> None:
        """Start another API server on the same port."""
        self._api = self._start_api()

    def pause(self) -> None:
        """Stop the API server's process with SIGSTOP: connections stay open, and no request is answered."""
        self._api.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the stopped API server with SIGCONT."""
        self._api.send(signal.SIGCONT)

    def compact(self) -> None:
        """Compact etcd: every version but the current one expires."""
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
        """Request a real token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}
        return str(self.kube.create(path, body)["status"]["token"])

    def pod_token(self, namespace: str, account: str, pod: Object) -> str:
        """Request a token of a pod with this metadata and service account. The token names the pod's node."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
        spec = {"boundObjectRef": bound, "audiences": []}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        return str(self.kube.create(path, body)["status"]["token"])

    def serving_context(self, folder: Path) -> ssl.SSLContext:
        """Create a certificate for 127.0.0.1 that the clients trust. Return the TLS context of a server with it."""
        folder.mkdir()
        pair = self._authority.issue_cert("127.0.0.1")
        file = folder / "pair.pem"
        pair.private_key_and_cert_chain_pem.write_to_path(str(file))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def user_certificate(self, folder: Path, user: str, group: str) -> tuple[Path, Path]:
        """Write a user's certificate and key, for a program that knows no token. Return both files."""
        # Go refuses a certificate that names no host at all.
        pair = self._authority.issue_cert(
            f"{user.replace(':', '-')}.invalid", common_name=user, organization_name=group
        )
        certificate, key = folder / f"{user}.crt", folder / f"{user}.key"
        pair.cert_chain_pems[0].write_to_path(str(certificate))
        pair.private_key_pem.write_to_path(str(key))
        return certificate, key

    def kubeconfig(self, path: Path, token: str, port: int | None = None) -> Path:
        """Write a kubeconfig with this token. `port` is that of a proxy; without it the API server's port is used."""
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
        """Close all clients and end both processes."""
        for client in self._clients:
            client.close()
        self._api.stop()
        self._etcd.stop()
