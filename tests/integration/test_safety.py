"""How little our own programs may do, and what a cluster that cannot carry us is told before anything is changed."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import pytest
import yaml

from tests.integration.bench import SYSTEM_NAMESPACE
from tests.integration.command import LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.control_plane import ControlPlane
    from tests.objects import Object

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = ROOT / "roles" / "certificates" / "templates" / "namespace.yaml.j2"
SYSTEM = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.promise("safe-3")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/secrets"),
        ("GET", f"{SYSTEM}/secrets"),
        ("GET", f"{SYSTEM}/secrets/gpu-scheduler-webhook-tls"),
        ("GET", f"{SYSTEM}/configmaps"),
        ("POST", f"{SYSTEM}/pods"),
        ("PATCH", f"{SYSTEM}/pods/any"),
        ("DELETE", f"{SYSTEM}/pods/any"),
        ("PATCH", "/api/v1/nodes/any"),
        ("DELETE", LEASE),
        ("PATCH", "/api/v1/persistentvolumes/any"),
        ("POST", f"{SYSTEM}/serviceaccounts/gpu-scheduler/token"),
    ],
)
def test_the_scheduler_may_not(plane: ControlPlane, method: str, path: str) -> None:
    """What its work does not need is forbidden; that it needs all else, the other tests of this ring show."""
    kube = plane.client_of(SYSTEM_NAMESPACE, "gpu-scheduler")

    status, answer = kube.call(method, path, {} if method != "GET" else None, "application/merge-patch+json")

    assert status == 403, answer


@pytest.mark.promise("safe-4")
def test_the_webhook_may_nothing(plane: ControlPlane) -> None:
    """Its account may do what every account may, ask about itself, and nothing else."""
    plane.kube.create(f"{SYSTEM}/serviceaccounts", {"metadata": {"name": "gpu-scheduler-webhook"}})
    kube = plane.client_of(SYSTEM_NAMESPACE, "gpu-scheduler-webhook")
    try:
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        answer = kube.create(path, {"spec": {"namespace": SYSTEM_NAMESPACE}})
        status, _ = kube.call("GET", f"{SYSTEM}/pods")
    finally:
        kube.close()
    groups = {group for rule in answer["status"]["resourceRules"] for group in rule["apiGroups"]}

    assert status == 403
    assert groups <= {"authorization.k8s.io", "authentication.k8s.io"}


@pytest.mark.promise("safe-2")
@pytest.mark.parametrize(
    ("name", "security", "status"),
    [
        ("restricted", RESTRICTED, 201),
        ("root", {**RESTRICTED, "runAsNonRoot": False, "runAsUser": 0}, 403),
        ("escalating", {**RESTRICTED, "allowPrivilegeEscalation": True}, 403),
        ("capable", {**RESTRICTED, "capabilities": {}}, 403),
        ("careless", {}, 403),
    ],
)
def test_the_system_namespace_takes_only(
    hardened: str, plane: ControlPlane, name: str, security: Object, status: int
) -> None:
    """The namespace as the role makes it: the API server itself refuses any container with more than it needs."""
    container = {"name": "main", "image": "none", "securityContext": security}
    body = {"metadata": {"name": name}, "spec": {"containers": [container]}}

    found, answer = plane.kube.call("POST", f"/api/v1/namespaces/{hardened}/pods", body)

    assert found == status, answer
    assert status == 201 or 'violates PodSecurity "restricted' in answer["message"]


@pytest.fixture(scope="module")
def hardened(plane: ControlPlane) -> str:
    """A namespace as role certificates makes ours."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 - YAML, no HTML
    environment.filters.update(to_json=json.dumps, combine=lambda one, other: one | other)
    template = environment.from_string(NAMESPACE.read_text(encoding="utf-8"))
    text = template.render(certificates_namespace="hardened", _certificates_labels={})
    plane.kube.create("/api/v1/namespaces", next(yaml.safe_load_all(text)))
    return "hardened"


@pytest.fixture
def old_cluster(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an API server that says it is Kubernetes 1.29, and that its user may do all."""

    class Old(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"major": "1", "minor": "29", "gitVersion": "v1.29.4", **dict.fromkeys(VERSION, "")})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._say({"spec": {}, "status": {"allowed": True}})

        def log_message(self, *words: object) -> None:
            """Say nothing."""

        def _say(self, body: Object) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Old)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "old",
        "clusters": [{"name": "old", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "old", "user": {}}],
        "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config), encoding="utf-8")
    yield path
    server.shutdown()
    server.server_close()


VERSION = ("gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform")


@pytest.mark.promise("up-5")
def test_an_old_cluster_is_refused_before_anything_changes(old_cluster: Path) -> None:
    """The inventory for clusters that exist: its first role looks, and says in one sentence what is missing."""
    command = ("ansible-playbook", "-i", "inventory/existing", "playbooks/site.yml", "-e", "kube_context=old")
    environment = {**os.environ, "KUBECONFIG": str(old_cluster)}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True)

    assert done.returncode == 2
    assert "The cluster runs Kubernetes 1.29.4: 1.30 or newer is needed." in " ".join(done.stdout.split())
    assert "changed=0" in done.stdout
